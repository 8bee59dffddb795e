// Another transport than WebSocket: what the client asks of one, and what it does with a strange one.
import { afterEach, expect, test } from "vitest";

import type { TransportHandlers } from "../src/index.js";
import { Client } from "../src/index.js";

const open: Client[] = [];
afterEach(() => open.splice(0).forEach((client) => client.close()));

/** A client whose transports are in our hands: what was sent over them, and the ways to answer. */
function held(): { client: Client; transports: { url: string; sent: any[]; handlers: TransportHandlers; isClosed: boolean }[] } {
  const transports: ReturnType<typeof held>["transports"] = [];
  const client = new Client(["one:", "two:"], {
    firstMs: 1,
    lastMs: 1,
    transport: (url, handlers) => {
      const transport = { url, sent: [] as any[], handlers, isClosed: false };
      transports.push(transport);
      return {
        send: (text) => transport.sent.push(JSON.parse(text)),
        close: () => (transport.isClosed = true),
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
