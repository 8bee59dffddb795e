// The subscriptions' state machine: what it asks for, and what it tells of what comes.
import { describe, expect, test } from "vitest";

import { defaultTimes } from "../src/connection.js";
import type { Command, Event } from "../src/protocol.js";
import type { ReadOptions } from "../src/subscriptions.js";
import { Subscriptions } from "../src/subscriptions.js";
import { jsonPatch } from "../src/patch.js";

/** Subscriptions whose commands and notices are kept, with short ways to make events. */
class Driven {
  lastId = 0;
  readonly machine = new Subscriptions(() => (this.lastId += 1), defaultTimes, () => 1, [jsonPatch]);

  hear(...events: object[]): void {
    for (const event of events) this.machine.handleEvent(event as Event, 0);
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
    }
    return lines;
  }

  /** Subscribes and has it answered; what was told until then is dropped. */
  live(selectors: string[], options: ReadOptions, ...topics: object[]): number {
    const index = this.machine.add(selectors, options);
    this.answer(...topics);
    this.notices();
    return index;
  }

  /** Answers the last command asked; a ping before that, if it waits for one. */
  answer(...topics: object[]): void {
    let last = this.commands().at(-1)!;
    if (last.type === "ping") {
      this.hear({ type: "pong", id: last.id });
      last = this.commands().at(-1)!;
    }
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
  expect(driven.notices()).toEqual(["0 gap a ..0 epoch"]);
});

test("a topic that is described again between the pieces of a publication loses none", () => {
  // The server does so when a reader falls far behind: it counts what it began to tell as told.
  const driven = connected();
  driven.live(["a/+"], { from: "now" }, at("a/b", 0, 0));
  const piece = (offset: number, text: string) => ({ type: "fragment", topic: "a/b", sequence: 1, total: 6, offset, kind: "text", base64: btoa(text) });
  driven.hear(piece(0, "abc"), { type: "topic", ...at("a/b", 2, 1) }, publication("a/b", 2));
  expect(driven.notices()).toEqual([]);
  driven.hear(piece(3, "def"));
  expect(driven.notices()).toEqual(["0 update a/b 1", "0 update a/b 2"]);
});

