// The client against the real server.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import WebSocket from "ws";

import { Client, TidegateError } from "../src/index.js";
import { clientOf, enters, Heard } from "./helpers.js";
import { Proxy } from "./proxy.js";
import { Server } from "./server.js";

const config = `
[store]
path = "{store}"
[access]
anonymous = "read"
[[access.tokens]]
token = "writer"
name = "writer"
publish = ["#"]
subscribe = ["#"]
[[topics]]
selector = "kept/#"
ack = "disk"
[[topics]]
selector = "short/#"
history_count = 2
[limits]
subscriptions_per_session_max = 20
`;

let server: Server;
const open: { close(): void }[] = [];
const writer = (options: object = {}) => closing(clientOf(server.url, { token: "writer", ...options }));

function closing<C extends { close(): void }>(closed: C): C {
  open.push(closed);
  return closed;
}

beforeAll(async () => {
  server = await Server.start(config);
});
afterEach(() => open.splice(0).forEach((each) => each.close()));
afterAll(() => server.remove());

test("what is published arrives: JSON, text and bytes", async () => {
  const client = writer();
  const subscription = client.subscribe("p/a");
  const stream = subscription.stream();
  await subscription.ready();
  expect(await client.publish("p/a", { x: 1 })).toMatchObject({ topic: "p/a", sequence: 1, level: "memory" });
  await client.publish("p/a", "hello", { kind: "text" });
  await client.publish("p/a", new Uint8Array([1, 2, 255]));
  const items = [await stream.next(), await stream.next(), await stream.next()].map(({ value }) => value);
  expect(items).toMatchObject([
    { sequence: 1, kind: "json", data: { x: 1 } },
    { sequence: 2, kind: "text", data: "hello" },
    { sequence: 3, kind: "bytes", data: new Uint8Array([1, 2, 255]) },
  ]);
});

test("a snapshot comes first, then updates; a key is kept once; `expect` is checked", async () => {
  const client = writer();
  await client.publish("p/b", 1);
  const subscription = client.subscribe("p/+");
  const heard = new Heard(subscription);
  await subscription.ready();
  const first = await client.publish("p/b", 2, { key: "two" });
  expect(await client.publish("p/b", "other", { key: "two" })).toEqual(first);
  await expect(client.publish("p/b", 3, { expect: 1 })).rejects.toMatchObject({ code: 4217 });
  await client.publish("p/b", 3, { expect: 2 });
  const lines = [];
  while (lines.at(-1) !== "update p/b 3 3") lines.push(...(await heard.take(1)));
  expect(lines.filter((line) => line.includes("p/b"))).toEqual(["snapshot p/b 1 1", "update p/b 2 2", "update p/b 3 3"]);
});

test("a loop is told of gaps in their place, if it wants to be", async () => {
  const client = writer();
  for (let number = 1; number <= 4; number += 1) await client.publish("short/gaps", number);
  const stream = client.subscribe("short/gaps", { from: "all" }).stream({ gaps: true });
  const items = [await stream.next(), await stream.next(), await stream.next()].map(({ value }) => value);
  expect(items).toMatchObject([{ type: "gap", from: 1, to: 2 }, { type: "publication", data: 3 }, { data: 4 }]);
});

test("history, page by page", async () => {
  const client = writer();
  for (let number = 1; number <= 5; number += 1) await client.publish("short/a", number);
  const all = await client.history("short/a");
  expect(all).toMatchObject({ head: 5, start: 0, publications: [{ sequence: 4, data: 4 }, { sequence: 5, data: 5 }] });
  expect(all.publications[0]!.timeMs).toBeGreaterThan(1.6e12);
  const last = await client.history("short/a", { last: 1 });
  expect(last.publications.map(({ sequence }) => sequence)).toEqual([5]);
  expect(await client.ping()).toBeLessThan(10_000);
});

describe("what is refused", () => {
  test.each([
    ["a bad topic", (c: Client) => c.publish("a//b", 1), 4202],
    ["a topic of the server", (c: Client) => c.publish("$server/x", 1), 4303],
    ["a payload that is too large", (c: Client) => c.publish("a", "x".repeat(1_050_000)), 4205],
    ["a bad selector", (c: Client) => c.subscribe("a/#/b").ready(), 4203],
    ["too many selectors", (c: Client) => c.subscribe(Array.from({ length: 21 }, (_, i) => `m/${i}`)).ready(), 4207],
    ["an unknown conflation", (c: Client) => c.subscribe("a", { conflation: "sideways" as "off" }).ready(), 4200],
  ])("%s: %s", async (_, attempt, code) => {
    const client = writer();
    const error = await attempt(client).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(TidegateError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(/^cannot .*; /) });
    // A refused command costs the command, nothing else.
    await client.ping();
  });

  test("publishing without a token that may", async () => {
    const client = closing(clientOf(server.url));
    await expect(client.publish("p/a", 1)).rejects.toMatchObject({ code: 4301, advice: "authenticate-first" });
  });

  test("a subscription that nobody watches is told by the client", async () => {
    const client = writer();
    const told = new Promise((resolve) => client.on("error", resolve));
    client.subscribe("a/#/b");
    expect(await told).toMatchObject({ code: 4203 });
  });
});

