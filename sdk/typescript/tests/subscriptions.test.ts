// The subscriptions' state machine: what it asks for, and what it tells of what comes.
import { describe, expect, test } from "vitest";

import { defaultTimes } from "../src/connection.js";
import type { Command, Event } from "../src/protocol.js";
import type { ReadOptions } from "../src/subscriptions.js";
import { selects } from "../src/selector.js";
import { Subscriptions } from "../src/subscriptions.js";
import { jsonPatch } from "../src/patch.js";

/**
 * Subscriptions whose commands and notices are kept, with short ways to make events. What does not say so is of one reading of
 * its topic, of all subscriptions that select it.
 */
class Driven {
  lastId = 0;
  readonly #numbers = new Map<string, number>();
  readonly #selectors: (readonly string[])[] = [];
  readonly machine = new Subscriptions(() => (this.lastId += 1), defaultTimes, () => 1, [jsonPatch]);

  hear(...events: object[]): void {
    for (const event of events) this.machine.handleEvent(this.#numbered(event) as Event, 0);
  }

  add(selectors: readonly string[], options: ReadOptions): number {
    this.#selectors.push(selectors);
    return this.machine.add(selectors, options);
  }

  #numbered(event: object): object {
    const { topic, topics } = event as { topic?: string; topics?: object[] };
    if (topics) return { ...event, topics: topics.map((each) => this.#numbered(each)) };
    if (topic === undefined) return event;
    const number = this.#numbers.get(topic) ?? this.#numbers.size;
    this.#numbers.set(topic, number);
    if (!("head" in event) || "subscriptions" in event) return { number, ...event };
    const subscriptions = this.#selectors.flatMap((each, index) => (each.some((one) => selects(one, topic)) ? [index + 1] : []));
    return { number, subscriptions, ...event };
  }

  commands(): Command[] {
    const polled: Command[] = [];
    for (let command = this.machine.pollCommand(); command; command = this.machine.pollCommand()) polled.push(command);
    return polled;
  }

  /** What was told, one line each: the subscription's index, then what. */
  notices(): string[] {
    const lines: string[] = [];
    for (let notice = this.machine.pollNotice(); notice; notice = this.machine.pollNotice()) {
      if ("state" in notice) lines.push(`${notice.of} ${notice.state}${notice.error ? ` (${notice.error.code})` : ""}`);
      else if (notice.told.type === "publication") {
        const { topic, sequence, isSnapshot } = notice.told;
        lines.push(`${notice.of} ${isSnapshot ? "snapshot" : "update"} ${topic} ${sequence}`);
      } else if (notice.told.type === "gap") {
        const { topic, from, to, reason } = notice.told;
        lines.push(`${notice.of} gap ${topic} ${from ?? ""}..${to} ${reason}`);
      } else if (notice.told.type === "resumed") {
        const { topic, recovered, missed } = notice.told;
        lines.push(`${notice.of} resumed ${topic} ${recovered ? "whole" : "not whole"}, ${missed} missed`);
      } else if (notice.told.type === "lag") lines.push(`${notice.of} lag ${notice.told.ms}`);
      else if (notice.told.type === "complete") lines.push(`${notice.of} complete`);
    }
    return lines;
  }

  /** Subscribes and has it answered; what was told until then is dropped. */
  live(selectors: string[], options: ReadOptions, ...topics: object[]): number {
    const index = this.add(selectors, options);
    this.answer(...topics);
    this.notices();
    return index;
  }

  /** Answers the last command asked. */
  answer(...topics: object[]): void {
    const last = this.commands().at(-1)!;
    this.hear({ type: "subscribed", id: last.id, selectors: [], topics });
  }
}

const at = (topic: string, head: number, start: number, more: object = {}) => ({ topic, epoch: "e1", head, start, ...more });
const publication = (topic: string, sequence: number) => ({ type: "publication", topic, sequence, data: sequence });
const gap = (topic: string, to: number, more: object) => ({ type: "gap", topic, epoch: "e1", to, reason: "history", ...more });

function connected(): Driven {
  const driven = new Driven();
  driven.machine.handleConnected();
  return driven;
}

test("a new numbering that begins with nothing is told", () => {
  const driven = connected();
  driven.live(["a"], {}, at("a", 7, 7));
  driven.hear(gap("a", 0, { epoch: "e2", reason: "epoch" }));
  expect(driven.notices()).toEqual(["1 gap a ..0 epoch"]);
});

test("a topic that is described again between the pieces of a publication loses none", () => {
  // The server does so when a reader falls far behind: it counts what it began to tell as told.
  const driven = connected();
  driven.live(["a/+"], { from: "now" }, at("a/b", 0, 0));
  const piece = (offset: number, text: string) => ({ type: "fragment", topic: "a/b", sequence: 1, total: 6, offset, kind: "text", base64: btoa(text) });
  driven.hear(piece(0, "abc"), { type: "topic", ...at("a/b", 2, 1) }, publication("a/b", 2));
  expect(driven.notices()).toEqual([]);
  driven.hear(piece(3, "def"));
  expect(driven.notices()).toEqual(["1 update a/b 1", "1 update a/b 2"]);
});

describe("states", () => {
  test("waiting, asked, live, and waiting again after a break", () => {
    const driven = new Driven();
    const index = driven.add(["a"], {});
    expect(driven.commands()).toEqual([]);
    driven.machine.handleConnected();
    driven.answer(at("a", 0, 0));
    driven.machine.handleDisconnect();
    driven.machine.remove(index);
    expect(driven.notices()).toEqual(["1 asked", "1 live", "1 waiting", "1 ended"]);
    expect(driven.commands()).toEqual([]);
    driven.machine.handleConnected();
    expect(driven.commands()).toEqual([]);
  });

  test("the options go into the command", () => {
    const driven = connected();
    const options = { from: { last: 3 }, conflation: "always", intervalMs: 500, priority: -3, filter: "data > 1", name: "desk" } as const;
    driven.add(["a", "b/+"], options);
    const [command] = JSON.parse(JSON.stringify(driven.commands()));
    expect(command).toEqual({
      type: "subscribe",
      id: 1,
      subscription: 1,
      topics: ["a", "b/+"],
      from: { last: 3 },
      conflation: "always",
      interval_ms: 500,
      priority: -3,
      filter: "data > 1",
      name: "desk",
    });
  });

  test.each([
    [4301, ["1 asked", "1 ended (4301)"], undefined],
    [4207, ["1 asked", "1 ended (4207)"], undefined],
    [4104, ["1 asked", "1 waiting (4104)"], 250],
    [4001, ["1 asked", "1 waiting (4001)"], 0],
  ])("refused with %i", (code, expected, wakeAt) => {
    const driven = connected();
    driven.add(["a"], {});
    const [{ id } = { id: 0 }] = driven.commands();
    driven.hear({ type: "refused", id, code, error: "because" });
    expect(driven.notices()).toEqual(expected);
    expect(driven.machine.wakeAt).toBe(wakeAt);
    driven.machine.handleWake(wakeAt ?? 1e9);
    expect(driven.commands().length).toBe(wakeAt === undefined ? 0 : 1);
    expect(driven.machine.wakeAt).toBe(undefined);
  });

  test("ended by the server, because its reader was too slow", () => {
    const driven = connected();
    driven.live(["a", "b"], {}, at("a", 0, 0), at("b", 0, 0));
    driven.hear({ type: "unsubscribed", selectors: ["a"] }, publication("a", 1), publication("b", 1));
    expect(driven.notices()).toEqual(["1 live (4102)", "1 update b 1"]);
    driven.hear({ type: "unsubscribed", selectors: ["b"], reason: "lagged" });
    expect(driven.machine.pollNotice()).toMatchObject({
      state: "ended",
      error: { code: 4102, message: expect.stringMatching(/^cannot .* to b: .*too slow.*; /) },
    });
  });

  test("ended before it was answered: the answer means nothing", () => {
    const driven = connected();
    driven.machine.remove(driven.add(["a"], {}));
    expect(driven.commands().map(({ type }) => type)).toEqual(["subscribe", "unsubscribe"]);
    driven.hear({ type: "subscribed", id: 1, selectors: ["a"], topics: [at("a", 1, 0)] }, publication("a", 1));
    expect(driven.notices()).toEqual(["1 asked", "1 ended"]);
  });
});

describe("what is told", () => {
  test("the snapshot is what was there before; everything else is an update", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.hear({ type: "topic", ...at("a/x", 5, 4) }, publication("a/x", 5), publication("a/x", 6));
    driven.hear({ type: "topic", ...at("a/new", 0, 0) }, publication("a/new", 1));
    expect(driven.notices()).toEqual(["1 snapshot a/x 5", "1 update a/x 6", "1 update a/new 1"]);
  });

  test("publications of a history are no snapshots", () => {
    const driven = connected();
    driven.live(["a"], { from: { last: 2 } }, at("a", 5, 3));
    driven.hear(publication("a", 4), publication("a", 5));
    expect(driven.notices()).toEqual(["1 update a 4", "1 update a 5"]);
  });

  test("lag goes to all that are live", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 0, 0));
    driven.live(["b"], {}, at("b", 0, 0));
    driven.add(["c"], {});
    driven.hear({ type: "lag", ms: 8 });
    expect(driven.notices()).toEqual(["3 asked", "1 lag 8", "2 lag 8"]);
  });

  test("events of unknown types, and of topics that nobody reads, mean nothing", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 0, 0));
    const refused = { type: "refused", code: 4200, error: "" };
    driven.hear({ type: "weather", topic: "a" }, publication("b", 1), gap("b", 3, {}), refused);
    expect(driven.notices()).toEqual([]);
  });

  test("payloads: JSON, text, bytes", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 0, 0));
    const wires = [{ data: { x: 1 } }, { data: null }, { text: "t" }, { base64: "AAH/" }];
    driven.hear(...wires.map((wire, index) => ({ type: "publication", topic: "a", sequence: index + 1, ...wire })));
    const told = wires.map(() => driven.machine.pollNotice());
    expect(told.map((notice) => notice && "told" in notice && notice.told)).toMatchObject([
      { kind: "json", data: { x: 1 } },
      { kind: "json", data: null },
      { kind: "text", data: "t" },
      { kind: "bytes", data: new Uint8Array([0, 1, 255]) },
    ]);
  });
});