describe("states", () => {
  test("waiting, asked, live, and waiting again after a break", () => {
    const driven = new Driven();
    const index = driven.machine.add(["a"], {});
    expect(driven.commands()).toEqual([]);
    driven.machine.handleConnected();
    driven.answer(at("a", 0, 0));
    driven.machine.handleDisconnect();
    driven.machine.remove(index);
    expect(driven.notices()).toEqual(["0 asked", "0 live", "0 waiting", "0 ended"]);
    expect(driven.commands()).toEqual([]);
    driven.machine.handleConnected();
    expect(driven.commands()).toEqual([]);
  });

  test("the options go into the command", () => {
    const driven = connected();
    const options = { from: { last: 3 }, conflation: "always", intervalMs: 500, priority: -3, filter: "data > 1", name: "desk" } as const;
    driven.machine.add(["a", "b/+"], options);
    const [command] = JSON.parse(JSON.stringify(driven.commands()));
    expect(command).toEqual({
      type: "subscribe",
      id: 1,
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
    [4301, ["0 asked", "0 ended (4301)"], undefined],
    [4207, ["0 asked", "0 ended (4207)"], undefined],
    [4104, ["0 asked", "0 waiting (4104)"], 250],
    [4001, ["0 asked", "0 waiting (4001)"], 0],
  ])("refused with %i", (code, expected, wakeAt) => {
    const driven = connected();
    driven.machine.add(["a"], {});
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
    expect(driven.notices()).toEqual(["0 live (4102)", "0 update b 1"]);
    driven.hear({ type: "unsubscribed", selectors: ["b"], reason: "lagged" });
    expect(driven.machine.pollNotice()).toMatchObject({
      state: "ended",
      error: { code: 4102, message: expect.stringMatching(/^cannot .* to b: .*too slow.*; /) },
    });
  });

  test("ended before it was answered: the answer means nothing", () => {
    const driven = connected();
    driven.machine.remove(driven.machine.add(["a"], {}));
    expect(driven.commands().map(({ type }) => type)).toEqual(["subscribe", "unsubscribe"]);
    driven.hear({ type: "subscribed", id: 1, selectors: ["a"], topics: [at("a", 1, 0)] }, publication("a", 1));
    expect(driven.notices()).toEqual(["0 asked", "0 ended"]);
  });
});

describe("what is told", () => {
  test("the snapshot is what was there before; everything else is an update", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.hear({ type: "topic", ...at("a/x", 5, 4) }, publication("a/x", 5), publication("a/x", 6));
    driven.hear({ type: "topic", ...at("a/new", 0, 0) }, publication("a/new", 1));
    expect(driven.notices()).toEqual(["0 snapshot a/x 5", "0 update a/x 6", "0 update a/new 1"]);
  });

  test("publications of a history are no snapshots", () => {
    const driven = connected();
    driven.live(["a"], { from: { last: 2 } }, at("a", 5, 3));
    driven.hear(publication("a", 4), publication("a", 5));
    expect(driven.notices()).toEqual(["0 update a 4", "0 update a 5"]);
  });

  test("lag goes to the readers of the topic, or to all", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 0, 0));
    driven.live(["b"], {}, at("b", 0, 0));
    driven.hear({ type: "lag", topic: "b", ms: 7 }, { type: "lag", ms: 8 });
    expect(driven.notices()).toEqual(["1 lag 7", "0 lag 8", "1 lag 8"]);
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
    expect(driven.notices()).toEqual(expected.map((line) => `0 ${line}`));
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
    expect(driven.notices()).toEqual(["0 live", ...expected.map((line) => `0 ${line}`)]);
  });

  test("a topic that came into being meanwhile is news, not a snapshot", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    driven.answer();
    driven.notices();
    driven.hear({ type: "topic", ...at("a/x", 2, 0) }, publication("a/x", 1), publication("a/x", 2));
    expect(driven.notices()).toEqual(["0 update a/x 1", "0 update a/x 2"]);
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
    expect(driven.notices()).toEqual(["0 resumed a/x not whole, 0 missed", "0 gap a/x ..0 epoch", "0 update a/x 1"]);
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
    driven.machine.add(["a", "b"], { positions: { a: { epoch: "e1", sequence: 3 } } });
    const [command] = driven.commands();
    expect(command).toMatchObject({ positions: { a: { epoch: "e1", sequence: 3 } } });
    expect(command?.from).toBe(undefined);
    driven.hear({ type: "subscribed", id: 1, selectors: [], topics: [at("a", 4, 3, { recovered: true }), at("b", 2, 1)] });
    driven.hear(publication("a", 4), publication("b", 2));
    expect(driven.notices()).toEqual(["0 asked", "0 live", "0 resumed a whole, 1 missed", "0 update a 4", "0 snapshot b 2"]);
  });

  test("one position for several topics is refused here", () => {
    const from = { epoch: "e1", sequence: 3 };
    for (const selectors of [["a", "b"], ["a/+"]]) expect(() => connected().machine.add(selectors, { from })).toThrow(TypeError);
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
    expect(driven.notices()).toEqual(["0 update a 1", "0 asked"]);
    expect(driven.commands()).toMatchObject([
      { topics: ["a", "b"], delta: undefined, positions: { a: { sequence: 1 }, b: { sequence: 0 } } },
    ]);
    driven.hear({ type: "subscribed", id: 3, selectors: [], topics: [at("a", 3, 1, { recovered: true }), at("b", 1, 0, { recovered: true })] });
    driven.hear(publication("a", 2), publication("a", 3), publication("b", 1));
    expect(driven.notices()).toEqual(["0 live", "0 update a 2", "0 update a 3", "0 update b 1"]);
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

  test("an answer that restarts the topic keeps what is under way", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"));
    driven.live(["+"], { from: "now" });
    driven.hear({ type: "topic", ...at("a", 6, 5) }, piece(6, 0, "ab"), publication("a", 7), piece(6, 2, "cd"));
    expect(driven.notices()).toEqual(["0 update a 6", "1 update a 6", "0 update a 7", "1 update a 7"]);
  });

  test.each([
    ["a gap", gap("a", 2, { epoch: "e2", reason: "epoch" })],
    ["the topic's description", { type: "topic", ...at("a", 2, 2, { epoch: "e2" }) }],
  ])("a new epoch, told by %s, drops what is under way", (_, event) => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"), publication("a", 7), event, publication("a", 3), piece(6, 2, "cd"));
    expect(driven.notices()).toEqual(["0 gap a ..2 epoch", "0 update a 3"]);
  });

  test("a subscription that the server took away leaves nothing under way behind", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"), { type: "unsubscribed", selectors: ["a"], reason: "lagged" });
    driven.notices();
    driven.live(["a"], { from: "now" }, at("a", 8, 8));
    driven.hear(publication("a", 9));
    expect(driven.notices()).toEqual(["1 update a 9"]);
  });

  test.each([[["a"]], [["+"]]])("nobody reads %s any more: a later reader does not wait for what was under way", (selectors) => {
    const driven = connected();
    const index = driven.live(selectors, {}, at("a", 5, 5));
    driven.hear(piece(6, 0, "ab"));
    driven.machine.remove(index);
    driven.live(["a"], { from: "now" }, at("a", 6, 6));
    driven.hear(piece(6, 2, "cd"), publication("a", 7));
    expect(driven.notices()).toEqual(["1 update a 7"]);
  });
});

