// Less data, same truth: what a subscription and a client may ask for, against the real server.
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { ClientOptions } from "../src/index.js";
import { clientOf, Heard } from "./helpers.js";
import { Server } from "./server.js";

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