describe("gaps move the position, epochs start over", () => {
  test.each([
    ["in the middle", [gap("a", 8, { from: 6 }), publication("a", 9)], ["gap a 6..8 history", "update a 9"], 9],
    ["without `from`", [gap("a", 8, { reason: "lagged" })], ["gap a 6..8 lagged"], 8],
    ["what was taken is no gap", [gap("a", 5, { from: 2 })], [], 5],
    ["only what was not taken is", [gap("a", 7, { from: 2 })], ["gap a 6..7 history"], 7],
    ["a repetition after it is dropped", [gap("a", 8, {}), publication("a", 7)], ["gap a 6..8 history"], 8],
    [
      "a new epoch begins below",
      [gap("a", 2, { epoch: "e2", reason: "epoch" }), publication("a", 3)],
      ["gap a ..2 epoch", "update a 3"],
      3,
    ],
  ])("%s", (_, events, expected, sequence) => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(...events);
    expect(driven.notices()).toEqual(expected.map((line) => `1 ${line}`));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands()).toMatchObject([{ positions: { a: { sequence } } }]);
  });
});

describe("after a break", () => {
  function broken(): Driven {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.notices();
    return driven;
  }

  test("it resumes from its positions, and asks for all of what came into being meanwhile", () => {
    const driven = broken();
    expect(driven.commands()).toMatchObject([{ from: "all", positions: { a: { epoch: "e1", sequence: 5 } } }]);
  });

  test.each([
    ["whole", at("a", 8, 5, { recovered: true }), [], ["resumed a whole, 3 missed"]],
    ["repetitions are dropped", at("a", 6, 4, { recovered: true }), [publication("a", 5), publication("a", 6)],
      ["resumed a whole, 1 missed", "update a 6"]],
    ["not whole", at("a", 9, 5, { recovered: false }), [gap("a", 7, { from: 6 }), publication("a", 8)],
      ["resumed a not whole, 4 missed", "gap a 6..7 history", "update a 8"]],
    ["another epoch, told once", at("a", 3, 1, { epoch: "e2", recovered: false }),
      [gap("a", 1, { epoch: "e2", reason: "epoch" }), publication("a", 2)],
      ["resumed a not whole, 3 missed", "gap a ..1 epoch", "update a 2"]],
    ["a gap although it was whole", at("a", 9, 5, { recovered: true }), [gap("a", 8, { from: 6 }), publication("a", 9)],
      ["resumed a whole, 4 missed", "gap a 6..8 history", "update a 9"]],
    ["a server that forgot what it told", at("a", 2, 2, { recovered: false }), [publication("a", 3)],
      ["resumed a not whole, 2 missed", "gap a ..2 epoch", "update a 3"]],
  ])("%s", (_, topic, events, expected) => {
    const driven = broken();
    driven.answer(topic);
    driven.hear(...events);
    expect(driven.notices()).toEqual(["1 live", ...expected.map((line) => `1 ${line}`)]);
  });

  test("a topic that came into being meanwhile is news, not a snapshot", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.answer();
    driven.notices();
    driven.hear({ type: "topic", ...at("a/x", 2, 0) }, publication("a/x", 1), publication("a/x", 2));
    expect(driven.notices()).toEqual(["1 update a/x 1", "1 update a/x 2"]);
  });

  test("nothing is taken before the answer", () => {
    const driven = broken();
    driven.hear(publication("a", 9), gap("a", 9, {}));
    expect(driven.notices()).toEqual([]);
  });

  test("a topic whose epoch changed while a pattern's reader was away is told as a gap", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.hear({ type: "topic", ...at("a/x", 5, 4) }, publication("a/x", 5));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.answer();
    driven.notices();
    driven.hear({ type: "topic", ...at("a/x", 0, 0, { epoch: "e2" }) }, publication("a/x", 1));
    expect(driven.notices()).toEqual(["1 resumed a/x not whole, 0 missed", "1 gap a/x ..0 epoch", "1 update a/x 1"]);
  });

  test("unsubscribed while there is no connection: it is not asked for again", () => {
    const driven = connected();
    const index = driven.live(["a"], {}, at("a", 5, 5));
    driven.machine.handleDisconnect();
    driven.machine.remove(index);
    driven.machine.handleConnected();
    expect(driven.commands()).toEqual([]);
  });

  test("positions of an earlier run are resumed from", () => {
    const driven = connected();
    driven.add(["a", "b"], { positions: { a: { epoch: "e1", sequence: 3 } } });
    const [command] = driven.commands();
    expect(command).toMatchObject({ positions: { a: { epoch: "e1", sequence: 3 } } });
    expect(command?.from).toBe(undefined);
    driven.hear({ type: "subscribed", id: 1, selectors: [], topics: [at("a", 4, 3, { recovered: true }), at("b", 2, 1)] });
    driven.hear(publication("a", 4), publication("b", 2));
    expect(driven.notices()).toEqual(["1 asked", "1 live", "1 resumed a whole, 1 missed", "1 update a 4", "1 snapshot b 2"]);
  });

  test("one position for several topics is refused here", () => {
    const from = { epoch: "e1", sequence: 3 };
    for (const selectors of [["a", "b"], ["a/+"]]) expect(() => connected().add(selectors, { from })).toThrow(TypeError);
  });
});

