// Less data, same truth: what a subscription and a client may ask for, deltas and pieces, against the real server.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import type { ClientOptions, DeltaForm, Publication } from "../src/index.js";
import { vcdiff } from "../src/vcdiff.js";
import { jsonPatch } from "../src/patch.js";
import { clientOf, Heard } from "./helpers.js";
import { Server } from "./server.js";
import { Watch } from "./watch.js";

const config = `
[limits]
payload_bytes_max = 4000000
message_bytes_max = 6000000
body_bytes_max = 6000000
`;

let server: Server;
const open: { close(): void }[] = [];
const closing = <C extends { close(): void }>(closed: C): C => (open.push(closed), closed);
const clientWith = (options: ClientOptions = {}) => closing(clientOf(server.url, options));

beforeAll(async () => {
  server = await Server.start(config);
});
afterEach(() => open.splice(0).forEach((each) => each.close()));
afterAll(() => server.remove());

/** Publishes to one topic, in one request: what comes between cannot be told from it. */
async function publishAll(topic: string, values: readonly unknown[]): Promise<void> {
  const { status } = await server.publish({ publications: values.map((data) => ({ topic, data })) });
  expect(status).toBe(200);
}

test.each(["off", "lagging", "always", "unsubscribe"] as const)("conflation %s: one in step has everything", async (conflation) => {
  const topic = `conflation/${conflation}`;
  const subscription = clientWith().subscribe(topic, { conflation });
  const heard = new Heard(subscription);
  await subscription.ready();
  for (const value of [1, 2, 3]) {
    await publishAll(topic, [value]);
    expect(await heard.take(1)).toEqual([`update ${topic} ${value} ${value}`]);
  }
});

test("an interval with conflation: the first at once, then the newest of what came meanwhile", async () => {
  const subscription = clientWith().subscribe("paced/a", { conflation: "always", intervalMs: 1_500 });
  const heard = new Heard(subscription);
  await subscription.ready();
  await publishAll("paced/a", [1]);
  expect(await heard.take(1)).toEqual(["update paced/a 1 1"]);
  const began = performance.now();
  for (const value of [2, 3, 4]) await publishAll("paced/a", [value]);
  expect(await heard.take(1)).toEqual(["update paced/a 4 4"]);
  expect(performance.now() - began).toBeGreaterThan(700);
});

test("an interval without conflation skips nothing", async () => {
  const subscription = clientWith().subscribe("paced/b", { intervalMs: 300 });
  const heard = new Heard(subscription);
  await subscription.ready();
  await publishAll("paced/b", [1, 2, 3]);
  expect(await heard.take(3)).toEqual([1, 2, 3].map((value) => `update paced/b ${value} ${value}`));
});

test("a filter lets through what it is true for, also of what was there", async () => {
  await publishAll("filtered/low", [{ price: 1 }]);
  await publishAll("filtered/high", [{ price: 200 }]);
  const subscription = clientWith().subscribe("filtered/+", { filter: "data.price > 100.0" });
  const heard = new Heard(subscription);
  await subscription.ready();
  expect(await heard.take(1)).toEqual(['snapshot filtered/high 1 {"price":200}']);
  await publishAll("filtered/low", [{ price: 2 }, { price: 101 }, "no price"]);
  expect(await heard.take(1)).toEqual(['update filtered/low 3 {"price":101}']);
});

test.each([
  ["a filter that breaks a rule", { filter: "data.all(x, x > 1)" }, 4220],
  ["a filter that does not parse", { filter: "data >" }, 4220],
  ["a priority out of bounds", { priority: 10 }, 4200],
] as const)("%s is refused", async (_, options, code) => {
  await expect(clientWith().subscribe("refused/a", options).ready()).rejects.toMatchObject({ code });
});

test("subscriptions of different priorities are both served", async () => {
  const client = clientWith();
  const [low, high] = [client.subscribe("low/a", { priority: -9 }), client.subscribe("high/a", { priority: 9 })];
  const [heardLow, heardHigh] = [new Heard(low), new Heard(high)];
  await Promise.all([low.ready(), high.ready()]);
  await publishAll("low/a", [1]);
  await publishAll("high/a", [1]);
  expect([await heardLow.take(1), await heardHigh.take(1)]).toEqual([["update low/a 1 1"], ["update high/a 1 1"]]);
});

test("a client that asked for few messages gets few, and the newest of each topic", async () => {
  const client = clientWith({ messagesPerSecond: 10, bytesPerSecond: 100_000 });
  const subscription = client.subscribe("slow/+", { conflation: "lagging" });
  const heard = new Heard(subscription);
  await subscription.ready();
  await publishAll("slow/a", Array.from({ length: 500 }, (_, index) => index + 1));
  const lines: string[] = [];
  while (lines.at(-1) !== "update slow/a 500 500") lines.push(...(await heard.take(1)));
  expect(lines.length).toBeLessThan(100);
});

