// Another transport than WebSocket: what the client asks of one, and what it does with a strange one.
import { afterEach, expect, test } from "vitest";

import type { TransportHandlers } from "../src/index.js";
import { Client } from "../src/index.js";

const open: Client[] = [];
afterEach(() => open.splice(0).forEach((client) => client.close()));

/** A client whose transports are in our hands: what was sent over them, and the ways to answer. */
function held(): { client: Client; transports: { url: string; sent: any[]; handlers: TransportHandlers; isClosed: boolean; isHeld: boolean }[] } {
  const transports: ReturnType<typeof held>["transports"] = [];
  const client = new Client(["one:", "two:"], {
    firstMs: 1,
    lastMs: 1,
    transport: (url, handlers) => {
      const transport = { url, sent: [] as any[], handlers, isClosed: false, isHeld: false };
      transports.push(transport);
      return {
        send: (text) => transport.sent.push(JSON.parse(text)),
        close: () => (transport.isClosed = true),
        hold: (isHeld) => (transport.isHeld = isHeld),
      };
    },
  });
  open.push(client);
  return { client, transports };
}

/** Opens the newest transport and answers its `hello`. */
function welcome({ transports }: ReturnType<typeof held>): void {
  const { handlers, sent } = transports.at(-1)!;
  handlers.handleOpen();
  handlers.handleText(JSON.stringify([{ type: "welcome", id: sent[0].id, session: "s", node: "n" }]));
}

const nextTransport = (client: Client) =>
  new Promise<void>((resolve) => {
    const off = client.on("state", ({ state }) => state === "opening" && (off(), queueMicrotask(resolve)));
  });

test("`hello` asks for batches; commands wait for the welcome", async () => {
  const { client, transports, ...rest } = held();
  client.subscribe("a");
  transports[0]!.handlers.handleOpen();
  expect(transports[0]!.sent).toMatchObject([{ type: "hello", batch: true }]);
  welcome({ client, transports, ...rest });
  await client.ready();
  expect(transports[0]!.sent.at(-1)).toMatchObject({ type: "subscribe", topics: ["a"] });
});

test("handlers that are added after subscribing hear the first change of state", async () => {
  const all = held();
  all.client.connect();
  welcome(all);
  const states: string[] = [];
  all.client.subscribe("a").on("state", ({ state }) => states.push(state));
  await Promise.resolve();
  expect(states).toEqual(["asked"]);
});

test("what comes after `closing`, or from a transport that was left, means nothing", async () => {
  const all = held();
  const told: unknown[] = [];
  const subscription = all.client.subscribe("a");
  subscription.on("update", ({ sequence }) => told.push(sequence));
  welcome(all);
  await Promise.resolve();
  const [first] = all.transports;
  const id = first!.sent.at(-1).id;
  const publication = (sequence: number) => ({ type: "publication", topic: "a", sequence, data: 0 });
  const subscribed = { type: "subscribed", id, selectors: ["a"], topics: [{ topic: "a", epoch: "e", head: 0, start: 0 }] };
  const left = nextTransport(all.client);
  const closing = { type: "closing", code: 4000, error: "" };
  first!.handlers.handleText(JSON.stringify([subscribed, publication(1), closing, publication(2)]));
  first!.handlers.handleText(JSON.stringify(publication(3)));
  await left;
  first!.handlers.handleText(JSON.stringify(publication(4)));
  first!.handlers.handleClose({ text: "late" });
  expect(told).toEqual([1]);
  expect(subscription.positions).toEqual({ a: { epoch: "e", sequence: 1 } });
  expect(all.transports.map(({ url, isClosed }) => [url, isClosed])).toEqual([["one:", true], ["two:", false]]);
});

test.each([["no JSON"], ["null"], ["[7, null]"]])("a server that says %s is left for the next", async (text) => {
  const all = held();
  all.client.connect();
  welcome(all);
  const left = nextTransport(all.client);
  all.transports[0]!.handlers.handleText(text);
  await left;
  expect(all.transports.map(({ url }) => url)).toEqual(["one:", "two:"]);
});

test("a transport that throws when it is opened, or when something is sent, is one that broke", async () => {
  let attempts = 0;
  const client = new Client("any:", {
    firstMs: 1,
    transport: (_, handlers) => {
      attempts += 1;
      if (attempts === 1) throw new Error("mine");
      queueMicrotask(() => handlers.handleOpen());
      return {
        send: () => {
          throw new Error("also mine");
        },
        close: () => {},
      };
    },
  });
  open.push(client);
  const errors: string[] = [];
  const twice = new Promise<void>((resolve) => {
    client.on("state", ({ error }) => error && errors.push(error.message) === 2 && resolve());
  });
  client.connect();
  await twice;
  expect(errors).toEqual([expect.stringContaining("mine"), expect.stringContaining("also mine")]);
});

test("a loop that does not keep up holds up the transport, unless an answer is waited for", async () => {
  const all = held();
  const subscription = all.client.subscribe("a");
  const stream = subscription.stream({ capacity: 2 });
  const handled: number[] = [];
  subscription.on("update", ({ sequence }) => handled.push(sequence));
  welcome(all);
  await all.client.ready();
  const [transport] = all.transports;
  const { id } = transport!.sent.at(-1);
  const tell = (...events: object[]) => transport!.handlers.handleText(JSON.stringify(events));
  tell({ type: "subscribed", id, selectors: ["a"], topics: [{ topic: "a", epoch: "e1", head: 0, start: 0 }] });
  tell(...[1, 2, 3, 4].map((sequence) => ({ type: "publication", topic: "a", sequence, data: 0 })));
  expect([transport!.isHeld, handled]).toEqual([true, [1, 2]]);
  const pong = all.client.ping();
  expect(transport!.isHeld).toBe(false);
  tell({ type: "pong", id: transport!.sent.at(-1).id });
  await pong;
  expect(transport!.isHeld).toBe(true);
  for (const sequence of [1, 2, 3, 4]) expect((await stream.next()).value).toMatchObject({ sequence });
  await Promise.resolve();
  expect([transport!.isHeld, handled]).toEqual([false, [1, 2, 3, 4]]);
});

test("what is kept back has an end where the transport cannot be held up", async () => {
  const all = held();
  const stream = all.client.subscribe("a").stream({ capacity: 1 });
  welcome(all);
  await all.client.ready();
  const [{ sent, handlers }] = all.transports as [(typeof all.transports)[number]];
  const tell = (...events: object[]) => handlers.handleText(JSON.stringify(events));
  tell({ type: "subscribed", id: sent.at(-1).id, selectors: ["a"], topics: [{ topic: "a", epoch: "e1", head: 0, start: 0 }] });
  const data = "x".repeat(1 << 23);
  for (let sequence = 1; sequence <= 12; sequence += 1) tell({ type: "publication", topic: "a", sequence, data });
  expect((await stream.next()).value).toMatchObject({ sequence: 1 });
  await expect(stream.next()).rejects.toMatchObject({ code: 4903 });
});