describe("deltas and pieces", () => {
  const damaged = (topic: string, sequence: number) => ({ type: "delta", topic, sequence, base: 0, crc: 0, kind: "json", patch: [] });
  const piece = (sequence: number, offset: number, part: string) => ({
    type: "fragment",
    topic: "a",
    sequence,
    total: 4,
    offset,
    kind: "text",
    base64: btoa(part),
  });

  test("a delta that cannot be applied has its readers ask again without deltas, from where they are", () => {
    const driven = connected();
    driven.live(["a", "b"], { delta: "json-patch" }, at("a", 0, 0), at("b", 0, 0));
    driven.live(["c"], { delta: "json-patch" }, at("c", 0, 0));
    driven.hear(publication("a", 1), damaged("a", 2), damaged("a", 3), publication("b", 1));
    expect(driven.notices()).toEqual(["1 update a 1", "1 asked"]);
    expect(driven.commands()).toMatchObject([
      { topics: ["a", "b"], delta: undefined, positions: { a: { sequence: 1 }, b: { sequence: 0 } } },
    ]);
    driven.hear({ type: "subscribed", id: 3, selectors: [], topics: [at("a", 3, 1, { recovered: true }), at("b", 1, 0, { recovered: true })] });
    driven.hear(publication("a", 2), publication("a", 3), publication("b", 1));
    expect(driven.notices()).toEqual(["1 live", "1 update a 2", "1 update a 3", "1 update b 1"]);
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands().map(({ delta }) => delta)).toEqual([undefined, "json-patch"]);
  });

  test("the position stays before what is not finished, and is resumed from", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"), publication("a", 7), gap("a", 9, {}));
    expect(driven.notices()).toEqual([]);
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands()).toMatchObject([{ positions: { a: { sequence: 5 } } }]);
  });

  test("who joins a reading has what is under way begin anew", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"));
    driven.live(["+"], { from: "now" });
    driven.hear({ type: "topic", ...at("a", 6, 5) }, piece(6, 0, "ab"), publication("a", 7), piece(6, 2, "cd"));
    expect(driven.notices()).toEqual(["1 update a 6", "2 update a 6", "1 update a 7", "2 update a 7"]);
  });

  test.each([
    ["a gap", gap("a", 2, { epoch: "e2", reason: "epoch" })],
    ["the topic's description", { type: "topic", ...at("a", 2, 2, { epoch: "e2" }) }],
  ])("a new epoch, told by %s, drops what is under way", (_, event) => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"), publication("a", 7), event, publication("a", 3), piece(6, 2, "cd"));
    expect(driven.notices()).toEqual(["1 gap a ..2 epoch", "1 update a 3"]);
  });

  test("a subscription that the server took away leaves nothing under way behind", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"), { type: "unsubscribed", selectors: ["a"], reason: "lagged" });
    driven.notices();
    driven.live(["a"], { from: "now" }, at("a", 8, 8));
    driven.hear(publication("a", 9));
    expect(driven.notices()).toEqual(["2 update a 9"]);
  });

  test.each([[["a"]], [["+"]]])("nobody reads %s any more: a later reader does not wait for what was under way", (selectors) => {
    const driven = connected();
    const index = driven.live(selectors, {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"));
    driven.machine.remove(index);
    driven.live(["a"], { from: "now" }, at("a", 6, 6));
    driven.hear(piece(6, 2, "cd"), publication("a", 7));
    expect(driven.notices()).toEqual(["2 update a 7"]);
  });
});

