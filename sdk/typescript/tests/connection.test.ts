// The connection's state machine, without sockets and timers: what it does is compared line by line.
import { describe, expect, test } from "vitest";

import { pauseMs } from "../src/backoff.js";
import type { ConnectionAction, ConnectionOptions } from "../src/connection.js";
import { Connection, defaultTimes } from "../src/connection.js";
import { TidegateError } from "../src/errors.js";
import { FallbackPolicy } from "../src/fallback.js";
import type { Event } from "../src/protocol.js";

/** A connection whose clock stands still unless it is moved, and whose pauses are their longest. */
class Driven {
  now = 0;
  serial = 0;
  lastId = 0;
  readonly connection: Connection;

  constructor(options: Partial<ConnectionOptions> = {}) {
    this.connection = new Connection({
      urls: ["ws://a"],
      transports: [{}],
      fallback: new FallbackPolicy(1, 0, 0),
      hasTokens: false,
      name: "desk",
      times: defaultTimes,
      random: () => 1,
      nextId: () => (this.lastId += 1),
      ...options,
    });
  }

  /** What it wants done, one line each. */
  did(): string[] {
    const lines: string[] = [];
    for (let action = this.connection.pollAction(); action; action = this.connection.pollAction()) {
      if ("serial" in action) this.serial = action.serial;
      lines.push(lineOf(action));
    }
    return lines;
  }

  hear(event: object): void {
    this.connection.handleEvent(event as Event, this.now);
  }

  /** Opens and greets. */
  stand(): void {
    this.connection.handleOpen(this.serial, this.now);
    this.hear({ type: "welcome", id: this.lastId, session: "s", node: "n" });
    this.did();
  }

  wakeAt(now: number): string[] {
    this.now = now;
    this.connection.handleWake(now);
    return this.did();
  }
}

function lineOf(action: ConnectionAction): string {
  switch (action.do) {
    case "tell": {
      const why = action.error ? ` (${action.error.code})` : "";
      return action.state + (action.retryInMs === undefined ? "" : ` ${action.retryInMs} ms`) + why;
    }
    case "open":
      return `open ${action.url}`;
    case "fetchToken":
      return `fetch token${action.refused ? ` instead of one refused with ${action.refused.code}` : ""}`;
    case "send":
      return `send ${action.command.type}`;
    case "close":
      return "close";
  }
}

function started(options: Partial<ConnectionOptions> = {}): Driven {
  const driven = new Driven(options);
  driven.connection.start(0);
  return driven;
}

describe("the way up", () => {
  test("opens, greets, and is connected when it is welcome", () => {
    const driven = started();
    expect(driven.did()).toEqual(["opening", "open ws://a"]);
    driven.connection.handleOpen(driven.serial, 0);
    expect(driven.did()).toEqual(["greeting", "send hello"]);
    driven.hear({ type: "welcome", id: 1, session: "s", node: "n" });
    expect(driven.did()).toEqual(["connected"]);
  });

  test("a provider is asked for a token first, which then is in `hello`", () => {
    const driven = started({ hasTokens: true });
    expect(driven.did()).toEqual(["authorizing", "fetch token"]);
    driven.connection.handleToken(driven.serial, "secret", 0);
    expect(driven.did()).toEqual(["opening", "open ws://a"]);
    driven.connection.handleOpen(driven.serial, 0);
    const actions = [driven.connection.pollAction(), driven.connection.pollAction()];
    expect(actions[1]).toMatchObject({ command: { token: "secret", client: "desk", batch: true } });
  });

  test("the bounds of what is sent go into `hello`", () => {
    const driven = started({ bytesPerSecond: 20_000, messagesPerSecond: 50 });
    driven.did();
    driven.connection.handleOpen(driven.serial, 0);
    const actions = [driven.connection.pollAction(), driven.connection.pollAction()];
    expect(actions[1]).toMatchObject({ command: { bytes_per_second: 20_000, messages_per_second: 50 } });
  });

  test("starting twice is starting once", () => {
    const driven = started();
    driven.did();
    driven.connection.start(0);
    expect(driven.did()).toEqual([]);
  });
});