test("conflation is passed on", async () => {
  const client = writer();
  const subscription = client.subscribe("p/#", { conflation: "lagging", intervalMs: 50 });
  await subscription.ready();
  expect(subscription.state).toBe("live");
});

describe("tokens", () => {
  test("a bad one stops the client, and everything that waits", async () => {
    const client = closing(clientOf(server.url, { token: "wrong" }));
    const waits = [client.ready(), client.publish("p/a", 1), client.subscribe("p/a").stream().next()];
    for (const wait of waits) await expect(wait).rejects.toMatchObject({ code: 4300 });
    expect(client.state).toBe("stopped");
    await expect(client.ping()).rejects.toMatchObject({ code: 4300 });
  });

  test("if nobody waits, it is told by the client; a subscription then is asked for when it starts again", async () => {
    let isSignedIn = false;
    const token = () => {
      if (isSignedIn) return "writer";
      throw new TidegateError(4300, "cannot sign in: the password is wrong; give another");
    };
    const client = closing(clientOf(server.url, { token }));
    const told = new Promise((resolve) => client.on("error", resolve));
    client.connect();
    expect(await told).toMatchObject({ code: 4300, message: expect.stringContaining("sign in") });
    const subscription = client.subscribe("p/a");
    await expect(subscription.stream().next()).rejects.toMatchObject({ code: 4300 });
    await expect(subscription.ready()).rejects.toMatchObject({ code: 4300 });
    expect(subscription.state).toBe("waiting");
    isSignedIn = true;
    client.connect();
    await subscription.ready();
  });

  test("a provider is asked again until one is good", async () => {
    const asked: (number | undefined)[] = [];
    const token = async ({ refused }: { refused?: TidegateError | undefined }) => {
      asked.push(refused?.code);
      return asked.length < 3 ? "wrong" : "writer";
    };
    const client = closing(clientOf(server.url, { token }));
    await client.publish("p/a", 1);
    expect(asked).toEqual([undefined, 4300, 4300]);
  });

  test("a provider that throws is asked later; one that gives up is obeyed", async () => {
    let failures = 0;
    const token = () => {
      failures += 1;
      if (failures === 1) throw new Error("the network is down");
      throw new TidegateError(4300, "cannot sign in: nobody is there; sign in first");
    };
    const client = closing(clientOf(server.url, { token }));
    await expect(client.ready()).rejects.toMatchObject({ code: 4300 });
    expect(failures).toBe(2);
  });
});

