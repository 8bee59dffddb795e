// Requests without a server that knows them: what is asked of it, and what is made of what it says.
import { afterEach, expect, test } from "vitest";

import type { TransportHandlers } from "../src/index.js";
import { Client } from "../src/index.js";
import { Services } from "../src/services.js";

const open: Client[] = [];
afterEach(() => open.splice(0).forEach((client) => client.close()));

/** A client whose server is in our hands. */
class Held {
  readonly sent: any[] = [];
  readonly client: Client;
  readonly services: Services;
  #handlers: TransportHandlers | undefined;

  constructor() {
    this.client = new Client("any:", {
      firstMs: 1,
      lastMs: 1,
      transport: (_, handlers) => {
        this.#handlers = handlers;
        queueMicrotask(() => handlers.handleOpen());
        return { send: (text) => this.#take(JSON.parse(text)), close: () => {} };
      },
    });
    open.push(this.client);
    this.services = new Services(this.client);
  }

  hear(...events: object[]): void {
    this.#handlers!.handleText(JSON.stringify(events));
  }

  break(): void {
    this.#handlers!.handleClose({ text: "broke" });
  }

  /** The newest command of a type, as soon as there are `count`. */
  async asked(type: string, count = 1): Promise<any> {
    for (;;) {
      const found = this.sent.filter((command) => command.type === type);
      if (found.length >= count) return found.at(-1);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  #take(command: any): void {
    this.sent.push(command);
    if (command.type === "hello") queueMicrotask(() => this.hear({ type: "welcome", id: command.id, session: "s", node: "n" }));
  }
}

test("a request carries its options, and its answer's value comes back", async () => {
  const held = new Held();
  const options = { timeoutMs: 50, session: "s-9", principal: "alice", filter: "client == 'desk'", key: "k" };
  const answer = held.services.request("orders/new", { n: 1 }, options);
  const command = await held.asked("request");
  expect(command).toEqual({
    id: expect.any(Number), type: "request", topic: "orders/new", data: { n: 1 }, timeout_ms: 50, session: "s-9",
    principal: "alice", filter: "client == 'desk'", key: "k",
  });
  held.hear({ type: "response", id: command.id, from: "s-9", data: { ok: true } });
  expect(await answer).toEqual({ ok: true });
});

test.each([4107, 4108, 4109, 4110, 4221])("what goes wrong has its code: %s", async (code) => {
  const held = new Held();
  const answer = held.services.request("a", 1);
  const refused = expect(answer).rejects.toMatchObject({ code });
  held.hear({ type: "refused", id: (await held.asked("request")).id, code, error: "" });
  await refused;
});

test("a request whose connection breaks may have been carried out; with a key it is sent again", async () => {
  const held = new Held();
  const doubtful = expect(held.services.request("a", 1)).rejects.toMatchObject({ code: 4900 });
  const keyed = held.services.request("a", 2, { key: "k" });
  const { id } = await held.asked("request", 2);
  held.break();
  await doubtful;
  expect(await held.asked("request", 3)).toMatchObject({ id, key: "k", data: 2 });
  held.hear({ type: "response", id, from: "s", text: "done" });
  expect(await keyed).toBe("done");
});

test("the time is up also while nobody can be asked, and who does not wait any more is not told", async () => {
  const client = new Client("any:", { transport: () => ({ send: () => {}, close: () => {} }) });
  open.push(client);
  const services = new Services(client);
  await expect(services.request("a", 1, { timeoutMs: 1 })).rejects.toMatchObject({ code: 4108 });
  const controller = new AbortController();
  const left = services.request("a", 1, { signal: controller.signal });
  controller.abort("enough");
  await expect(left).rejects.toBe("enough");
});

test("all answers come in a loop, which ends with the last", async () => {
  const held = new Held();
  const answers = held.services.requestAll("a", 1);
  const { id, all } = await held.asked("request");
  expect(all).toBe(true);
  held.hear(
    { type: "response", id, from: "one", data: 1, more: true },
    { type: "response", id, from: "two", text: "2", more: true },
    { type: "responded", id, count: 2, missing: 1 },
  );
  const told = [];
  for await (const { from, data } of answers) told.push([from, data]);
  expect([told, answers.missing]).toEqual([[["one", 1], ["two", "2"]], 1]);
});

test("leaving that loop, or its refusal, ends it", async () => {
  const held = new Held();
  for await (const { from } of (async function* () {
    const answers = held.services.requestAll("a", 1);
    const { id } = await held.asked("request");
    held.hear({ type: "response", id, from: "one", data: 1, more: true });
    yield* answers;
  })()) {
    expect(from).toBe("one");
    break;
  }
  const answers = held.services.requestAll("a", 2);
  held.hear({ type: "refused", id: (await held.asked("request", 2)).id, code: 4107, error: "" });
  await expect(answers.next()).rejects.toMatchObject({ code: 4107 });
});

test("what is handled is answered; what is thrown declines it", async () => {
  const held = new Held();
  const handler = held.services.handle("orders/#", async ({ topic, data, from, principal, timeoutMs }) => {
    if (data === null) throw new Error("no order");
    return { topic, data, from, principal, timeoutMs };
  }, { concurrency: 5 });
  const { id, ...command } = await held.asked("handle");
  expect(command).toEqual({ type: "handle", topics: ["orders/#"], concurrency: 5 });
  held.hear({ type: "handling", id, selectors: ["orders/#"] });
  await handler.ready();
  const request = { type: "request", topic: "orders/new", timeout_ms: 99, from: "s-1", principal: "alice" };
  held.hear({ ...request, request: 12, data: 7 });
  const { type: _, timeout_ms: timeoutMs, ...echoed } = request;
  expect(await held.asked("respond")).toEqual({ type: "respond", request: 12, data: { ...echoed, timeoutMs, data: 7 } });
  held.hear({ ...request, request: 13, data: null });
  expect(await held.asked("respond", 2)).toEqual({ type: "respond", request: 13, error: "no order" });
  handler.end();
  expect(await held.asked("unhandle")).toMatchObject({ topics: ["orders/#"] });
});

test("the most specific of one client's handlers is asked; two cannot have the same selector", async () => {
  const held = new Held();
  const named = (name: string) => () => name;
  for (const selector of ["a/#", "a/+", "a/b", "+/b/#"]) held.services.handle(selector, named(selector));
  expect(() => held.services.handle(["x", "a/+"], named(""))).toThrow(expect.objectContaining({ code: 4905 }));
  await held.asked("handle", 4);
  for (const [index, topic] of ["a/b", "a/c", "a/c/d", "c/b"].entries()) {
    held.hear({ type: "request", request: index, topic, timeout_ms: 99, from: "s", data: 0 });
  }
  await held.asked("respond", 4);
  const answers = held.sent.filter(({ type }) => type === "respond").map(({ request, data }) => [request, data]);
  expect(answers).toEqual([[0, "a/b"], [1, "a/+"], [2, "a/#"], [3, "+/b/#"]]);
});

test("after a break it is registered again; what was open is not answered, and its handler hears of it", async () => {
  const held = new Held();
  const signals: AbortSignal[] = [];
  const handler = held.services.handle("a", ({ signal }) => {
    signals.push(signal);
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve(1)));
  });
  const { id } = await held.asked("handle");
  held.hear({ type: "handling", id, selectors: ["a"] });
  await handler.ready();
  held.hear({ type: "request", request: 1, topic: "a", timeout_ms: 9_999, from: "s", data: 0 });
  await Promise.resolve();
  held.break();
  const again = await held.asked("handle", 2);
  held.hear({ type: "handling", id: again.id, selectors: ["a"] });
  await handler.ready();
  expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
  expect(held.sent.filter(({ type }) => type === "respond")).toEqual([]);
});