describe("subscriptions that overlap", () => {
  test("one waits for another that is not answered yet, and then asks for that one's place", () => {
    const driven = connected();
    driven.machine.add(["a"], { from: "all" });
    driven.machine.add(["a"], { from: "now" });
    driven.machine.add(["+"], { from: "now" });
    driven.machine.add(["b/+"], {});
    const [first, other, ...more] = driven.commands();
    expect([first!.topics, other!.topics, more]).toEqual([["a"], ["b/+"], []]);
    driven.hear({ type: "subscribed", id: first!.id, selectors: ["a"], topics: [at("a", 9, 0)] });
    driven.hear(publication("a", 1));
    const [second, third] = driven.commands();
    expect(second).toMatchObject({ topics: ["a"], from: "now", positions: { a: { epoch: "e1", sequence: 0 } } });
    expect(third).toMatchObject({ topics: ["+"], from: "now", positions: { a: { epoch: "e1", sequence: 0 } } });
  });

  test("of a pattern the topics are waited for, too, but only once", () => {
    const driven = connected();
    driven.machine.add(["+"], { from: "all" });
    for (let count = 0; count < 3; count += 1) driven.machine.add(["+"], {});
    const [first, ...none] = driven.commands();
    expect(none).toEqual([]);
    driven.hear({ type: "subscribed", id: first!.id, selectors: ["+"], topics: [] });
    const [ping, ...still] = driven.commands();
    expect([ping!.type, still]).toEqual(["ping", []]);
    driven.hear({ type: "topic", ...at("a", 5, 0) }, { type: "pong", id: ping!.id });
    const asked = driven.commands();
    expect(asked.map(({ positions }) => positions)).toEqual(Array(3).fill({ a: { epoch: "e1", sequence: 0 } }));
  });

  test("what was live before is asked for again at once, all of it", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 1, 1));
    driven.live(["+"], {}, at("a", 1, 1));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands().map(({ topics }) => topics)).toEqual([["a"], ["+"]]);
  });

  test.each(["ended", "refused", "put off"])("one that waits goes on when the other is %s", (what) => {
    const driven = connected();
    const index = driven.machine.add(["a"], {});
    driven.machine.add(["a"], {});
    const [first] = driven.commands();
    if (what === "ended") driven.machine.remove(index);
    else driven.hear({ type: "refused", id: first!.id, code: what === "refused" ? 4301 : 4001, error: "" });
    expect(driven.commands()).toMatchObject([{ type: "subscribe", topics: ["a"] }]);
  });

  test.each([
    ["snapshot" as const, { a: { epoch: "e1", sequence: 4 } }, ["1 snapshot a 5", "0 update a 6", "1 update a 6"]],
    ["now" as const, { a: { epoch: "e1", sequence: 5 } }, ["0 update a 6", "1 update a 6"]],
    [{ last: 3 }, { a: { epoch: "e1", sequence: 2 } },
      ["1 update a 3", "1 update a 4", "1 update a 5", "0 update a 6", "1 update a 6"]],
    ["all" as const, undefined,
      ["1 update a 1", "1 update a 2", "1 update a 3", "1 update a 4", "1 update a 5", "0 update a 6", "1 update a 6"]],
  ])("from %j: nobody is told twice, nobody misses anything", (from, positions, expected) => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.machine.add(["a"], { from });
    const { id, ...command } = driven.commands()[0]!;
    expect(command.positions).toEqual(positions);
    // The server restarts the topic from there; what the first had in flight comes before the answer.
    const start = positions?.a.sequence ?? 0;
    driven.hear({ type: "subscribed", id, selectors: ["a"], topics: [at("a", 6, start)] });
    for (let sequence = start + 1; sequence <= 6; sequence += 1) driven.hear(publication("a", sequence));
    expect(driven.notices().slice(2)).toEqual(expected);
  });

  test("a gap that only the newer one's start causes is told to nobody", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.machine.add(["a"], { from: { last: 5 } });
    driven.answer(at("a", 5, 0, { recovered: false }));
    driven.hear(gap("a", 4, { from: 1 }), publication("a", 5), publication("a", 6));
    expect(driven.notices().slice(2)).toEqual(["1 update a 5", "0 update a 6", "1 update a 6"]);
  });

  test("whoever comes later reads a topic that nobody read before", () => {
    const driven = connected();
    driven.hear(publication("a", 1));
    driven.live(["a"], { from: "now" }, at("a", 1, 1));
    driven.hear(publication("a", 2));
    driven.live(["+"], { from: "now" }, at("a", 2, 2));
    driven.hear(publication("a", 3));
    expect(driven.notices()).toEqual(["0 update a 3", "1 update a 3"]);
  });

  test("a durable subscriber starts where its name left off, not where others are", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 5, 5));
    driven.machine.add(["a"], { name: "desk" });
    expect(driven.commands()[0]?.positions).toBe(undefined);
  });

  test("the server is told to stop only what nobody reads any more", () => {
    const driven = connected();
    const [first, second] = [driven.live(["a", "b"], {}), driven.live(["b", "c"], {})];
    driven.machine.remove(first);
    expect(driven.commands()).toMatchObject([{ type: "unsubscribe", topics: ["a"] }]);
    driven.machine.remove(second);
    expect(driven.commands()).toMatchObject([{ type: "unsubscribe", topics: ["b", "c"] }]);
  });

  test("after a break each asks for the earliest place that any of them needs", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 9, 9));
    driven.live(["a"], { from: { epoch: "e1", sequence: 3 } }, at("a", 9, 3, { recovered: true }));
    driven.hear(publication("a", 4));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    const places = driven.commands().map(({ positions }) => positions);
    expect(places).toEqual([{ a: { epoch: "e1", sequence: 4 } }, { a: { epoch: "e1", sequence: 4 } }]);
  });

  test("a new epoch that `subscribed` tells is told to all who read the topic", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.hear({ type: "topic", ...at("a/x", 5, 5) });
    driven.live(["a/x"], {}, at("a/x", 5, 5));
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    const [pattern, topic] = driven.commands();
    driven.hear({ type: "subscribed", id: pattern!.id, selectors: ["a/+"], topics: [] });
    // What the second one restarts is described in its answer, and not again by itself.
    const anew = at("a/x", 6, 0, { epoch: "e2", recovered: false });
    driven.hear({ type: "subscribed", id: topic!.id, selectors: ["a/x"], topics: [anew] });
    driven.notices();
    driven.hear(publication("a/x", 1), publication("a/x", 6));
    expect(driven.notices().sort()).toEqual(["0 update a/x 1", "0 update a/x 6", "1 update a/x 1", "1 update a/x 6"]);
  });

  test("what is told of another reading moves no place that was given", () => {
    const driven = connected();
    driven.live(["a/x"], {}, at("a/x", 100, 100));
    driven.machine.add(["a/+"], { positions: { "a/x": { epoch: "e1", sequence: 40 } } });
    driven.answer();
    driven.hear(publication("a/x", 101), { type: "topic", ...at("a/x", 101, 40, { recovered: true }) });
    driven.hear(publication("a/x", 41), publication("a/x", 101));
    expect(driven.notices().slice(2)).toEqual(["0 update a/x 101", "1 resumed a/x whole, 61 missed", "1 update a/x 41", "1 update a/x 101"]);
  });

  test("nor one that was joined", () => {
    const driven = connected();
    driven.live(["a/x"], {}, at("a/x", 100, 100));
    driven.machine.add(["a/+"], { from: { last: 2 } });
    driven.answer();
    driven.hear(publication("a/x", 101), { type: "topic", ...at("a/x", 101, 98) });
    driven.hear(publication("a/x", 99), publication("a/x", 100), publication("a/x", 101));
    expect(driven.notices().slice(2)).toEqual(["0 update a/x 101", "1 update a/x 99", "1 update a/x 100", "1 update a/x 101"]);
  });

  test("nor does a late piece of it", () => {
    const driven = connected();
    driven.live(["a/x"], {}, at("a/x", 100, 100));
    const piece = (offset: number, text: string) =>
      ({ type: "fragment", topic: "a/x", sequence: 101, total: 4, offset, kind: "text", base64: btoa(text) });
    driven.hear(piece(0, "ab"));
    driven.machine.add(["a/+"], { positions: { "a/x": { epoch: "e1", sequence: 40 } } });
    driven.answer();
    driven.hear({ type: "topic", ...at("a/x", 101, 40, { recovered: true }) }, piece(2, "cd"), publication("a/x", 41));
    driven.hear(piece(0, "ab"), piece(2, "cd"));
    expect(driven.notices().slice(2)).toEqual(["1 resumed a/x whole, 61 missed", "1 update a/x 41", "0 update a/x 101", "1 update a/x 101"]);
  });

  test("a place of an older numbering is not asked for beside one of the newest", () => {
    const driven = connected();
    driven.live(["a"], { from: "all" }, at("a", 9, 0, { epoch: "e2" }));
    driven.hear(publication("a", 1));
    driven.machine.add(["+"], { positions: { a: { epoch: "e1", sequence: 40 } } });
    expect(driven.commands()).toMatchObject([{ topics: ["+"], positions: { a: { epoch: "e2", sequence: 1 } } }]);
  });

  test("while one is yet to be told of a topic from its beginning, nobody has that read from elsewhere", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 9, 9));
    driven.live(["+"], { from: "all" });
    driven.machine.handleDisconnect();
    driven.machine.handleConnected();
    expect(driven.commands()).toMatchObject([{ topics: ["a"], positions: { a: { epoch: "e1", sequence: 0 } } }, { topics: ["+"] }]);
  });

  test("who wants all and finds a topic resumed from an old numbering for another is told what of the new one is not there", () => {
    const driven = connected();
    const positions = { x: { epoch: "e0", sequence: 5 } };
    driven.live(["x"], { positions }, at("x", 33, 13, { recovered: false }));
    driven.live(["#"], { from: "now" });
    driven.live(["+"], { from: "all" });
    driven.hear({ type: "topic", ...at("x", 33, 13, { recovered: false }) }, gap("x", 13, { reason: "epoch" }), publication("x", 14));
    expect(driven.notices().sort()).toEqual(["0 update x 14", "1 update x 14", "2 gap x 1..13 epoch", "2 update x 14"]);
  });

  test("who was not told of a topic yet, and is read to from beyond its beginning, asks again", () => {
    const driven = connected();
    driven.live(["#"], { from: "all" });
    // It catches up with other topics first. Nobody knows of x.
    driven.live(["x"], { from: { last: 5 } }, at("x", 707, 702));
    const [again] = driven.commands();
    expect(again).toMatchObject({ topics: ["#"], from: "all", positions: undefined });
    driven.hear(publication("x", 703));
    driven.hear({ type: "subscribed", id: (again as unknown as { id: number }).id, selectors: ["#"], topics: [] });
    driven.hear({ type: "topic", ...at("x", 707, 0) }, publication("x", 1), publication("x", 703), publication("x", 704));
    const told = driven.notices();
    expect(told.filter((line) => line.startsWith("0 update"))).toEqual([1, 703, 704].map((number) => `0 update x ${number}`));
    expect(told.filter((line) => line.startsWith("1 update"))).toEqual([703, 704].map((number) => `1 update x ${number}`));
  });

  test("nor is one that was told of it, and has not read so far", () => {
    const driven = connected();
    driven.live(["+"], { from: "all" });
    driven.hear({ type: "topic", ...at("x", 9, 0) }, publication("x", 1));
    driven.machine.add(["x"], { positions: { x: { epoch: "e1", sequence: 4 } } });
    driven.answer(at("x", 9, 4, { recovered: true }));
    expect(driven.commands()).toMatchObject([{ topics: ["+"], positions: { x: { sequence: 1 } } }]);
  });

  test("nor is one whose topic is read from further on for one that has ended, or beside one that skips", () => {
    for (const more of [{}, { filter: "data > 9" }]) {
      const driven = connected();
      driven.live(["#"], { from: "all" });
      driven.hear({ type: "topic", ...at("x", 1, 0) }, publication("x", 1));
      const later = driven.live(["+"], { from: "now", ...more });
      if (!("filter" in more)) driven.machine.remove(later);
      driven.hear({ type: "topic", ...at("x", 5, 5) });
      expect(driven.machine.state(0)).toBe("asked");
    }
  });

  test("but what is still under way in pieces counts as told", () => {
    const driven = connected();
    driven.live(["#"], { from: "all" });
    const begun = { type: "fragment", topic: "x", sequence: 2, total: 4, offset: 0, kind: "text", base64: btoa("ab") };
    driven.hear({ type: "topic", ...at("x", 1, 0) }, publication("x", 1), begun);
    driven.hear({ type: "topic", ...at("x", 2, 2) });
    expect(driven.commands()).toEqual([]);
  });

  test("what reads on after another ended is asked for again, if it is read in another manner", () => {
    const driven = connected();
    driven.live(["a/+"], {});
    driven.hear({ type: "topic", ...at("a/x", 5, 5) });
    const filtered = driven.live(["a/x"], { filter: "data > 9" }, at("a/x", 5, 5));
    driven.live(["c"], {}, at("c", 0, 0));
    driven.machine.remove(filtered);
    expect(driven.commands()).toMatchObject([
      { type: "unsubscribe", topics: ["a/x"] },
      { type: "subscribe", topics: ["a/+"], filter: undefined, positions: { "a/x": { sequence: 5 } } },
    ]);
  });

  test("what reads on after another of its manner ended is left alone", () => {
    const driven = connected();
    driven.live(["c"], { filter: "data > 9" }, at("c", 0, 0));
    driven.live(["a/x"], {}, at("a/x", 5, 5));
    driven.machine.remove(driven.live(["a/x"], {}, at("a/x", 5, 5)));
    expect(driven.commands()).toEqual([]);
  });

  test("what nothing joins any more is read apart again, each in its manner", () => {
    const driven = connected();
    driven.live(["a"], {}, at("a", 0, 0));
    driven.live(["b"], { filter: "data > 9" }, at("b", 0, 0));
    driven.machine.remove(driven.live(["+"], { conflation: "always" }));
    expect(driven.commands()).toMatchObject([
      { type: "unsubscribe", topics: ["+", "a", "b"] },
      { type: "subscribe", topics: ["a"], filter: undefined },
      { type: "subscribe", topics: ["b"], filter: "data > 9" },
    ]);
  });

  test("places that have no room in one message are asked for in several", () => {
    const driven = new Driven();
    const places = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`a/${index}`, { epoch: "e1", sequence: index }]));
    driven.machine.add(["a/+", "a/99"], { positions: places });
    const sent: Command[] = [];
    driven.machine.handleConnected(20_000);
    for (let commands = driven.commands(); commands.length > 0; commands = driven.commands()) {
      for (const command of commands) {
        sent.push(command);
        const { id, type, topics } = command as unknown as { id: number; type: string; topics: string[] };
        if (type !== "subscribe") continue;
        const described = topics.filter((topic) => topic !== "a/+").map((topic) => at(topic, 200, 0));
        driven.hear({ type: "subscribed", id, selectors: topics, topics: described });
      }
    }
    expect(Math.max(...sent.map((command) => JSON.stringify(command).length))).toBeLessThan(20_000 / 3);
    const asked = sent.filter(({ type }) => type === "subscribe");
    expect(Object.assign({}, ...asked.map(({ positions }) => positions))).toEqual(places);
    expect(asked[0]!.topics).toEqual(["a/+", "a/99"]);
    // What was named for its place alone is read by the pattern.
    const named = asked.slice(1).flatMap(({ topics }) => topics as string[]);
    expect(sent.filter(({ type }) => type === "unsubscribe").flatMap(({ topics }) => topics)).toEqual(named.filter((topic) => topic !== "a/99"));
    expect(new Set(named).size).toBe(named.length);
  });

  test("a topic may have the name of what every object has", () => {
    const driven = connected();
    for (const topic of ["constructor", "__proto__"]) {
      driven.machine.add([topic], { from: "all" });
      driven.machine.add([topic], { from: "all" });
    }
    // Of each the second waits until it is known where the first one is.
    expect(driven.commands().map(({ topics }) => topics)).toEqual([["constructor"], ["__proto__"]]);
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
        for (const selector of all) driven.machine.add([selector], {});
        for (let round = 0; round < 2; round += 1) {
          driven.machine.handleConnected();
          serve(driven);
          all.forEach((_, index) => driven.hear(publication(topicOf(all[index]!), round + 1)));
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
    for (const { type, id, topics } of commands) {
      if (type === "ping") driven.hear({ type: "pong", id });
      if (type !== "subscribe") continue;
      const [selector] = topics as [string];
      const described = at(topicOf(selector), 0, 0);
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