describe("breaks", () => {
  test("a cut connection is resumed: what was missed follows, once", async () => {
    const proxy = closing(await Proxy.open(server.port));
    const client = closing(clientOf(proxy.url));
    const subscription = client.subscribe("cut/+");
    const heard = new Heard(subscription);
    await subscription.ready();
    await server.publish({ topic: "cut/a", data: 1 }, "writer");
    expect(await heard.take(1)).toEqual(["update cut/a 1 1"]);
    const gone = enters(client, "waiting");
    proxy.cut();
    await gone;
    await server.publish({ topic: "cut/a", data: 2 }, "writer");
    await server.publish({ topic: "cut/b", data: 1 }, "writer");
    proxy.mend();
    client.nudge();
    const lines = await heard.take(3);
    expect(lines.sort()).toEqual(["resumed cut/a true 1", "update cut/a 2 2", "update cut/b 1 1"]);
  });

  test("the server is killed and started again: durable topics go on, others begin anew", async () => {
    const client = writer();
    const [kept, memory] = [client.subscribe("kept/a"), client.subscribe("memory/a")];
    const [heardKept, heardMemory] = [new Heard(kept), new Heard(memory)];
    await client.publish("kept/a", 1);
    await client.publish("memory/a", 1);
    await Promise.all([heardKept.take(1), heardMemory.take(1)]);
    const gone = enters(client, "waiting");
    await server.kill();
    await gone;
    const waiting = client.publish("kept/a", 2);
    await server.start();
    client.nudge();
    expect(await waiting).toMatchObject({ sequence: 2, level: "disk" });
    expect(await heardKept.take(2)).toEqual(["resumed kept/a true 0", "update kept/a 2 2"]);
    expect(await heardMemory.take(2)).toEqual(["resumed memory/a false 0", "gap memory/a ..0 epoch"]);
    await client.publish("memory/a", "new");
    expect(await heardMemory.take(1)).toEqual(['update memory/a 1 "new"']);
  });

  test("a publish whose answer is lost: with a key it is sent again, without one it is in doubt", async () => {
    const proxy = closing(await Proxy.open(server.port));
    const client = closing(clientOf(proxy.url, { token: "writer" }));
    await client.ready();
    const reader = writer();
    const subscription = reader.subscribe("kept/doubt", { from: "now" });
    const heard = new Heard(subscription);
    await subscription.ready();
    proxy.mute();
    const keyed = client.publish("kept/doubt", "keyed", { key: "once" });
    const plain = client.publish("kept/doubt", "plain");
    const doubtful = expect(plain).rejects.toMatchObject({ code: 4900, message: expect.stringContaining("may or may not") });
    // Both were kept; only the client does not know.
    expect(await heard.take(2)).toEqual(['update kept/doubt 1 "keyed"', 'update kept/doubt 2 "plain"']);
    proxy.cut();
    await doubtful;
    proxy.mend();
    client.nudge();
    expect(await keyed).toMatchObject({ sequence: 1 });
    expect(await client.history("kept/doubt")).toMatchObject({ head: 2 });
  });

  test("a server that stops in order is left, and found again", async () => {
    const client = writer();
    await client.ready();
    const told = new Promise((resolve) => client.on("state", (change) => change.state === "waiting" && resolve(change)));
    await server.stop();
    // It asks to be left alone for a second; up to a quarter more is ours.
    const { error, retryInMs } = (await told) as { error: TidegateError; retryInMs: number };
    expect(error).toMatchObject({ code: 4000, advice: "retry-now" });
    expect(retryInMs).toBeGreaterThanOrEqual(1_000);
    expect(retryInMs).toBeLessThanOrEqual(1_250);
    await server.start();
    client.nudge();
    await client.ready();
  });

  test("when a node is gone the next one serves", async () => {
    const client = closing(clientOf(["ws://127.0.0.1:1", server.url]));
    await client.ready();
    expect(client.state).toBe("connected");
  });

  test("positions of an earlier run are resumed from", async () => {
    const first = writer();
    await first.publish("kept/again", 1);
    const before = first.subscribe("kept/again");
    const read = before.stream().next();
    await read;
    const { positions } = before;
    first.close();
    await server.publish({ topic: "kept/again", data: 2 }, "writer");
    const heard = new Heard(writer().subscribe("kept/again", { positions }));
    expect(await heard.take(2)).toEqual(["resumed kept/again true 1", "update kept/again 2 2"]);
  });

  test("a durable subscriber goes on where it said it was", async () => {
    const first = writer();
    const subscription = first.subscribe("kept/named", { name: "desk", from: "all" });
    const stream = subscription.stream();
    await first.publish("kept/named", 1);
    await stream.next();
    await first.acknowledge("desk", subscription.positions);
    first.close();
    await server.publish({ topic: "kept/named", data: 2 }, "writer");
    const again = writer().subscribe("kept/named", { name: "desk", from: "all" }).stream();
    expect((await again.next()).value).toMatchObject({ sequence: 2 });
  });
});