describe("subscriptions beside each other", () => {
  test("each is asked for under its id, from its own place, and ended by it", () => {
    const driven = connected();
    driven.live(["a"], { from: "all" }, at("a", 9, 0));
    driven.hear(publication("a", 1));
    const second = driven.add(["+"], { filter: "data > 9" });
    driven.machine.remove(second);
    expect(driven.commands()).toMatchObject([
      { type: "subscribe", subscription: 2, topics: ["+"], filter: "data > 9", positions: undefined },
      { type: "unsubscribe", subscription: 2 },
    ]);
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands()).toMatchObject([{ subscription: 1, from: "all", positions: { a: { sequence: 1 } } }]);
  });

  test("what comes under a number is told those that it serves", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5, { subscriptions: [1] }));
    driven.live(["+"], { filter: "data > 9" });
    driven.hear({ type: "topic", ...at("a", 5, 4, { number: 9, subscriptions: [2] }) });
    driven.hear({ ...publication("a", 5), number: 9 }, publication("a", 6), { ...publication("a", 10), number: 9 });
    expect(driven.notices()).toEqual(["2 snapshot a 5", "1 update a 6", "2 update a 10"]);
  });

  test.each([
    ["snapshot" as const, 4, ["2 snapshot a 5", "1 update a 6", "2 update a 6"]],
    ["now" as const, 5, ["1 update a 6", "2 update a 6"]],
    ["all" as const, 0, ["2 update a 1", "2 update a 2", "2 update a 3", "2 update a 4", "2 update a 5", "1 update a 6", "2 update a 6"]],
  ])("who joins a reading from %j is told what it lacks; nobody is told twice, nobody misses anything", (from, start, expected) => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.live(["+"], { from });
    driven.hear({ type: "topic", ...at("a", 5, start) });
    for (let sequence = start + 1; sequence <= 6; sequence += 1) driven.hear(publication("a", sequence));
    expect(driven.notices()).toEqual(expected);
  });

  test("where another begins moves nobody, and is no gap", () => {
    const driven = connected();
    driven.live(["#"], { from: "all" });
    driven.hear({ type: "topic", ...at("x", 5, 0, { subscriptions: [1] }) }, publication("x", 1));
    driven.live(["x"], { from: "now" }, at("x", 5, 5));
    for (const sequence of [2, 3, 4, 5, 6]) driven.hear(publication("x", sequence));
    expect(driven.notices()).toEqual([2, 3, 4, 5].map((number) => `1 update x ${number}`).concat("1 update x 6", "2 update x 6"));
  });

  test("a description of the new one alone takes nobody out of a reading, and moves nobody", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.live(["+"], { from: "now" });
    driven.hear({ type: "topic", ...at("a", 5, 5, { subscriptions: [2] }) }, publication("a", 6));
    driven.hear({ type: "topic", ...at("a", 9, 9, { subscriptions: [1, 2], recovered: true }) }, publication("a", 7));
    expect(driven.notices()).toEqual(["1 update a 6", "2 update a 6", "1 update a 7", "2 update a 7"]);
  });

  test("a number that is given to another topic has nothing of the old one under way", () => {
    const driven = connected();
    const index = driven.live(["a"], { delta: "json-patch" }, at("a", 5, 5));
    driven.hear({ type: "fragment", topic: "a", sequence: 6, total: 4, offset: 0, kind: "text", base64: btoa("ab") });
    driven.machine.remove(index);
    driven.live(["b"], { from: "now" }, at("b", 0, 0, { number: 0 }));
    driven.hear({ ...publication("b", 7), number: 0 });
    expect(driven.notices()).toEqual(["2 update b 7"]);
  });

  test("a gap is told each from where it is", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.live(["+"], { from: "all" });
    driven.hear({ type: "topic", ...at("a", 5, 2) }, gap("a", 7, {}));
    expect(driven.notices()).toEqual(["1 gap a 6..7 history", "2 gap a 3..7 history"]);
  });

  test("what is described for another beyond the place that was given begins nothing", () => {
    const driven = connected();
    driven.live(["+"], { positions: { a: { epoch: "e1", sequence: 3 } } });
    driven.hear({ type: "topic", ...at("a", 9, 7) }, publication("a", 8));
    driven.hear({ type: "topic", ...at("a", 9, 3, { recovered: true }) }, publication("a", 4));
    expect(driven.notices()).toEqual(["1 resumed a whole, 6 missed", "1 update a 4"]);
  });

  test("a start beyond the place that was given is a gap, if the server does not say why", () => {
    const driven = connected();
    driven.live(["a"], { from: "now" }, at("a", 5, 5));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.answer(at("a", 9, 7, { recovered: true }));
    expect(driven.notices()).toEqual(["1 waiting", "1 asked", "1 live", "1 resumed a whole, 4 missed", "1 gap a 6..7 history"]);
  });

  test("complete is told once for each answer, and not of those that ended or are asked for again", () => {
    const driven = connected();
    const index = driven.live(["a"], {}, at("a", 1, 0));
    driven.hear(publication("a", 1), { type: "complete", subscription: 1 }, { type: "complete", subscription: 7 });
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.hear({ type: "complete", subscription: 1 });
    driven.answer(at("a", 1, 1, { recovered: true }));
    driven.hear({ type: "complete", subscription: 1 });
    driven.machine.remove(index);
    driven.hear({ type: "complete", subscription: 1 });
    expect(driven.notices()).toEqual([
      "1 snapshot a 1", "1 complete", "1 waiting", "1 asked", "1 live", "1 resumed a whole, 0 missed", "1 complete", "1 ended",
    ]);
  });

  test("a server without ids is told of what does not overlap; the rest is refused here", () => {
    const driven = new Driven();
    driven.machine.handleConnected(1_000, false);
    driven.live(["a", "b/+"], {}, at("a", 1, 1));
    driven.live(["c"], {}, at("c", 1, 1));
    driven.hear({ ...publication("a", 2), number: undefined }, { ...publication("c", 2), number: undefined });
    const third = driven.add(["x", "#"], {});
    expect(driven.notices()).toEqual(["1 update a 2", "2 update c 2", "3 ended (4236)"]);
    expect([driven.machine.state(third), driven.commands()]).toEqual(["ended", []]);
    driven.machine.remove(1);
    expect(driven.commands()).toMatchObject([{ type: "unsubscribe", topics: ["a", "b/+"] }]);
  });

  test("places that have no room in one message are asked for in several", () => {
    const driven = new Driven();
    const places = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`a/${index}`, { epoch: "e1", sequence: index }]));
    driven.add(["a/+", "a/99"], { positions: places });
    const sent: Command[] = [];
    driven.machine.handleConnected(20_000);
    for (let commands = driven.commands(); commands.length > 0; commands = driven.commands()) {
      for (const command of commands) {
        sent.push(command);
        const { id, type, topics, subscription } = command as unknown as { id: number; type: string; topics: string[]; subscription: number };
        if (type !== "subscribe") continue;
        const described = topics.filter((topic) => topic !== "a/+").map((topic) => at(topic, 200, 0, { subscriptions: [1, subscription] }));
        driven.hear({ type: "subscribed", id, selectors: topics, topics: described });
        expect(driven.notices()).not.toContain("1 complete");
        driven.hear({ type: "complete", subscription });
      }
    }
    expect(Math.max(...sent.map((command) => JSON.stringify(command).length))).toBeLessThan(20_000 / 3);
    const asked = sent.filter(({ type }) => type === "subscribe");
    expect(Object.assign({}, ...asked.map(({ positions }) => positions))).toEqual(places);
    expect(asked[0]!.topics).toEqual(["a/+", "a/99"]);
    // What was named for its place alone is read by the pattern.
    const ended = sent.filter(({ type }) => type === "unsubscribe");
    expect(ended.map(({ subscription }) => subscription)).toEqual(asked.slice(1).map(({ subscription }) => subscription));
    const named = asked.slice(1).flatMap(({ topics }) => topics as string[]);
    expect(new Set(named).size).toBe(named.length);
    expect(driven.notices()).toContain("1 complete");
  });

  test("a topic may have the name of what every object has", () => {
    const driven = connected();
    driven.live(["constructor", "__proto__"], { from: "all" }, at("constructor", 0, 0), at("__proto__", 0, 0));
    driven.hear(publication("constructor", 1), publication("__proto__", 1));
    expect(driven.notices()).toEqual(["1 update constructor 1", "1 update __proto__ 1"]);
  });

  test.each<[string, (index: number) => string[]]>([
    ["topics", (index) => [`a/${index}`]],
    ["patterns", (index) => [`a/${index}/+`]],
    ["patterns and topics of theirs", (index) => [`a/${index}/+`, `a/${index}/x`]],
    ["patterns that begin with a wildcard", (index) => [`+/${index}/#`]],
  ])("work grows with their number, not with its square: %s", (_, selectors) => {
    const operations = (count: number) => {
      const driven = new Driven();
      const all = Array.from({ length: count }, (_, index) => selectors(index)).flat();
      return countOperations(() => {
        for (const selector of all) driven.add([selector], {});
        for (let round = 0; round < 2; round += 1) {
          driven.machine.handleConnected();
          serve(driven);
          all.forEach((_, index) => driven.hear({ ...publication(topicOf(all[index]!), round + 1), number: index + 1 }));
          driven.machine.handleDisconnect();
        }
        all.forEach((_, index) => driven.machine.remove(index));
        driven.notices();
      });
    };
    expect(operations(800) / operations(400)).toBeLessThan(2.2);
  });
});

