// First connections that fail: what is asked, told and written down; and publications that are not waited for for ever.
import type { Server as HttpServer } from "node:http";
import { createServer } from "node:http";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { ClientOptions } from "../src/index.js";
import { enters, clientOf } from "./helpers.js";
import { Proxy } from "./proxy.js";
import { Server } from "./server.js";

let server: Server;
const open: { close(): unknown }[] = [];
const closing = <C extends { close(): unknown }>(closed: C): C => (open.push(closed), closed);

beforeAll(async () => {
  server = await Server.start();
});
afterEach(() => open.splice(0).forEach((each) => each.close()));
afterAll(() => server.remove());

/** Something that refuses every handshake, and says why only to whoever asks for the same without one; counts those. */
async function refusing(status: number, body: string): Promise<{ url: string; asked: () => number }> {
  let asked = 0;
  const refuser: HttpServer = closing(createServer((request, answer) => {
    if (request.url !== "/v1/ws") return request.socket.destroy();
    asked += 1;
    answer.writeHead(status, { "retry-after": "3" }).end(body);
  }));
  refuser.on("upgrade", (_, socket) => socket.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"));
  refuser.listen(0, "127.0.0.1");
  await once(refuser, "listening");
  return { url: `ws://127.0.0.1:${(refuser.address() as { port: number }).port}`, asked: () => asked };
}

/** A client and what it writes down. */
function noted(url: string, options: ClientOptions = {}) {
  const lines: string[] = [];
  return { client: closing(clientOf(url, { logger: { warn: (text) => lines.push(text) }, ...options })), lines };
}

const foreign = JSON.stringify({ code: 4302, error: "cannot let this page in: put its origin under [access]" });

test.each([["websocket"], ["sse"], ["poll"]] as const)("a handshake over %s that is refused for the origin ends the wait with the server's text", async (name) => {
  const { url, asked } = await refusing(403, foreign);
  const { client, lines } = noted(url, { transports: [name], token: async () => "any" });
  const reading = client.subscribe("a").ready();
  const outcomes = await Promise.allSettled([client.ready(), reading, client.publish("a", 1)]);
  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ reason: { code: 4302, message: expect.stringContaining("put its origin under") } });
  }
  expect([client.state, asked()]).toEqual(["stopped", 1]);
  expect(lines).toEqual([expect.stringMatching(/^Tidegate: no connection to ws:.*put its origin under.*\(4302\); it is not tried again$/)]);
});

test.each([
  ["it would be let in", 400, JSON.stringify({ code: 4210, error: "no upgrade" }), 4904],
  ["somebody else answers", 403, "<h1>Forbidden</h1>", 4904],
  ["a code of no server", 403, JSON.stringify({ code: 4905, error: "no" }), 4904],
  ["the server is full", 503, JSON.stringify({ code: 4100, error: "full" }), 4100],
])("a handshake that failed otherwise is tried again: %s", async (_, status, body, code) => {
  const { url, asked } = await refusing(status, body);
  const { client } = noted(url);
  const waiting = new Promise<{ code: number; ms: number }>((resolve) =>
    client.on("state", ({ state, error, retryInMs }) => state === "waiting" && resolve({ code: error!.code, ms: retryInMs! })));
  client.connect();
  const told = await waiting;
  expect([told.code, asked()]).toEqual([code, 1]);
  // Whoever is full says for how long.
  expect(told.ms >= 3_000).toBe(code === 4100);
});

test("one that fails is written down once, with the address, the reason, and what comes next", async () => {
  const { client, lines } = noted("ws://127.0.0.1:1", { transports: ["websocket", "sse"] });
  client.connect();
  for (let attempts = 0; attempts < 3; attempts += 1) await enters(client, "waiting");
  expect(lines).toEqual([expect.stringMatching(/^Tidegate: no connection to ws:\/\/127\.0\.0\.1:1: .*\(4904\); it is tried again until there is a connection$/)]);
});

test("a break after a first connection is not written down, nor is anything for `logger: false`", async () => {
  const proxy = closing(await Proxy.open(server.port));
  const { client, lines } = noted(proxy.url);
  await client.ready();
  proxy.cut();
  await enters(client, "waiting");
  expect(lines).toEqual([]);
  const silent = closing(clientOf("ws://127.0.0.1:1", { logger: false }));
  silent.connect();
  await enters(silent, "waiting");
});

test("a publication that no connection comes for is given up, and never sent", async () => {
  const proxy = closing(await Proxy.open(server.port));
  const { client } = noted(proxy.url, { publishMs: 50 });
  const other = closing(clientOf(server.url));
  proxy.cut();
  await expect(client.publish("late/a", 1, { key: "k" })).rejects.toMatchObject({ code: 4906 });
  proxy.mend();
  await client.publish("late/a", 2, { timeoutMs: Infinity });
  const { publications } = await other.history("late/a");
  expect(publications.map(({ data }) => data)).toEqual([2]);
});

test("one whose answer does not come is given up, and may have been kept", async () => {
  const proxy = closing(await Proxy.open(server.port));
  const { client } = noted(proxy.url, { publishMs: Infinity });
  const other = closing(clientOf(server.url));
  await client.ready();
  proxy.mute();
  const doubtful = client.publish("late/b", 1, { timeoutMs: 200 });
  await expect(doubtful).rejects.toMatchObject({ code: 4900, message: expect.stringContaining("within 200 ms") });
  while ((await other.history("late/b")).publications.length === 0);
});
