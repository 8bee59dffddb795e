// Commands that are answered once, across breaks.
import { describe, expect, test } from "vitest";

import type { Event } from "../src/protocol.js";
import type { AfterBreak } from "../src/requests.js";
import { Requests } from "../src/requests.js";
import { TidegateError } from "../src/errors.js";

const bounds = { queueMax: 3, resendMs: 1_000 };

function texts(requests: Requests, now = 0): string[] {
  const polled: string[] = [];
  for (let asked = requests.pollAsked(now); asked; asked = requests.pollAsked(now)) polled.push(asked.text);
  return polled;
}

function outcomes(requests: Requests): (string | number)[] {
  const polled: (string | number)[] = [];
  for (let outcome = requests.pollOutcome(); outcome; outcome = requests.pollOutcome()) {
    polled.push(outcome.error ? outcome.error.code : outcome.event.type);
  }
  return polled;
}

const ask = (requests: Requests, id: number, afterBreak: AfterBreak) => requests.add({ id, text: `#${id}`, afterBreak });

describe("a request whose connection breaks before the answer", () => {
  test.each([
    ["a publish without a key fails: nobody can tell", "fail", 10, [], [4900]],
    ["a publish with one is sent again", "ask-again-while-remembered", 999, ["#1"], []],
    ["but not when its key may be forgotten", "ask-again-while-remembered", 1_000, [], [4900]],
    ["a question is asked again", "ask-again", 1e9, ["#1"], []],
  ] as const)("%s", (_, afterBreak, breakAt, sentAgain, told) => {
    const requests = new Requests(bounds);
    requests.handleConnected();
    ask(requests, 1, afterBreak);
    expect(texts(requests, 0)).toEqual(["#1"]);
    requests.handleDisconnect(breakAt);
    expect(outcomes(requests)).toEqual(told);
    requests.handleConnected();
    expect(texts(requests, breakAt)).toEqual(sentAgain);
  });

  test.each([
    ["fail", /may or may not have been carried out.*; give it an idempotency key/],
    ["ask-again-while-remembered", /may or may not have been carried out.*; send it again with the same key/],
  ] as const)("the error of one that would %s says what to do", (afterBreak, text) => {
    const requests = new Requests(bounds);
    requests.handleConnected();
    ask(requests, 1, afterBreak);
    texts(requests);
    requests.handleDisconnect(bounds.resendMs);
    expect(requests.pollOutcome()?.error?.message).toMatch(text);
  });

  test("what was not sent yet only waits, behind what is sent again", () => {
    const requests = new Requests(bounds);
    requests.handleConnected();
    ask(requests, 1, "ask-again");
    texts(requests);
    ask(requests, 2, "fail");
    requests.handleDisconnect(0);
    ask(requests, 3, "fail");
    expect(texts(requests)).toEqual([]);
    requests.handleConnected();
    expect(texts(requests)).toEqual(["#1", "#2", "#3"]);
  });
});

test("one that is late says whether it was sent, and is not sent any more", () => {
  const requests = new Requests(bounds);
  ask(requests, 1, "ask-again-while-remembered");
  requests.handleConnected();
  texts(requests);
  requests.handleDisconnect(0);
  ask(requests, 2, "fail");
  [1, 2, 3].forEach((id) => requests.handleLate(id, 50));
  expect(outcomes(requests)).toEqual([4900, 4906]);
  requests.handleConnected();
  expect(texts(requests)).toEqual([]);
});

test("answers and refusals find their request, once", () => {
  const requests = new Requests(bounds);
  requests.handleConnected();
  [1, 2].forEach((id) => ask(requests, id, "fail"));
  texts(requests);
  const published = { type: "published", id: 1 } as Event;
  expect(requests.handleEvent(published)).toBe(true);
  expect(requests.handleEvent(published)).toBe(false);
  expect(requests.handleEvent({ type: "refused", id: 2, code: 4217, error: "" } as Event)).toBe(true);
  expect(requests.handleEvent({ type: "refused", code: 4200, error: "" } as Event)).toBe(false);
  expect(outcomes(requests)).toEqual(["published", 4217]);
});

test("no more wait for a connection than may", () => {
  const requests = new Requests(bounds);
  [1, 2, 3, 4].forEach((id) => ask(requests, id, "fail"));
  expect(outcomes(requests)).toEqual([4902]);
  requests.remove(2);
  ask(requests, 5, "fail");
  requests.handleConnected();
  expect(texts(requests)).toEqual(["#1", "#3", "#5"]);
});

test("when there will be no connection, what was sent is in doubt and what was not is not", () => {
  const requests = new Requests(bounds);
  requests.handleConnected();
  ask(requests, 1, "fail");
  ask(requests, 2, "ask-again");
  texts(requests);
  ask(requests, 3, "fail");
  requests.handleStop(new TidegateError(4901, "closed"));
  expect(outcomes(requests)).toEqual([4900, 4901, 4901]);
});