/** The newest value of a topic, as the server has it. */
async function kept(topic: string): Promise<{ sequence: number; data?: unknown; text?: string; base64?: string }> {
  const answer = await fetch(`${server.url.replace("ws", "http")}/v1/topics/${topic}`);
  return (await answer.json()) as { sequence: number };
}

/** What a subscription was told until `sequence`. */
async function toldUntil(stream: AsyncIterator<Publication>, sequence: number): Promise<Publication[]> {
  const told: Publication[] = [];
  while (told.at(-1)?.sequence !== sequence) told.push((await stream.next()).value);
  return told;
}

const book = (step: number) => ({
  symbol: "ABC €",
  last: 100 + step / 4,
  "a/b~c": step % 3 === 0 ? null : step,
  levels: Array.from({ length: 40 + (step % 5) }, (_, level) => ({ price: 90 + level, size: (level * 7 + step) % 11 === 0 ? step : level })),
});

describe("deltas", () => {
  test.each(["json-patch", "vcdiff"] as const)("fifty updates as %s make what was published", async (delta) => {
    const topic = `books/${delta}`;
    const watch = new Watch();
    const client = clientWith({ deltas: [jsonPatch, vcdiff], WebSocket: watch.WebSocket });
    const subscription = client.subscribe(topic, { delta });
    const stream = subscription.stream();
    await subscription.ready();
    for (let step = 1; step <= 50; step += 1) {
      await publishAll(topic, [book(step)]);
      const { value } = await stream.next();
      expect(value).toMatchObject({ sequence: step, kind: "json", data: book(step) });
      if (step === 50) expect(await kept(topic)).toMatchObject({ sequence: 50, data: value!.data });
      // Who is told may do with it what he likes.
      (value!.data as { levels: unknown }).levels = 0;
    }
    expect(watch.count("delta")).toBeGreaterThanOrEqual(40);
    expect(watch.count("publication") + watch.count("delta")).toBe(50);
    expect(watch.asked("subscribe").length).toBe(1);
  });

  test.each([
    ["text", (step: number) => ({ text: `€ ${"the quick brown fox ".repeat(20)}${step}` })],
    ["bytes", (step: number) => ({ base64: Buffer.from([...Array(300).keys(), step]).toString("base64") })],
  ] as const)("vcdiff is of %s, too", async (kind, payload) => {
    const topic = `plain/${kind}`;
    const watch = new Watch();
    const stream = clientWith({ deltas: [jsonPatch, vcdiff], WebSocket: watch.WebSocket }).subscribe(topic, { delta: "vcdiff", from: "all" }).stream();
    for (let step = 1; step <= 10; step += 1) {
      await server.publish({ topic, ...payload(step) });
      const { data } = (await stream.next()).value!;
      const expected = payload(step) as { text?: string; base64?: string };
      expect(kind === "text" ? data : Buffer.from(data as Uint8Array).toString("base64")).toBe(expected.text ?? expected.base64);
    }
    expect(watch.count("delta")).toBeGreaterThanOrEqual(8);
  });

  test.each(["json-patch", "vcdiff"] as const)("a JSON text that is not as JavaScript writes it, as %s", async (delta) => {
    const topic = `odd/${delta}`;
    const watch = new Watch();
    const stream = clientWith({ deltas: [jsonPatch, vcdiff], WebSocket: watch.WebSocket }).subscribe(topic, { delta, from: "all" }).stream();
    for (let step = 1; step <= 5; step += 1) {
      const data = `{"z" : [1.0, 1e2],\t  "\\u0041": "\\/ \\"data\\": }{ ${"x".repeat(200)}", "data": {"data":${step}} }`;
      await server.publishText(`{"topic":"${topic}","data":${data}}`);
      expect((await stream.next()).value!.data).toEqual(JSON.parse(data));
    }
    expect(watch.count("delta")).toBeGreaterThanOrEqual(3);
    expect(watch.asked("subscribe").length).toBe(1);
  });

  test("numbers that JavaScript cannot hold come as they would without deltas, and nobody is told of an error", async () => {
    const watch = new Watch();
    const client = clientWith({ deltas: [jsonPatch], WebSocket: watch.WebSocket });
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push(error));
    const subscription = client.subscribe("large/number", { delta: "json-patch", from: "all" });
    const stream = subscription.stream();
    for (let step = 1; step <= 20; step += 1) {
      await server.publishText(`{"topic":"large/number","data":{"n":9007199254740993,"fill":"${"x".repeat(300)}","step":${step}}}`);
    }
    const told = await toldUntil(stream, 20);
    expect(told.map(({ data }) => (data as { step: number }).step)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
    expect(told.at(-1)).toMatchObject({ data: { n: 2 ** 53 } });
    await publishAll("large/number", [{ step: 21 }]);
    expect((await stream.next()).value).toMatchObject({ sequence: 21, data: { step: 21 } });
    expect([errors, subscription.error]).toEqual([[], undefined]);
  });

  test("a delta whose check is wrong: asked for again without deltas, and nothing is lost", async () => {
    const watch = new Watch((event) => (event.type === "delta" && event.sequence === 4 ? { ...event, crc: 1 } : event));
    const subscription = clientWith({ deltas: [jsonPatch], WebSocket: watch.WebSocket }).subscribe("wrong/+", { delta: "json-patch" });
    const stream = subscription.stream();
    await subscription.ready();
    for (let step = 1; step <= 10; step += 1) await publishAll("wrong/a", [book(step)]);
    const told = await toldUntil(stream, 10);
    expect(told.map(({ data }) => data)).toEqual(Array.from({ length: 10 }, (_, index) => book(index + 1)));
    const asked = watch.asked("subscribe");
    expect(asked.map(({ delta, positions }) => [delta, positions?.["wrong/a"]?.sequence])).toEqual([
      ["json-patch", undefined],
      [undefined, 3],
    ]);
  });

  test.each<DeltaForm>(["json-patch", "vcdiff"])("%s without its decoder is said at once", (delta) => {
    expect(() => clientWith().subscribe("a", { delta })).toThrow(
      expect.objectContaining({ code: 4905, message: expect.stringContaining(`@tidegate/client/${delta}`) }),
    );
  });
});

