// Networks that get in the way, and what the client makes of them: it ends with exactly the server's state.
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { Client, ClientOptions } from "../src/index.js";
import { clientOf, enters, Heard } from "./helpers.js";
import type { Manners } from "./middlebox.js";
import { Middlebox } from "./middlebox.js";
import { Server } from "./server.js";

let server: Server;
const boxes: Middlebox[] = [];
const clients: Client[] = [];
beforeAll(async () => {
  server = await Server.start('[store]\npath = "{store}"\n[[topics]]\nselector = "#"\nack = "disk"\n');
});
afterEach(() => {
  clients.splice(0).forEach((client) => client.close());
  boxes.splice(0).forEach((box) => box.close());
});
afterAll(() => server.remove());

async function behind(manners: Manners): Promise<Middlebox> {
  const box = await Middlebox.open(server.port, manners);
  boxes.push(box);
  return box;
}

/** A client that may use all transports. */
function walker(url: string, options: ClientOptions = {}): Client {
  const client = clientOf(url, { transports: ["websocket", "sse", "poll"], fallbackMs: 300, ...options });
  clients.push(client);
  return client;
}

/** The transports that a client tells, as they change. */
function told(client: Client): string[] {
  const names: string[] = [];
  client.on("transport", ({ transport }) => names.push(transport));
  return names;
}

/** Publishes `count`, by somebody else, and by the client now and then; every one must be heard, once and in order. */
async function checkExact(client: Client, topic: string, count: number): Promise<void> {
  const heard = new Heard(client.subscribe(topic, { from: "all" }));
  for (let index = 1; index <= count; index += 1) {
    if (index % 7 === 0) await client.publish(topic, index, { key: `${topic}-${index}` });
    else await server.publish({ topic, data: index });
  }
  const lines: string[] = [];
  while (lines.length < count) lines.push(...(await heard.take(1)).filter((line) => !line.startsWith("resumed")));
  expect(lines).toEqual(Array.from({ length: count }, (_, index) => `update ${topic} ${index + 1} ${index + 1}`));
}

test.each<[string, Manners, string]>([
  ["nothing in the way", {}, "websocket"],
  ["no WebSocket", { upgrade: "refuse" }, "sse"],
  ["a WebSocket that opens, and is not heard", { upgrade: "swallow" }, "sse"],
  ["no WebSocket, and responses held back until they end", { upgrade: "refuse", passedBytes: 0 }, "poll"],
  ["no WebSocket, and responses held back from the first answer on", { upgrade: "refuse", holdsAnswers: true }, "poll"],
])("%s", async (name, manners, transport) => {
  const box = await behind(manners);
  // What is held back from the first answer on is found when that does not come; on a busy machine the others take their time, too.
  const client = walker(box.url, { fallbackMs: 1_500 });
  const names = told(client);
  await checkExact(client, `through/${name.length}`, 30);
  expect(client.transport).toBe(transport);
  expect(names.at(-1)).toBe(transport);
});

test.each<[string, Manners]>([
  ["every connection is cut after 150 ms", { cutAfterMs: 150 }],
  ["every connection is cut after 150 ms, and there is no WebSocket", { cutAfterMs: 150, upgrade: "refuse" }],
])("%s", async (name, manners) => {
  const box = await behind(manners);
  const client = walker(box.url);
  const heard = checkExact(client, `cut/${name.length}`, 400);
  await heard;
  expect(["sse", "poll"]).toContain(client.transport);
});

test("the next client begins with what got through", async () => {
  const box = await behind({ upgrade: "refuse" });
  await walker(box.url).ready();
  box.asked.length = 0;
  await walker(box.url).ready();
  expect(box.asked).not.toContain("upgrade");
});

test("what gets through again is gone back to, at no cost", async () => {
  const box = await behind({ upgrade: "refuse", passedBytes: 0 });
  const client = walker(box.url, { checkMs: 200 });
  const names = told(client);
  await client.ready();
  expect(client.transport).toBe("poll");
  const back = new Promise<void>((resolve) => {
    client.on("transport", ({ transport }) => transport === "websocket" && resolve());
  });
  const heard = new Heard(client.subscribe("back", { from: "all" }));
  let count = 0;
  // Without keys: an answer that is lost on the way over would fail it.
  const publishing = (async () => {
    while (client.transport !== "websocket") await client.publish("back", (count += 1));
    await client.publish("back", (count += 1));
  })();
  box.manners.upgrade = "carry";
  await back;
  await publishing;
  const lines = (await heard.take(count)).filter((line) => !line.startsWith("resumed"));
  if (lines.length < count) lines.push(...(await heard.take(count - lines.length)));
  expect(lines).toEqual(Array.from({ length: count }, (_, index) => `update back ${index + 1} ${index + 1}`));
  expect(names).toEqual(["poll", "websocket"]);
});

test("a transport that is forced is the only one", async () => {
  const box = await behind({});
  const client = walker(box.url, { transports: ["poll"] });
  await client.ready();
  expect(client.transport).toBe("poll");
  expect(box.asked).not.toContain("upgrade");
});

test("a server that is away is waited for, not walked away from for good", async () => {
  const own = await Server.start();
  const client = walker(own.url);
  await client.ready();
  await own.kill();
  for (let waits = 0; waits < 12; waits += 1) await enters(client, "waiting");
  await own.start();
  await client.ready();
  expect(client.transport).toBeDefined();
  await own.remove();
});