/** A topic that a selector selects. */
const topicOf = (selector: string) => selector.replace(/[+#]/g, "x");

/** Answers as a server does to which each pattern is news of one topic. */
function serve(driven: Driven): void {
  for (let commands = driven.commands(); commands.length > 0; commands = driven.commands()) {
    for (const { type, id, topics, subscription } of commands) {
      if (type !== "subscribe") continue;
      const [selector] = topics as [string];
      const described = at(topicOf(selector), 0, 0, { number: subscription, subscriptions: [subscription] });
      const isPattern = /[+#]/.test(selector);
      driven.hear({ type: "subscribed", id, selectors: topics, topics: isPattern ? [] : [described] });
      if (isPattern) driven.hear({ type: "topic", ...described });
    }
  }
}

/** How many elements of maps, sets and arrays are looked up, or come to, while something is done. */
function countOperations(work: () => void): number {
  let count = 0;
  const undo: (() => void)[] = [];
  const wrap = (owner: any, name: string, cost: (self: any) => number) => {
    const original = owner[name];
    owner[name] = function (...given: unknown[]) {
      count += cost(this);
      return original.apply(this, given);
    };
    undo.push(() => (owner[name] = original));
  };
  for (const name of ["get", "has", "set", "delete"]) wrap(Map.prototype, name, () => 1);
  for (const name of ["add", "has", "delete"]) wrap(Set.prototype, name, () => 1);
  for (const owner of [Map.prototype, Set.prototype]) for (const name of ["forEach", "clear"]) wrap(owner, name, ({ size }) => size + 1);
  for (const name of ["forEach", "map", "filter", "some", "every", "flatMap", "reduce"]) wrap(Array.prototype, name, ({ length }) => length);
  const iterators = [new Map(), new Set(), []].map((each) => Object.getPrototypeOf(each[Symbol.iterator]()));
  for (const owner of iterators) wrap(owner, "next", () => 1);
  try {
    work();
  } finally {
    undo.forEach((each) => each());
  }
  return count;
}
