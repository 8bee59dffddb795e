// JSON patches, the canonical form, and the check.
import { expect, test } from "vitest";

import { crc32 } from "../src/deltas.js";
import type { PatchStep } from "../src/patch.js";
import { applyPatch, canonical } from "../src/patch.js";

const applied = (document: unknown, ...patch: PatchStep[]) => applyPatch(structuredClone(document), patch);

test.each<[string, unknown, PatchStep, unknown]>([
  ["add a member", { a: 1 }, { op: "add", path: "/b", value: 2 }, { a: 1, b: 2 }],
  ["add over a member", { a: 1 }, { op: "add", path: "/a", value: 2 }, { a: 2 }],
  ["add before an element", [1, 3], { op: "add", path: "/1", value: 2 }, [1, 2, 3]],
  ["add after the last, by its index", [1], { op: "add", path: "/1", value: 2 }, [1, 2]],
  ["add after the last", { a: [1] }, { op: "add", path: "/a/-", value: [2] }, { a: [1, [2]] }],
  ["add the whole", { a: 1 }, { op: "add", path: "", value: null }, null],
  ["add a member without a name", {}, { op: "add", path: "/", value: 1 }, { "": 1 }],
  ["remove a member", { a: 1, b: 2 }, { op: "remove", path: "/a" }, { b: 2 }],
  ["remove an element", [1, 2, 3], { op: "remove", path: "/1" }, [1, 3]],
  ["replace a member", { a: { b: 1 } }, { op: "replace", path: "/a/b", value: [] }, { a: { b: [] } }],
  ["replace an element", [1, 2], { op: "replace", path: "/0", value: 9 }, [9, 2]],
  ["replace the whole", [1], { op: "replace", path: "", value: "x" }, "x"],
  ["move", { a: { b: 1 }, c: [2] }, { op: "move", from: "/a/b", path: "/c/0" }, { a: {}, c: [1, 2] }],
  ["copy", { a: [1] }, { op: "copy", from: "/a", path: "/b" }, { a: [1], b: [1] }],
  ["test", { a: { x: 1, y: 2 } }, { op: "test", path: "/a", value: { y: 2, x: 1 } }, { a: { x: 1, y: 2 } }],
  ["levels that need escapes", { "a/b": 1, "m~n": 2 }, { op: "remove", path: "/a~1b" }, { "m~n": 2 }],
  ["~01 is ~1", { "~1": 1 }, { op: "replace", path: "/~01", value: 2 }, { "~1": 2 }],
])("%s", (_, document, step, expected) => {
  expect(applied(document, step)).toEqual(expected);
});

test("a member called __proto__ is a member", () => {
  const made = applied({}, { op: "add", path: "/__proto__", value: { isAdmin: true } }) as { isAdmin?: boolean };
  expect([made.isAdmin, canonical(made)]).toEqual([undefined, '{"__proto__":{"isAdmin":true}}']);
});

test.each<[string, unknown, PatchStep]>([
  ["a member that is not there", {}, { op: "remove", path: "/a" }],
  ["what every object has", {}, { op: "replace", path: "/toString", value: 1 }],
  ["an array's length", [1], { op: "replace", path: "/length", value: 0 }],
  ["an element far beyond the last", [1], { op: "add", path: "/3", value: 0 }],
  ["an index with a zero before it", [1, 2], { op: "replace", path: "/01", value: 0 }],
  ["the element after the last", [1], { op: "remove", path: "/-" }],
  ["below a number", { a: 1 }, { op: "add", path: "/a/b", value: 0 }],
  ["a path without its slash", { a: 1 }, { op: "remove", path: "a" }],
  ["a test that fails", { a: 1 }, { op: "test", path: "/a", value: 2 }],
  ["a move of nothing", {}, { op: "move", path: "/a", from: "/b" }],
  ["an unknown step", {}, { op: "shake", path: "/a" }],
])("%s cannot be patched", (_, document, step) => {
  expect(() => applied(document, step)).toThrow();
});

test.each<[unknown, string]>([
  [{ b: 1, a: [true, null, { d: "x", c: "" }] }, '{"a":[true,null,{"c":"","d":"x"}],"b":1}'],
  // By UTF-16 code units: the pair of surrogates comes before the letter that has a higher unit.
  [{ "\ufb33": 1, "\u{1f600}": 2, "€": 3, "\r": 4, "1": 5 }, '{"\\r":4,"1":5,"€":3,"\u{1f600}":2,"\ufb33":1}'],
  [[1e21, 1e-7, 333333333.33333329, 4.5, 2e-3, -0, 1.0], "[1e+21,1e-7,333333333.3333333,4.5,0.002,0,1]"],
  ['€$\u000f\nA\'B"\\/', '"€$\\u000f\\nA\'B\\"\\\\/"'],
])("canonical: %j", (value, text) => {
  expect(canonical(value)).toBe(text);
});

test.each([
  ["", 0],
  ["123456789", 0xcbf43926],
  ["The quick brown fox jumps over the lazy dog", 0x414fa339],
])("the check of %j", (text, crc) => {
  expect(crc32(new TextEncoder().encode(text))).toBe(crc);
});
