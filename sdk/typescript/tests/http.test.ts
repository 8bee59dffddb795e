// The transports over plain HTTP against the real server: what a WebSocket would have told, they tell.
import { once } from "node:events";
import { createServer } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { TransportName } from "../src/index.js";
import { clientOf, enters, Heard } from "./helpers.js";
import { Server } from "./server.js";

let server: Server;
beforeAll(async () => {
  server = await Server.start("[limits]\nstream_ms_max = 1000\npoll_ms = 300\npoll_silence_ms = 1500\n");
});
afterAll(() => server.remove());

const over: TransportName[] = ["sse", "poll"];

test.each(over)("%s: snapshot, updates, publishing in order, large payloads", async (name) => {
  const client = clientOf(server.url, { transports: [name] });
  const topic = `${name}/a`;
  await server.publish({ topic, data: "é\n1" });
  const heard = new Heard(client.subscribe(topic));
  expect(await heard.take(1)).toEqual([`snapshot ${topic} 1 "é\\n1"`]);
  expect(client.transport).toBe(name);
  const published = await Promise.all(Array.from({ length: 50 }, (_, index) => client.publish(topic, index)));
  expect(published.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 50 }, (_, index) => index + 2));
  expect(await heard.take(50)).toEqual(published.map(({ sequence }) => `update ${topic} ${sequence} ${sequence - 2}`));
  const large = "ü".repeat(300_000);
  await client.publish(topic, large, { kind: "text" });
  expect(await heard.take(1)).toEqual([`update ${topic} 52 ${JSON.stringify(large)}`]);
  client.close();
});

test("a response that went on long enough is asked for again at once, and nothing is missed", async () => {
  const client = clientOf(server.url, { transports: ["sse"], firstMs: 5_000, lastMs: 5_000 });
  const heard = new Heard(client.subscribe("rolled", { from: "all" }));
  await client.ready();
  const errors: (number | undefined)[] = [];
  client.on("state", ({ state, error }) => state === "waiting" && errors.push(error?.code));
  for (let round = 0; round < 2; round += 1) {
    await enters(client, "waiting");
    await server.publish({ topic: "rolled", data: round });
    await enters(client, "connected");
  }
  expect([...new Set(errors)]).toEqual([4003]);
  const lines: string[] = [];
  while (lines.length < 2) lines.push(...(await heard.take(1)).filter((line) => !line.startsWith("resumed")));
  expect(lines).toEqual(["update rolled 1 0", "update rolled 2 1"]);
  client.close();
});

test("a connection that is polled for long gathers nothing for each poll", async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => warnings.push(warning.message);
  process.on("warning", note);
  const client = clientOf(server.url, { transports: ["poll"] });
  await client.ready();
  // Node warns from 1,500 listeners on; each ping is a request up, and a poll that ends.
  for (let count = 0; count < 850; count += 1) await client.ping();
  client.close();
  process.off("warning", note);
  expect(warnings).toEqual([]);
});

test.each([
  ["seconds", () => "7"],
  ["a date", () => new Date(Date.now() + 9_000).toUTCString()],
])("a response that says when to come back, in %s, is obeyed", async (_, after) => {
  const full = createServer((_, response) => response.writeHead(503, { "retry-after": after() }).end("full"));
  full.listen(0, "127.0.0.1");
  await once(full, "listening");
  const client = clientOf(`http://127.0.0.1:${(full.address() as { port: number }).port}`, { transports: ["poll"] });
  const waiting = new Promise<number>((resolve) => {
    client.on("state", ({ state, retryInMs }) => state === "waiting" && resolve(retryInMs!));
  });
  client.connect();
  expect(await waiting).toBeGreaterThanOrEqual(7_000);
  client.close();
  full.close();
});

test.each(["websocket", ...over] as const)("%s: a loop that does not keep up has nothing more read, and ends nowhere", async (name) => {
  const client = clientOf(server.url, { transports: [name] });
  const topics = Array.from({ length: 3_000 }, (_, index) => `${name}/many/${index}`);
  for (let at = 0; at < topics.length; at += 1_000) await server.publish({ topics: topics.slice(at, at + 1_000), data: "x".repeat(500) });
  const subscription = client.subscribe(`${name}/many/+`);
  const stream = subscription.stream({ capacity: 10 });
  await subscription.ready();
  const told = new Set([((await stream.next()).value as { topic: string }).topic]);
  // Who waits for an answer gets it, however much lies before it.
  await client.ping();
  expect(Object.values(subscription.positions).filter(({ sequence }) => sequence === 1).length).toBe(1);
  for await (const { topic } of stream) {
    told.add(topic);
    if (told.size === topics.length) break;
  }
  expect([...told].sort()).toEqual([...topics].sort());
  client.close();
});
