// The fallback and the connection on it, without sockets: which transport is tried when.
import { expect, test } from "vitest";

import { Connection, defaultTimes } from "../src/connection.js";
import { FallbackPolicy } from "../src/fallback.js";
import type { Event } from "../src/protocol.js";

const NAMES = ["websocket", "sse", "poll"];
const MINUTE = 60_000;

/** A connection on a fallback of three, or fewer, whose second is doubtful. */
class Driven {
  now = 0;
  #serial = 0;
  #lastId = 0;
  readonly fallback: FallbackPolicy;
  readonly connection: Connection;

  constructor({ urls = ["ws://a"], home = 0, count = 3 } = {}) {
    this.fallback = new FallbackPolicy(count, home, 30_000);
    this.connection = new Connection({
      urls,
      transports: [{}, { isDoubtful: true }, {}].slice(0, count),
      fallback: this.fallback,
      hasTokens: false,
      name: undefined,
      times: defaultTimes,
      random: () => 1,
      nextId: () => (this.#lastId += 1),
    });
    this.connection.start(0);
  }

  /** What was tried, or waited for, since. */
  did(): string[] {
    const lines: string[] = [];
    for (let action = this.connection.pollAction(); action; action = this.connection.pollAction()) {
      if (action.do === "open") {
        this.#serial = action.serial;
        lines.push(`${NAMES[action.transport]} ${action.url}`);
      } else if (action.do === "tell" && action.state === "waiting" && action.retryInMs! > 0) {
        lines.push(`wait ${action.retryInMs}`);
      } else if (action.do === "send") {
        lines.push(action.command.type);
      }
    }
    return lines;
  }

  /** Nothing gets through until there is a pause: what was tried. */
  refuse(): string[] {
    const lines: string[] = [];
    do {
      lines.push(...this.did());
      if (this.connection.state === "waiting") this.pass(0);
      lines.push(...this.did());
      this.connection.handleClose(this.#serial, { code: 1006, text: "no" }, this.now);
      lines.push(...this.did());
    } while (!lines.at(-1)!.startsWith("wait"));
    return lines;
  }

  welcome(): void {
    this.did();
    this.connection.handleOpen(this.#serial, this.now);
    this.did();
    this.#hear({ type: "welcome", id: this.#lastId, session: "s", node: "n" });
  }

  pong(): void {
    this.connection.handleHeard(this.#serial, this.now);
    this.#hear({ type: "pong", id: this.#lastId });
  }

  break(code = 1006): void {
    this.connection.handleClose(this.#serial, { code, text: "broke" }, this.now);
  }

  /** Lets time pass, and what is due be done. */
  pass(ms: number): void {
    this.now += ms;
    this.connection.handleWake(this.now);
  }

  #hear(event: object): void {
    this.connection.handleEvent(event as Event, this.now);
  }
}

test("what cannot be opened is left for the next at once; after the last one there is a pause, and it starts anew", () => {
  const driven = new Driven();
  expect(driven.refuse()).toEqual(["websocket ws://a", "sse ws://a", "poll ws://a", "wait 250"]);
  driven.pass(250);
  expect(driven.refuse()).toEqual(["websocket ws://a", "sse ws://a", "poll ws://a", "wait 500"]);
});

test("all nodes are tried with a transport before it is left", () => {
  const driven = new Driven({ urls: ["ws://a", "ws://b"], count: 2 });
  expect(driven.refuse()).toEqual(["websocket ws://a", "wait 250"]);
  driven.pass(250);
  expect(driven.refuse()).toEqual(["websocket ws://b", "sse ws://a", "wait 250"]);
  driven.pass(250);
  expect(driven.refuse()).toEqual(["sse ws://b", "wait 500"]);
});

test("one that worked is left only after three attempts: the server may be away", () => {
  const driven = new Driven({ count: 2 });
  driven.welcome();
  driven.pass(MINUTE);
  driven.break();
  expect(driven.did()).toEqual(["ping", "wait 250"]);
  driven.pass(250);
  expect(driven.refuse()).toEqual(["websocket ws://a", "wait 500"]);
  driven.pass(500);
  expect(driven.refuse()).toEqual(["websocket ws://a", "wait 1000"]);
  driven.pass(1_000);
  expect(driven.refuse()).toEqual(["websocket ws://a", "sse ws://a", "wait 2000"]);
});

test("no welcome in time is as good as not being opened; the last one may take longer", () => {
  const driven = new Driven({ home: 1 });
  driven.did();
  driven.pass(5_000);
  driven.pass(0);
  expect(driven.did()).toEqual(["poll ws://a"]);
  driven.pass(5_000);
  driven.pass(0);
  expect(driven.did()).toEqual(["websocket ws://a"]);
  driven.pass(5_000);
  expect(driven.did()).toEqual([]);
  driven.pass(5_000);
  expect(driven.did()).toEqual(["wait 250"]);
});

test("a doubtful one that is silent after its welcome is left; one that answers is not", () => {
  const driven = new Driven({ home: 1 });
  driven.welcome();
  expect(driven.did()).toEqual(["ping"]);
  driven.pass(5_000);
  driven.pass(0);
  expect(driven.did()).toEqual(["poll ws://a"]);
  const other = new Driven({ home: 1 });
  other.welcome();
  other.pong();
  other.pass(5_000);
  expect(other.connection.state).toBe("connected");
});

test("one that breaks three times before it stood is left, and looked at again only after a while", () => {
  const driven = new Driven();
  for (const pause of [250, 500]) {
    driven.welcome();
    driven.break();
    expect(driven.did()).toEqual([`wait ${pause}`]);
    driven.pass(pause);
  }
  driven.welcome();
  driven.break();
  driven.pass(0);
  expect(driven.did()).toEqual(["sse ws://a"]);
  driven.welcome();
  driven.pong();
  expect(driven.fallback.checkAt).toBe(driven.now + 8 * MINUTE);
});

test("what the server says is never the transport's fault", () => {
  const driven = new Driven({ count: 2 });
  for (const pause of [250, 500, 1_000]) {
    driven.did();
    driven.break(4100);
    expect(driven.did()).toEqual([`wait ${pause}`]);
    driven.pass(pause);
  }
  expect(driven.did()).toEqual(["websocket ws://a"]);
});

test("better ones are looked at again, less and less often, and at once on another network", () => {
  const driven = new Driven({ home: 2 });
  driven.welcome();
  const { fallback } = driven;
  expect(fallback.checkAt).toBe(30_000);
  fallback.handleChecked(undefined, 30_000);
  expect(fallback.checkAt).toBe(30_000 + 2 * MINUTE);
  for (let round = 0; round < 10; round += 1) fallback.handleChecked(undefined, 0);
  expect(fallback.checkAt).toBe(60 * MINUTE);
  fallback.handleNetwork(7);
  expect(fallback.checkAt).toBe(7);
  fallback.handleChecked(0, 8);
  driven.did();
  driven.connection.change(8);
  expect(driven.did()).toEqual(["websocket ws://a"]);
  driven.welcome();
  expect(fallback.checkAt).toBeUndefined();
});

test("a response that was ended to be asked for again costs no pause, and not the node", () => {
  const driven = new Driven({ urls: ["ws://a", "ws://b"], home: 1 });
  driven.welcome();
  driven.pong();
  driven.break(4003);
  driven.pass(0);
  expect(driven.did()).toEqual(["ping", "sse ws://a"]);
});