describe("what comes too late is passed over", () => {
  test.each([
    ["an open transport", (d: Driven, old: number) => d.connection.handleOpen(old, d.now)],
    ["a closed transport", (d: Driven, old: number) => d.connection.handleClose(old, { text: "" }, d.now)],
    ["a token", (d: Driven, old: number) => d.connection.handleToken(old, "old", d.now)],
    ["a token's failure", (d: Driven, old: number) => d.connection.handleTokenFailed(old, new TidegateError(4300, ""), d.now)],
  ])("%s of an attempt that was given up", (_, late) => {
    const driven = started();
    driven.did();
    const old = driven.serial;
    driven.connection.stop();
    driven.connection.start(0);
    expect(driven.did()).toEqual(["close", "idle", "opening", "open ws://a"]);
    late(driven, old);
    expect(driven.did()).toEqual([]);
    expect(driven.connection.isCurrent(old)).toBe(false);
  });
});

describe("a server that closes is obeyed by the range of its code", () => {
  test.each([
    [4000, 0, ["close", "waiting 0 ms (4000)"]],
    [4000, 1000, ["close", "waiting 1250 ms (4000)"]],
    [4001, 0, ["close", "waiting 0 ms (4001)"]],
    [4100, 0, ["close", "waiting 250 ms (4100)"]],
    [4102, 4000, ["close", "waiting 5000 ms (4102)"]],
    [4208, 0, ["close", "stopped (4208)"]],
    [4300, 0, ["close", "stopped (4300)"]],
  ])("code %i, retry after %i ms", (code, retry_after_ms, expected) => {
    const driven = started();
    driven.did();
    driven.stand();
    driven.hear({ type: "closing", code, error: "because", retry_after_ms });
    expect(driven.did()).toEqual(expected);
  });

  test("a close frame alone says as much as `closing`", () => {
    const driven = started();
    driven.did();
    driven.stand();
    driven.connection.handleClose(driven.serial, { code: 4204, text: "because" }, 0);
    expect(driven.did()).toEqual(["close", "stopped (4204)"]);
  });

  test("the same code twice in a row has a growing pause, until a connection stood for a while", () => {
    const driven = started();
    driven.did();
    const pauses = [0, 1, 2, 3].map(() => {
      driven.stand();
      driven.hear({ type: "closing", code: 4000, error: "" });
      const [, waiting] = driven.did();
      driven.wakeAt(driven.connection.wakeAt!);
      return waiting;
    });
    expect(pauses).toEqual([0, 500, 1000, 2000].map((ms) => `waiting ${ms} ms (4000)`));
    driven.stand();
    driven.now += defaultTimes.stableMs;
    driven.hear({ type: "closing", code: 4000, error: "" });
    expect(driven.did()).toEqual(["close", "waiting 0 ms (4000)"]);
  });
});

describe("pauses", () => {
  test.each([
    [0, {}, 0, 125],
    [0, {}, 1, 250],
    [3, {}, 1, 2000],
    [50, {}, 1, 30_000],
    [0, { code: 4000 }, 1, 0],
    [1, { code: 4000 }, 1, 500],
    [0, { code: 4300 }, 1, 0],
    [0, { code: 4104 }, 1, 250],
    [0, { code: 4000, retryAfterMs: 1000 }, 0, 1000],
    [0, { code: 4100, retryAfterMs: 1000 }, 1, 1250],
    [9, { retryAfterMs: 1000 }, 1, 30_000],
  ])("attempt %i after %j, at random %d: %i ms", (attempt, ending, random, expected) => {
    expect(pauseMs(attempt, ending, defaultTimes, () => random)).toBe(expected);
  });
});