test("a request for a handler that was just ended is passed on, not declined", async () => {
  const held = new Held();
  const handler = held.services.handle("a", () => 1);
  held.services.handle("b", () => 2);
  await held.asked("handle", 2);
  handler.end();
  held.hear({ type: "request", request: 7, topic: "a", timeout_ms: 99, from: "s", data: 0 });
  held.hear({ type: "request", request: 8, topic: "b", timeout_ms: 99, from: "s", data: 0 });
  await held.asked("respond", 2);
  const answers = held.sent.filter(({ type }) => type === "respond");
  expect(answers).toEqual([
    { type: "respond", request: 7, error: expect.any(String), code: 4107 },
    expect.objectContaining({ request: 8, data: 2 }),
  ]);
});

test("a handler that is refused ends, and somebody is told", async () => {
  const held = new Held();
  const errors: unknown[] = [];
  held.client.on("error", (error) => errors.push(error));
  const handler = held.services.handle("a", () => 1);
  const refused = expect(handler.ready()).rejects.toMatchObject({ code: 4301 });
  held.hear({ type: "refused", id: (await held.asked("handle")).id, code: 4301, error: "" });
  await refused;
  held.services.handle("a", () => 1);
  held.hear({ type: "refused", id: (await held.asked("handle", 2)).id, code: 4301, error: "" });
  await held.client.ping({ signal: AbortSignal.timeout(5) }).catch(() => {});
  expect(errors).toMatchObject([{ code: 4301 }]);
});