describe("at awkward moments", () => {
  test("the same selector twice: both are told everything, each once", async () => {
    const client = writer();
    await client.publish("twice/a", 1);
    const first = new Heard(client.subscribe("twice/a"));
    expect(await first.take(1)).toEqual(["snapshot twice/a 1 1"]);
    const secondSubscription = client.subscribe("twice/a");
    const second = new Heard(secondSubscription);
    const pattern = new Heard(client.subscribe("twice/+"));
    expect(await second.take(1)).toEqual(["snapshot twice/a 1 1"]);
    expect(await pattern.take(1)).toEqual(["snapshot twice/a 1 1"]);
    await client.publish("twice/a", 2);
    for (const heard of [first, second, pattern]) expect(await heard.take(1)).toEqual(["update twice/a 2 2"]);
    secondSubscription.unsubscribe();
    await client.publish("twice/a", 3);
    for (const heard of [first, pattern]) expect(await heard.take(1)).toEqual(["update twice/a 3 3"]);
    expect(second.lines).toEqual([]);
  });

  test("a handler that throws costs nobody anything", async () => {
    const client = writer();
    const thrown = new Promise((resolve) => client.on("error", resolve));
    const subscription = client.subscribe("throw/a");
    subscription.on("update", () => {
      throw new Error("mine");
    });
    const stream = subscription.stream();
    await subscription.ready();
    await client.publish("throw/a", 1);
    expect(await thrown).toMatchObject({ message: "mine" });
    await client.publish("throw/a", 2);
    expect([(await stream.next()).value, (await stream.next()).value]).toMatchObject([{ sequence: 1 }, { sequence: 2 }]);
  });

  test("a handler that ends its subscription is not called again", async () => {
    const client = writer();
    for (let number = 1; number <= 3; number += 1) await client.publish("end/a", number);
    const subscription = client.subscribe("end/a", { from: "all" });
    const called: number[] = [];
    subscription.on("update", ({ sequence }) => {
      called.push(sequence);
      subscription.unsubscribe();
    });
    await ends(subscription);
    await client.ping();
    expect(called).toEqual([1]);
  });

  test("closed while it connects, and while it waits: loops end, commands fail", async () => {
    const connecting = clientOf(server.url);
    const stream = connecting.subscribe("p/a").stream();
    const ping = connecting.ping();
    connecting.close();
    await expect(ping).rejects.toMatchObject({ code: 4901 });
    expect(await stream.next()).toMatchObject({ done: true });

    const waiting = clientOf("ws://127.0.0.1:1");
    const gone = enters(waiting, "waiting");
    const publish = waiting.publish("p/a", 1);
    await gone;
    waiting.close();
    await expect(publish).rejects.toMatchObject({ code: 4901 });
    expect(waiting.state).toBe("idle");
  });

  test("closed and connected again in one breath", async () => {
    const client = closing(clientOf(server.url));
    await client.ready();
    client.close();
    client.connect();
    await client.ready();
    expect(await client.ping()).toBeGreaterThan(0);
  });

  test("closed by its own handler", async () => {
    const client = clientOf(server.url);
    const idle = enters(client, "idle");
    client.on("state", ({ state }) => state === "connected" && client.close());
    client.connect();
    await idle;
    expect(client.state).toBe("idle");
  });

  test("signals: before, while it waits, and as the end of a subscription", async () => {
    const aborted = AbortSignal.abort("early");
    const client = closing(clientOf("ws://127.0.0.1:1"));
    for (const attempt of [client.ping({ signal: aborted }), client.ready({ signal: aborted })]) {
      await expect(attempt).rejects.toBe("early");
    }
    const controller = new AbortController();
    const subscription = client.subscribe("a", { signal: controller.signal });
    const { signal } = controller;
    const waits = [client.publish("a", 1, { signal }), client.ready({ signal }), client.history("a", { signal })];
    controller.abort("enough");
    for (const wait of waits) await expect(wait).rejects.toBe("enough");
    expect(subscription.state).toBe("ended");
    await expect(subscription.ready()).rejects.toMatchObject({ code: 4901 });
  });

  test("overlapping subscriptions of the same moment miss nothing, whatever each of them asks for", async () => {
    const client = writer();
    for (let index = 1; index <= 100; index += 1) await client.publish("kept/both", "x".repeat(1_000));
    const reader = writer();
    const all = new Heard(reader.subscribe("kept/both", { from: "all" }));
    reader.subscribe("kept/#", { from: "now" });
    reader.subscribe("kept/both", { from: "now" });
    const lines = await all.take(100);
    expect(lines.map((line) => line.split(" ")[2])).toEqual(Array.from({ length: 100 }, (_, index) => String(index + 1)));
  });

  test("positions are before what a stream still holds, and before what its reader left", async () => {
    const client = writer();
    const subscription = client.subscribe("kept/held", { from: "all" });
    const stream = subscription.stream();
    for (let index = 1; index <= 3; index += 1) await client.publish("kept/held", index);
    expect(subscription.positions["kept/held"]?.sequence ?? 0).toBe(0);
    await stream.next();
    await client.ping();
    expect(subscription.positions["kept/held"]!.sequence).toBe(1);
    await stream.return();
    expect(subscription.positions["kept/held"]!.sequence).toBe(1);
    const { value } = await client.subscribe("kept/held", { positions: subscription.positions }).stream().next();
    expect(value.sequence).toBe(2);
  });

  test("positions are what was handed out: in a handler, and of other topics after a stream ended by itself", async () => {
    const client = writer();
    for (let index = 1; index <= 10; index += 1) await client.publish("kept/out", index);
    const reader = writer();
    const handled = reader.subscribe("kept/out", { from: "all" });
    const said: (number | undefined)[] = [];
    const isDone = new Promise<void>((resolve) => {
      handled.on("update", ({ sequence }) => {
        said.push(handled.positions["kept/out"]?.sequence);
        if (sequence === 10) resolve();
      });
    });
    await isDone;
    expect(said).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);

    const both = reader.subscribe(["kept/out", "kept/over"], { from: "all" });
    const stream = both.stream({ capacity: 10, whenFull: "fail" });
    await both.ready();
    // The eleventh has no room; the twelfth comes when the stream is gone.
    for (let index = 1; index <= 2; index += 1) await client.publish("kept/over", index);
    await reader.ping();
    for (let count = 0; count < 10; count += 1) await stream.next();
    await expect(stream.next()).rejects.toMatchObject({ code: 4903 });
    expect(both.positions).toMatchObject({ "kept/out": { sequence: 10 }, "kept/over": { sequence: 0 } });
  });

  test.each<[string, (client: Client, end: () => void) => void]>([
    ["unsubscribe", (_, end) => end()],
    ["close", (client) => client.close()],
  ])("positions stay after %s", async (_, end) => {
    const client = writer();
    await client.publish("kept/stay", 1);
    const subscription = client.subscribe("kept/stay");
    await new Heard(subscription).take(1);
    const { positions } = subscription;
    end(client, () => subscription.unsubscribe());
    expect(subscription.state).toBe("ended");
    expect(subscription.positions).toEqual(positions);
    expect(positions["kept/stay"]!.sequence).toBeGreaterThan(0);
  });

  test("a pattern with so many topics that their places fill several messages goes on after a break", async () => {
    const proxy = closing(await Proxy.open(server.port));
    const client = closing(clientOf(proxy.url, { token: "writer" }));
    const subscription = client.subscribe("many/#", { from: "all" });
    await subscription.ready();
    let told = 0;
    let wake = () => {};
    subscription.on("update", () => {
      told += 1;
      wake();
    });
    const reach = async (count: number) => {
      while (told < count) await new Promise<void>((resolve) => (wake = resolve));
    };
    const topics = Array.from({ length: 8_000 }, (_, index) => `many/${"x".repeat(150)}/${index}`);
    for (let at = 0; at < topics.length; at += 1_000) {
      const { status } = await server.publish({ topics: topics.slice(at, at + 1_000), data: 1 }, "writer");
      expect(status).toBe(200);
    }
    await reach(8_000);
    const gone = enters(client, "waiting");
    proxy.cut();
    await gone;
    await server.publish({ topics: [topics[0], topics[7_999]], data: 2 }, "writer");
    proxy.mend();
    client.nudge();
    await subscription.ready();
    await reach(8_002);
    await client.ping();
    expect(told).toBe(8_002);
    expect(subscription.error).toBe(undefined);
  });

  test("a message that is larger than the server takes is refused here, and nothing else is lost", async () => {
    const client = writer();
    await client.ready();
    const large = client.publish("large", "x".repeat(1_600_000));
    await expect(large).rejects.toMatchObject({ code: 4206, message: expect.stringContaining("1572864") });
    const many = Array.from({ length: 40_000 }, (_, index) => `many/${index}/${"x".repeat(40)}`);
    await expect(client.subscribe(many).ready()).rejects.toMatchObject({ code: 4206 });
    await client.publish("large", 1);
    expect(client.state).toBe("connected");
  });

  test("nothing to travel with, or no address, is said at once", () => {
    const { WebSocket: own } = globalThis as { WebSocket?: unknown };
    try {
      delete (globalThis as { WebSocket?: unknown }).WebSocket;
      expect(() => new Client(server.url, { transports: ["websocket"] })).toThrow(expect.objectContaining({ code: 4905 }));
    } finally {
      if (own !== undefined) Object.assign(globalThis, { WebSocket: own });
    }
    expect(() => new Client([], { WebSocket })).toThrow(TypeError);
    expect(() => new Client("localhost", { WebSocket })).toThrow(TypeError);
  });
});

/** Resolves when a subscription has ended. */
function ends(subscription: { on(name: "state", handler: (change: { state: string }) => void): unknown }): Promise<void> {
  return new Promise((resolve) => subscription.on("state", ({ state }) => state === "ended" && resolve()));
}