describe("tokens", () => {
  test("a refused token is replaced before the next attempt, at once the first time", () => {
    const driven = started({ hasTokens: true });
    driven.did();
    driven.connection.handleToken(driven.serial, "old", 0);
    driven.did();
    driven.connection.handleOpen(driven.serial, 0);
    driven.hear({ type: "refused", id: 1, code: 4300, error: "unknown" });
    expect(driven.did()).toEqual(["greeting", "send hello", "close", "waiting 0 ms (4300)"]);
    expect(driven.wakeAt(0)).toEqual(["authorizing", "fetch token instead of one refused with 4300"]);
    driven.connection.handleToken(driven.serial, "old as well", 0);
    driven.did();
    driven.connection.handleOpen(driven.serial, 0);
    driven.hear({ type: "refused", id: 2, code: 4300, error: "unknown" });
    expect(driven.did().at(-1)).toBe("waiting 500 ms (4300)");
  });

  test("a token that was good is used again after a break", () => {
    const driven = started({ hasTokens: true });
    driven.did();
    driven.connection.handleToken(driven.serial, "good", 0);
    driven.did();
    driven.stand();
    driven.connection.handleClose(driven.serial, { text: "gone" }, 0);
    driven.did();
    expect(driven.wakeAt(250)).toEqual(["opening", "open ws://a"]);
  });

  test.each([
    ["without a code: tries again later", new TidegateError(4904, ""), "waiting 250 ms (4904)"],
    ["4100: tries again later", new TidegateError(4100, ""), "waiting 250 ms (4100)"],
    ["4300: gives up", new TidegateError(4300, ""), "stopped (4300)"],
  ])("a provider that fails %s", (_, error, expected) => {
    const driven = started({ hasTokens: true });
    driven.did();
    driven.connection.handleTokenFailed(driven.serial, error, 0);
    expect(driven.did()).toEqual([expected]);
  });

  test("after it stopped, it can be started again, with another token", () => {
    const driven = started({ hasTokens: true });
    driven.did();
    driven.connection.handleTokenFailed(driven.serial, new TidegateError(4300, ""), 0);
    driven.did();
    driven.connection.start(0);
    expect(driven.did()).toEqual(["authorizing", "fetch token instead of one refused with 4300"]);
  });
});

test.each([4302, 4304])("what no other token cures is final, whoever has tokens: %i", (code) => {
  const driven = started({ hasTokens: true });
  driven.did();
  driven.connection.handleToken(driven.serial, "good", 0);
  driven.did();
  driven.connection.handleClose(driven.serial, { code, text: "not from there" }, 0);
  expect(driven.did()).toEqual(["close", `stopped (${code})`]);
});

test("a nudge while a token is awaited asks for it again: the one before may hang", () => {
  const driven = started({ hasTokens: true });
  expect(driven.did()).toEqual(["authorizing", "fetch token"]);
  const old = driven.serial;
  driven.connection.nudge(0);
  expect(driven.did()).toEqual(["authorizing", "fetch token"]);
  driven.connection.handleToken(old, "late", 0);
  expect(driven.did()).toEqual([]);
  driven.connection.handleToken(driven.serial, "good", 0);
  expect(driven.did()).toEqual(["opening", "open ws://a"]);
});

describe("nodes", () => {
  test("each node is tried before pauses grow", () => {
    const driven = started({ urls: ["ws://a", "ws://b"] });
    const lines = driven.did();
    for (let attempt = 0; attempt < 4; attempt += 1) {
      driven.connection.handleClose(driven.serial, { text: "refused" }, driven.now);
      lines.push(...driven.did(), ...driven.wakeAt(driven.connection.wakeAt!));
    }
    const opened = lines.filter((line) => line.startsWith("open "));
    const pauses = lines.filter((line) => line.startsWith("waiting"));
    expect(opened).toEqual(["open ws://a", "open ws://b", "open ws://a", "open ws://b", "open ws://a"]);
    expect(pauses).toEqual([250, 250, 500, 500].map((ms) => `waiting ${ms} ms (4904)`));
  });

  test("a node whose token was refused is asked again with another, not left for the next", () => {
    const driven = started({ urls: ["ws://a", "ws://b"], hasTokens: true });
    driven.did();
    driven.connection.handleToken(driven.serial, "old", 0);
    driven.did();
    driven.connection.handleOpen(driven.serial, 0);
    driven.hear({ type: "refused", id: 1, code: 4300, error: "" });
    driven.did();
    driven.wakeAt(0);
    driven.connection.handleToken(driven.serial, "new", 0);
    expect(driven.did()).toEqual(["opening", "open ws://a"]);
  });
});