describe("pieces", () => {
  test("three megabytes come in pieces, and another topic goes on between them", async () => {
    const watch = new Watch();
    const client = clientWith({ WebSocket: watch.WebSocket });
    const [large, feed] = [client.subscribe("large/text"), client.subscribe("feed/a")];
    const [largeStream, feedStream] = [large.stream(), feed.stream()];
    await Promise.all([large.ready(), feed.ready()]);
    const text = "€uro ".repeat(500_000);
    const whole = largeStream.next();
    const published = server.publish({ topic: "large/text", text });
    // Behind the large one, in its topic, a small one waits for it.
    const after = published.then(() => publishAll("large/text", ["after"]));
    let isWhole = false;
    void whole.then(() => (isWhole = true));
    for (let number = 1; !isWhole; number += 1) {
      await publishAll("feed/a", [number]);
      expect((await feedStream.next()).value).toMatchObject({ sequence: number, data: number });
      if (watch.count("fragment") > 0 && !isWhole) expect(large.positions["large/text"]?.sequence).toBe(0);
    }
    const { value } = await whole;
    expect(value!.data === text && value!.kind === "text").toBe(true);
    await after;
    expect((await largeStream.next()).value).toMatchObject({ sequence: 2, data: "after" });
    expect(watch.count("fragment")).toBeGreaterThan(100);
    expect(watch.between("fragment", "publication")).toBeGreaterThan(0);
  });

  test("three large ones of one topic come in turns, and are told in order", async () => {
    const sequences: number[] = [];
    const note = (event: { type: string; sequence?: number }) => {
      if (event.type === "fragment") sequences.push(event.sequence!);
      return event;
    };
    const subscription = clientWith({ WebSocket: new Watch(note).WebSocket }).subscribe("large/three");
    const stream = subscription.stream();
    await subscription.ready();
    await server.publish({ publications: ["a", "b", "c"].map((text) => ({ topic: "large/three", text: text.repeat(300_000) })) });
    for (const [index, text] of ["a", "b", "c"].entries()) {
      const { sequence, data } = (await stream.next()).value!;
      expect([sequence, data === text.repeat(300_000)]).toEqual([index + 1, true]);
    }
    expect(sequences.lastIndexOf(1)).toBeGreaterThan(sequences.indexOf(2));
  });

  test.each([
    ["json", { data: { text: "é".repeat(50_000) } }],
    ["bytes", { base64: Buffer.alloc(100_000, 7).toString("base64") }],
  ])("of %s, also as a snapshot", async (kind, payload) => {
    const topic = `pieces/${kind}`;
    await server.publish({ topic, ...payload });
    const watch = new Watch();
    const { value } = await clientWith({ WebSocket: watch.WebSocket }).subscribe(topic).stream().next();
    expect(value).toMatchObject({ kind, isSnapshot: true });
    const expected = payload as { data?: unknown; base64?: string };
    expect(expected.base64 ? Buffer.from(value!.data as Uint8Array).toString("base64") : value!.data).toEqual(
      expected.base64 ?? expected.data,
    );
    expect(watch.count("fragment")).toBeGreaterThan(3);
  });
});
