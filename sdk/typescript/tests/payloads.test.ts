// Whole publications of pieces and deltas, without a server.
import { describe, expect, test } from "vitest";

import { crc32 } from "../src/deltas.js";
import { canonical, jsonPatch } from "../src/patch.js";
import type { Arriving, Whole } from "../src/payloads.js";
import { Payloads } from "../src/payloads.js";

const publication = (sequence: number, data: unknown = sequence) => ({ type: "publication", topic: "a", sequence, data });
const gap = (from: number, to: number) => ({ type: "gap", topic: "a", epoch: "e1", from, to, reason: "lagged" });
const piece = (sequence: number, offset: number, part: string, more: object = {}) => ({
  type: "fragment",
  topic: "a",
  sequence,
  total: 6,
  offset,
  kind: "text",
  base64: btoa(part),
  ...more,
});
const delta = (sequence: number, base: number, result: unknown, more: object = {}) => ({
  type: "delta",
  topic: "a",
  sequence,
  base,
  crc: crc32(new TextEncoder().encode(canonical(result))),
  kind: "json",
  patch: [{ op: "replace", path: "", value: result }],
  ...more,
});

function lineOf(whole: Whole): string {
  if (whole === undefined) return "broken";
  if (whole.type === "gap") return `gap ..${whole.to}`;
  return `${whole.sequence} ${whole.text ?? JSON.stringify(whole.data)}`;
}

function heard(payloads: Payloads, ...events: object[]): string[] {
  return events.flatMap((event) => payloads.take((event as Arriving).topic, event as Arriving)).map(lineOf);
}

describe("pieces", () => {
  test.each<[string, object[], string[]]>([
    ["one after the other", [piece(1, 0, "abc"), piece(1, 3, "def")], ["1 abcdef"]],
    ["later ones wait", [piece(1, 0, "abc"), publication(2), publication(3), piece(1, 3, "def")], ["1 abcdef", "2 2", "3 3"]],
    ["gaps wait, too", [piece(1, 0, "abc"), gap(2, 5), publication(6), piece(1, 3, "def")], ["1 abcdef", "gap ..5", "6 6"]],
    ["earlier ones do not", [piece(4, 0, "abc"), publication(3), piece(4, 3, "def")], ["3 3", "4 abcdef"]],
    ["other topics do not", [piece(1, 0, "abc"), { ...publication(9), topic: "b" }], ["9 9"]],
    ["a first piece starts over", [piece(1, 0, "ab"), piece(1, 0, "abc"), piece(1, 3, "def")], ["1 abcdef"]],
    ["two of one topic at a time", [piece(1, 0, "abc"), piece(2, 0, "ghi"), piece(2, 3, "jkl"), piece(1, 3, "def")],
      ["1 abcdef", "2 ghijkl"]],
    ["the first of them is whole first", [piece(1, 0, "abc"), piece(2, 0, "ghi"), piece(1, 3, "def"), publication(3), piece(2, 3, "jkl")],
      ["1 abcdef", "2 ghijkl", "3 3"]],
    ["an earlier one begins later", [piece(5, 0, "abc"), piece(2, 0, "ghi"), publication(3), piece(5, 3, "def"), piece(2, 3, "jkl")],
      ["2 ghijkl", "3 3", "5 abcdef"]],
    ["the rest of what is not known", [piece(1, 3, "def"), publication(2)], ["2 2"]],
    ["one is missing", [piece(1, 0, "ab"), piece(1, 3, "def"), publication(2)], ["broken", "2 2"]],
    ["bytes that are no text", [piece(1, 0, "\xff\xff\xff", { total: 3 })], ["broken"]],
    ["JSON that is none", [piece(1, 0, "{", { total: 1, kind: "json" })], ["broken"]],
    ["JSON", [piece(1, 0, "{}", { total: 2, kind: "json" })], ["1 {}"]],
  ])("%s", (_, events, expected) => {
    expect(heard(new Payloads([jsonPatch]), ...events)).toEqual(expected);
  });

  test("a character may be cut in two", () => {
    const whole = new TextEncoder().encode("€€");
    const [left, right] = [whole.subarray(0, 4), whole.subarray(4)].map((part) => String.fromCharCode(...part));
    expect(heard(new Payloads([jsonPatch]), piece(1, 0, left!), piece(1, 4, right!))).toEqual(["1 €€"]);
  });

  test.each([
    ["a break", (payloads: Payloads) => payloads.handleDisconnect()],
    ["the end of its last reader, or a new numbering", (payloads: Payloads) => payloads.forget("a")],
  ])("%s drops what is not finished", (_, end) => {
    const payloads = new Payloads([jsonPatch]);
    heard(payloads, piece(1, 0, "abc"), publication(2));
    end(payloads);
    expect(heard(payloads, piece(1, 3, "def"), publication(3))).toEqual(["3 3"]);
  });
});

describe("deltas", () => {
  test.each<[string, object[], string[]]>([
    ["of the last", [publication(1), delta(2, 1, { x: 1 }), delta(3, 2, [])], ["1 1", '2 {"x":1}', "3 []"]],
    ["without a base", [delta(2, 1, {})], ["broken"]],
    ["of another base", [publication(1), delta(3, 2, {}), delta(4, 1, {})], ["1 1", "broken", "broken"]],
    ["with a wrong check", [publication(1), delta(2, 1, {}, { crc: 7 }), publication(3)], ["1 1", "broken", "3 3"]],
    ["that cannot be applied", [publication(1), delta(2, 1, {}, { patch: [{ op: "remove", path: "/x" }] })], ["1 1", "broken"]],
    ["of another kind", [publication(1), delta(2, 1, {}, { kind: "text" })], ["1 1", "broken"]],
    ["as VCDIFF, without a decoder", [publication(1), delta(2, 1, {}, { patch: undefined, vcdiff: "1sPE" })], ["1 1", "broken"]],
    ["behind pieces: they are applied in their turn",
      [publication(1), piece(2, 0, "abc"), publication(3), delta(4, 3, "x"), delta(5, 4, "y"), piece(2, 3, "def")],
      ["1 1", "2 abcdef", "3 3", '4 "x"', '5 "y"']],
  ])("%s", (_, events, expected) => {
    const payloads = new Payloads([jsonPatch]);
    payloads.expectDeltas(true);
    expect(heard(payloads, ...events)).toEqual(expected);
  });

  test("after a break there are no bases", () => {
    const payloads = new Payloads([jsonPatch]);
    payloads.expectDeltas(true);
    heard(payloads, publication(1));
    payloads.handleDisconnect();
    expect(heard(payloads, delta(2, 1, {}))).toEqual(["broken"]);
  });

  test("nothing is kept while no deltas can come", () => {
    const payloads = new Payloads([jsonPatch]);
    heard(payloads, publication(1));
    payloads.expectDeltas(true);
    expect(heard(payloads, delta(2, 1, {}))).toEqual(["broken"]);
  });

  test("a reader that changes what it was told does not change the base", () => {
    const payloads = new Payloads([jsonPatch]);
    payloads.expectDeltas(true);
    const first = { list: [1] };
    heard(payloads, publication(1, first));
    first.list.push(2);
    const step = { op: "add", path: "/list/-", value: 3 };
    const [second] = payloads.take("a", delta(2, 1, { list: [1, 3] }, { patch: [step] }) as unknown as Arriving) as unknown as [{ data: typeof first }];
    second.data.list.length = 0;
    expect(heard(payloads, delta(3, 2, { list: [1, 3, 3] }, { patch: [step] }))).toEqual(['3 {"list":[1,3,3]}']);
  });
});