describe("time", () => {
  test("an attempt that takes too long is given up", () => {
    const driven = started();
    driven.did();
    expect(driven.wakeAt(9_999)).toEqual([]);
    expect(driven.wakeAt(10_000)).toEqual(["close", "waiting 250 ms (4904)"]);
  });

  test("a greeting that is not answered, too", () => {
    const driven = started();
    driven.did();
    driven.connection.handleOpen(driven.serial, 5_000);
    driven.did();
    expect(driven.wakeAt(15_000)).toEqual(["close", "waiting 250 ms (4904)"]);
  });

  test("a silent server is pinged, then given up", () => {
    const driven = started();
    driven.did();
    driven.stand();
    driven.connection.handleHeard(driven.serial, 1_000);
    expect(driven.wakeAt(25_000)).toEqual([]);
    expect(driven.wakeAt(26_000)).toEqual(["send ping"]);
    expect(driven.wakeAt(36_000)).toEqual(["close", "waiting 250 ms (4904)"]);
  });

  test("one that answers the ping, or says anything else, is not", () => {
    const driven = started();
    driven.did();
    driven.stand();
    driven.wakeAt(25_000);
    driven.connection.handleHeard(driven.serial, 34_000);
    expect(driven.wakeAt(35_000)).toEqual([]);
    driven.hear({ type: "pong", id: driven.lastId });
    expect(driven.wakeAt(59_999)).toEqual([]);
    expect(driven.wakeAt(60_000)).toEqual(["send ping"]);
  });

  test("a nudge ends a pause, and asks a server that seems to be there", () => {
    const driven = started();
    driven.did();
    driven.connection.nudge(0);
    expect(driven.did()).toEqual([]);
    driven.stand();
    driven.connection.nudge(0);
    driven.connection.nudge(0);
    expect(driven.did()).toEqual(["send ping"]);
    driven.connection.handleClose(driven.serial, { text: "gone" }, 0);
    driven.did();
    driven.connection.nudge(1);
    expect(driven.did()).toEqual(["opening", "open ws://a"]);
  });
});

test("a token that does not come in time is asked for again, after a pause", () => {
  const driven = started({ hasTokens: true });
  expect(driven.did()).toEqual(["authorizing", "fetch token"]);
  const late = driven.serial;
  expect(driven.wakeAt(defaultTimes.tokenMs - 1)).toEqual([]);
  expect(driven.wakeAt(defaultTimes.tokenMs)).toEqual(["waiting 250 ms (4904)"]);
  expect(driven.wakeAt(defaultTimes.tokenMs + 250)).toEqual(["authorizing", "fetch token"]);
  driven.connection.handleToken(late, "too late", driven.now);
  expect(driven.did()).toEqual([]);
  driven.connection.handleToken(driven.serial, "in time", driven.now);
  expect(driven.did()).toEqual(["opening", "open ws://a"]);
});

test.each([
  ["with a code", 4100],
  ["without one, though there is another transport to try", undefined],
])("what asks to be left alone is: %s", (_, code) => {
  const driven = started({ transports: [{}, {}], fallback: new FallbackPolicy(2, 0, 0) });
  driven.did();
  driven.connection.handleClose(driven.serial, { ...(code && { code }), text: "full", retryAfterMs: 7_000 }, 0);
  const [, waiting] = driven.did();
  expect(Number(/waiting (\d+) ms/.exec(waiting!)![1])).toBeGreaterThanOrEqual(7_000);
});
