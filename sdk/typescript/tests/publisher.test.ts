// Publishing without a connection, and reading a history page by page.
import type { IncomingMessage, Server as HttpServer, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { TidegateError } from "../src/index.js";
import { Publisher } from "../src/publisher.js";
import { clientOf } from "./helpers.js";
import { Proxy } from "./proxy.js";
import { Server } from "./server.js";

const config = `
[access]
anonymous = "read"
[[access.tokens]]
token = "writer"
name = "writer"
publish = ["#"]
subscribe = ["#"]
[[topics]]
selector = "long/#"
history_count = 1000
`;

let server: Server;
const open: { close(): unknown }[] = [];
const closing = <C extends { close(): unknown }>(closed: C): C => (open.push(closed), closed);
const http = (url: string) => url.replace("ws", "http");

beforeAll(async () => {
  server = await Server.start(config);
});
afterEach(() => open.splice(0).forEach((each) => each.close()));
afterAll(() => server.remove());

type Answer = (body: { publications: { topic: string; key?: string }[] }, answer: ServerResponse, request: IncomingMessage) => void;

/** A server that answers each request in turn, and the last ones as the last. */
async function scripted(...answers: Answer[]): Promise<{ url: string; keys: (string | undefined)[][] }> {
  const keys: (string | undefined)[][] = [];
  const made: HttpServer = closing(createServer(async (request, answer) => {
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    keys.push(body.publications.map(({ key }: { key?: string }) => key));
    answers[Math.min(keys.length, answers.length) - 1]!(body, answer, request);
  }));
  made.listen(0, "127.0.0.1");
  await once(made, "listening");
  return { url: `http://127.0.0.1:${(made.address() as { port: number }).port}`, keys };
}

const kept = (topic: string) => ({ topic, epoch: "e", sequence: 1, level: "memory" });
const takes: Answer = ({ publications }, answer) => answer.end(JSON.stringify({ results: publications.map(({ topic }) => kept(topic)) }));
const breaks: Answer = (_, __, { socket }) => socket.destroy();
const refuses = (status: number, code: number, fields: Record<string, string> = {}): Answer => (_, answer) =>
  answer.writeHead(status, fields).end(JSON.stringify({ code, error: "because" }));

test("what it publishes is kept where it says, once for each key", async () => {
  const publisher = new Publisher(http(server.url), { token: "writer" });
  expect(await publisher.publish("p/a", { x: 1 })).toEqual({ topic: "p/a", epoch: expect.any(String), sequence: 1, level: "memory" });
  const second = await publisher.publish("p/a", "text", { kind: "text", key: "two", expect: 1 });
  expect(await publisher.publish("p/a", "text", { kind: "text", key: "two", expect: 1 })).toEqual(second);
  await expect(publisher.publish("p/a", 3, { expect: 7 })).rejects.toMatchObject({ code: 4217 });
  const outcomes = await publisher.publishAll([
    { topic: "p/a", data: new Uint8Array([1, 255]) },
    { topic: "p//a", data: 4 },
    { topic: "p/b", data: 5 },
  ]);
  expect(outcomes).toMatchObject([{ topic: "p/a", sequence: 3 }, { code: 4202 }, { topic: "p/b", sequence: 1 }]);
  expect(outcomes[1]).toBeInstanceOf(TidegateError);
});

test("many go in as few requests as they fit into, in order", async () => {
  const publisher = new Publisher(http(server.url), { token: "writer" });
  const drafts = Array.from({ length: 2_500 }, (_, data) => ({ topic: "p/many", data }));
  const outcomes = (await publisher.publishAll(drafts)) as { sequence: number }[];
  expect(outcomes.map(({ sequence }) => sequence)).toEqual(drafts.map((_, index) => index + 1));
  const { url, keys } = await scripted(takes);
  await new Publisher(url).publishAll([...drafts, { topic: "p/large", data: "x".repeat(600_000) }]);
  expect(keys.map(({ length }) => length)).toEqual([1_000, 1_000, 500, 1]);
});

test.each([
  ["a connection that breaks", breaks],
  ["a server that is stopping", refuses(503, 4000)],
  ["a server that is full", refuses(503, 4106)],
  ["an answer of another server", ((_, answer) => answer.end('{"ok":true}')) as Answer],
  ["an answer about fewer", ((_, answer) => answer.end('{"results":[]}')) as Answer],
  ["a proxy without its server", ((_, answer) => answer.writeHead(502).end("bad gateway")) as Answer],
])("it is sent again after %s, with the same key", async (_, answer) => {
  const { url, keys } = await scripted(answer, takes);
  expect(await new Publisher(url).publish("a", 1)).toEqual(kept("a"));
  expect(keys.length).toBe(2);
  expect(keys[0]![0]).toMatch(/^[0-9a-f]{32}-1$/);
  expect(keys[1]).toEqual(keys[0]);
});

test("of several, only those are sent again that were put off", async () => {
  const half: Answer = ({ publications }, answer) =>
    answer.end(JSON.stringify({ results: [kept(publications[0]!.topic), { code: 4105, error: "later" }, { code: 4301, error: "no" }] }));
  const { url, keys } = await scripted(half, takes);
  const drafts = ["a", "b", "c"].map((topic) => ({ topic, data: 1, key: topic }));
  expect(await new Publisher(url).publishAll(drafts)).toMatchObject([{ topic: "a" }, { topic: "b" }, { code: 4301 }]);
  expect(keys).toEqual([["a", "b", "c"], ["b"]]);
});

test("without a key what may have been kept is not sent again", async () => {
  const { url, keys } = await scripted(breaks, takes);
  await expect(new Publisher(url, { keys: false }).publish("a", 1)).rejects.toMatchObject({ code: 4900 });
  expect(keys).toEqual([[undefined]]);
});

test.each<[string, Answer | undefined, number]>([
  ["nobody is there", undefined, 4906],
  // It is not asked again before the time is up: in the middle of a request nobody knows.
  ["the server puts it off", refuses(503, 4001, { "retry-after": "60" }), 4906],
  ["the answer does not come", () => {}, 4900],
])("it is given up when its time is up: %s", async (_, answer, code) => {
  const { url } = await scripted(answer ?? (() => {}));
  if (!answer) open.pop()!.close();
  const begun = performance.now();
  // Not ended by the time that is up: on a busy machine it takes until after that to find out that nobody is there.
  const patient: typeof fetch = (asked, init) => fetch(asked, { ...init, signal: null });
  const publisher = new Publisher(url, answer ? {} : { fetch: patient });
  await expect(publisher.publish("a", 1, { timeoutMs: 2_000 })).rejects.toMatchObject({ code });
  expect(performance.now() - begun).toBeGreaterThanOrEqual(1_990);
});

test("a refusal ends it at once, and so does a signal", async () => {
  const refusing = await scripted(refuses(403, 4301));
  await expect(new Publisher(refusing.url).publish("a", 1)).rejects.toMatchObject({ code: 4301 });
  expect(refusing.keys.length).toBe(1);
  const { url } = await scripted(() => {});
  const aborter = new AbortController();
  const published = new Publisher(url).publish("a", 1, { signal: aborter.signal });
  aborter.abort(new Error("enough"));
  await expect(published).rejects.toThrow("enough");
});

test("a token that is refused is asked for again", async () => {
  const given: unknown[] = [];
  const token = ({ refused }: { refused: unknown }) => (given.push(refused), given.length === 1 ? "stale" : "writer");
  const publisher = new Publisher(http(server.url), { token });
  expect(await publisher.publish("p/token", 1)).toMatchObject({ sequence: 1 });
  expect(given).toMatchObject([undefined, { code: 4300 }]);
});

test("so many requests are made at a time, over connections that stay, and so many wait", async () => {
  const sockets = new Set<unknown>();
  let [now, most] = [0, 0];
  const slow: Answer = (body, answer, request) => {
    sockets.add(request.socket);
    most = Math.max(most, (now += 1));
    setTimeout(() => ((now -= 1), takes(body, answer, request)), 20);
  };
  const { url } = await scripted(slow);
  const publisher = new Publisher(url, { requestsMax: 2, queueMax: 10 });
  const outcomes = await Promise.allSettled(Array.from({ length: 13 }, (_, data) => publisher.publish("a", data)));
  expect(outcomes.map((outcome) => (outcome.status === "fulfilled" ? "kept" : outcome.reason.code))).toEqual([...Array(12).fill("kept"), 4902]);
  expect(most).toBe(2);
  expect(sockets.size).toBeLessThanOrEqual(6);
});

test("a network that is cut for a while costs time only", async () => {
  const proxy = closing(await Proxy.open(server.port));
  const publisher = new Publisher(http(proxy.url), { token: "writer", publishMs: 60_000 });
  const publishing = Array.from({ length: 50 }, (_, data) => publisher.publish("p/cut", data));
  proxy.cut();
  setTimeout(() => proxy.mend(), 300);
  await Promise.all(publishing);
  const reader = closing(clientOf(server.url));
  const { publications } = await reader.history("p/cut");
  expect(publications.map(({ data }) => data as number).sort((one, other) => one - other)).toEqual(Array.from({ length: 50 }, (_, data) => data));
});

test("a history is read page by page, as far as it went when it began", async () => {
  const publisher = new Publisher(http(server.url), { token: "writer" });
  await publisher.publishAll(Array.from({ length: 25 }, (_, data) => ({ topic: "long/a", data })));
  const reader = closing(clientOf(server.url));
  const asked: unknown[] = [];
  const history = reader.history.bind(reader);
  reader.history = ((topic: string, options: object) => (asked.push(options), history(topic, options))) as typeof reader.history;
  const read: number[] = [];
  for await (const { data } of reader.readHistory("long/a", { after: 5, pageSize: 10 })) {
    if (read.push(data) === 1) await publisher.publish("long/a", "more");
    // No page is fetched before the one before was read.
    expect(asked.length).toBe(Math.ceil(read.length / 10));
  }
  expect(read).toEqual(Array.from({ length: 20 }, (_, index) => index + 5));
  for await (const _ of reader.readHistory("long/none")) throw new Error("there is nothing");
});

test("a numbering that begins anew while it is read is an error, not another history", async () => {
  const reader = closing(clientOf(server.url));
  const page = { topic: "a", epoch: "one", head: 9, start: 0, publications: [{ sequence: 1, timeMs: 0, kind: "json", data: 1 }] };
  let epoch = "one";
  reader.history = (async () => ({ ...page, epoch })) as unknown as typeof reader.history;
  const read = reader.readHistory("a");
  await read.next();
  epoch = "two";
  await expect(read.next()).rejects.toMatchObject({ code: 4907 });
});

test("a subscription may start at a time, also where another reads the topic already", async () => {
  const client = closing(clientOf(server.url, { token: "writer" }));
  await client.publish("long/since", "old");
  await new Promise((resolve) => setTimeout(resolve, 20));
  const { publications } = await client.history("long/since");
  const since = publications[0]!.timeMs + 1;
  for (const data of ["new", "newer"]) await client.publish("long/since", data);
  const first = client.subscribe("long/since", { from: { since } }).stream();
  expect([(await first.next()).value.data, (await first.next()).value.data]).toEqual(["new", "newer"]);
  const second = client.subscribe("long/since", { from: { since } }).stream();
  expect([(await second.next()).value.data, (await second.next()).value.data]).toEqual(["new", "newer"]);
});
