// The small parts: selectors, payloads, streams, handlers.
import { describe, expect, test, vi } from "vitest";

import { Emitter } from "../src/emitter.js";
import { decodePayload, encodePayload } from "../src/protocol.js";
import { overlap } from "../src/selector.js";
import { isPattern, selects } from "../src/selector.js";
import { Stream } from "../src/stream.js";
import { webSocketUrl } from "../src/websocket.js";

test.each([
  ["a/b", "a/b", true],
  ["a/b", "a/c", false],
  ["a/+", "a/b", true],
  ["a/+", "a", false],
  ["a/+", "a/b/c", false],
  ["+/b", "a/b", true],
  ["a/#", "a", true],
  ["a/#", "a/b/c", true],
  ["a/#", "b", false],
  ["#", "a/b", true],
  ["#", "$server/x", false],
  ["+/x", "$server/x", false],
  ["$server/#", "$server/x", true],
  ["a/+/#", "a", false],
  ["a/+/#", "a/b", true],
])("%s selects %s: %s", (selector, topic, expected) => {
  expect(selects(selector, topic)).toBe(expected);
  expect(isPattern(selector)).toBe(/[+#]/.test(selector));
});

test.each([
  ["ws://h:1", "ws://h:1/v1/ws"],
  ["https://h", "wss://h/v1/ws"],
  ["ws://h/behind/a/proxy?x=1", "ws://h/behind/a/proxy?x=1"],
])("%s is asked at %s", (address, url) => {
  expect(webSocketUrl(address)).toBe(url);
});

describe("payloads", () => {
  test.each([
    [{ x: [1, null] }, undefined, { data: { x: [1, null] } }],
    ["t", undefined, { data: "t" }],
    ["t", "text", { text: "t" }],
    [null, undefined, { data: null }],
    [new Uint8Array([0, 1, 255]), undefined, { base64: "AAH/" }],
  ] as const)("%j as %s", (data, kind, wire) => {
    expect(encodePayload(data, kind)).toEqual(wire);
    expect(decodePayload(wire).data).toEqual(data);
  });

  test("large bytes come back as they were", () => {
    const bytes = Uint8Array.from({ length: 300_000 }, (_, index) => index * 7);
    const back = decodePayload(encodePayload(bytes)).data as Uint8Array;
    expect(Buffer.compare(back, bytes)).toBe(0);
  });

  test.each([
    [undefined, undefined],
    [() => 1, undefined],
    [1, "text"],
    ["t", "bytes"],
  ] as const)("%s as %s cannot be published", (data, kind) => {
    expect(() => encodePayload(data, kind)).toThrow(TypeError);
  });
});

describe("streams", () => {
  const filled = (options: object, count: number) => {
    const release = vi.fn();
    const stream = new Stream<number>(options, release);
    for (let item = 1; item <= count; item += 1) stream.push(item);
    return { stream, release };
  };
  const read = async (stream: Stream<number>) => {
    const items: number[] = [];
    try {
      for await (const item of stream) items.push(item);
    } catch (error) {
      return [...items, error];
    }
    return items;
  };

  test("a full one fails after what it holds", async () => {
    const { stream, release } = filled({ capacity: 2, whenFull: "fail" }, 4);
    expect(await read(stream)).toEqual([1, 2, expect.objectContaining({ code: 4903 })]);
    expect(await read(stream)).toEqual([]);
    expect(release).toHaveBeenCalledOnce();
  });

  test("or says that it is, until one is taken", async () => {
    const { stream } = filled({ capacity: 2 }, 2);
    expect(stream.isFull).toBe(true);
    await stream.next();
    expect(stream.isFull).toBe(false);
  });

  test("or drops the oldest and counts them", async () => {
    const { stream } = filled({ capacity: 2, whenFull: "drop-oldest" }, 5);
    stream.finish();
    expect(await read(stream)).toEqual([4, 5]);
    expect(stream.dropped).toBe(3);
  });

  test("a reader that waits is served, then told of the end", async () => {
    const { stream } = filled({}, 0);
    const reading = read(stream);
    stream.push(7);
    stream.finish();
    expect(await reading).toEqual([7]);
  });

  test("an error reaches a reader that waits", async () => {
    const { stream } = filled({}, 0);
    const reading = read(stream);
    stream.fail("broken");
    expect(await reading).toEqual(["broken"]);
  });

  test("leaving the loop releases it", async () => {
    const { stream, release } = filled({}, 3);
    for await (const item of stream) if (item === 2) break;
    expect(release).toHaveBeenCalledOnce();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  test("a signal ends it at once, also before it began", async () => {
    const controller = new AbortController();
    const { stream } = filled({ signal: controller.signal }, 1);
    controller.abort("enough");
    expect(await read(stream)).toEqual(["enough"]);
    expect(await read(filled({ signal: controller.signal }, 1).stream)).toEqual(["enough"]);
  });
});

test("a handler that throws is reported, and the others are called all the same", () => {
  const report = vi.fn();
  const emitter = new Emitter<{ news: number }>(report);
  const [heard, controller] = [vi.fn(), new AbortController()];
  emitter.on("news", () => {
    throw new Error("mine");
  });
  emitter.on("news", heard, { signal: controller.signal });
  const off = emitter.on("news", heard);
  emitter.emit("news", 1);
  off();
  emitter.emit("news", 2);
  controller.abort();
  emitter.emit("news", 3);
  expect(heard.mock.calls).toEqual([[1], [1], [2]]);
  expect(report).toHaveBeenCalledTimes(3);
});

test.each<[string, string, boolean]>([
  ["a", "a", true],
  ["a", "b", false],
  ["a", "a/b", false],
  ["a", "a/#", true],
  ["a/b", "+/b", true],
  ["a/+", "+/b", true],
  ["a/+", "+/b/#", true],
  ["a/+", "b/#", false],
  ["a/+/c", "a/b", false],
  ["a/b/c", "+/+", false],
  ["#", "x/y", true],
  ["#", "$x/y", false],
  ["+/y", "$x/y", false],
  ["$x/#", "$x/+", true],
  ["a/#", "a/$x/b", true],
  ["#", "+/$x", true],
])("%s and %s overlap: %s", (one, other, expected) => {
  expect([overlap(one, other), overlap(other, one)]).toEqual([expected, expected]);
});
