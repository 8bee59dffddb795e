// The VCDIFF decoder: deltas that the server made, deltas made by hand, and damaged ones.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { crc32 } from "../src/deltas.js";
import { vcdiff } from "../src/vcdiff.js";

interface Vector {
  readonly name: string;
  readonly base: string;
  readonly delta: string;
  readonly crc: number;
  readonly target: string;
}

const vectors = JSON.parse(readFileSync(new URL("vcdiff.vectors.json", import.meta.url), "utf8")) as Vector[];
const bytesOf = (base64: string) => new Uint8Array(Buffer.from(base64, "base64"));
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

test.each(vectors.map((vector) => [vector.name, vector] as const))("made by the server: %s", (_, vector) => {
  const made = vcdiff.apply(bytesOf(vector.base), bytesOf(vector.delta));
  expect(Buffer.from(made).toString("base64") === vector.target).toBe(true);
  expect(crc32(made)).toBe(vector.crc);
});

const header = [0xd6, 0xc3, 0xc4, 0, 0];
const base = new TextEncoder().encode("0123456789abcdefghij");

/** A window with the parts of RFC 3284, section 4.3. `source` is an indicator, a size and a position. */
function window(source: number[], made: number, data: string, instructions: number[], addresses: number[]): number[] {
  const bytes = [...new TextEncoder().encode(data)];
  const body = [made, 0, bytes.length, instructions.length, addresses.length, ...bytes, ...instructions, ...addresses];
  return [...source, body.length, ...body];
}

// Codes: 0 run; 1 add with a size told; 2 to 18 add 1 to 17; 19 + 16 m copy with a size told, in mode m; then copy 4 to 18.
test.each<[string, number[], string]>([
  ["an addition", window([0], 3, "xyz", [4], []), "xyz"],
  ["an addition with its size told", window([0], 3, "xyz", [1, 3], []), "xyz"],
  ["a run", window([0], 5, "x", [0, 5], []), "xxxxx"],
  ["a copy of the source", window([1, 20, 0], 4, "", [20], [6]), "6789"],
  ["of a part of the source", window([1, 10, 5], 4, "", [20], [6]), "bcde"],
  ["a copy from here back", window([1, 20, 0], 4, "", [36], [20]), "0123"],
  ["a copy of what is being made", window([0], 8, "ab", [3, 19, 6], [0]), "abababab"],
  ["near addresses", window([1, 20, 0], 8, "", [20, 52], [3, 2]), "34565678"],
  ["the same address", window([1, 20, 0], 8, "", [20, 116], [7, 7]), "789a789a"],
  ["an addition and a copy in one code", window([1, 20, 0], 6, "xy", [163 + 3], [8]), "xy89ab"],
  ["a copy and an addition in one code", window([1, 20, 0], 5, "x", [247], [8]), "89abx"],
  ["two windows, the second of the first", [...window([0], 3, "xyz", [4], []), ...window([2, 2, 1], 4, "", [19, 4], [0])], "xyzyzyz"],
  ["nothing", [], ""],
])("made by hand: %s", (_, windows, expected) => {
  expect(textOf(vcdiff.apply(base, Uint8Array.from([...header, ...windows])))).toBe(expected);
});

test.each<[string, number[]]>([
  ["no VCDIFF", [1, 2, 3, 4, 5]],
  ["secondary compression", [0xd6, 0xc3, 0xc4, 0, 1, 0]],
  ["a checksum", [...header, ...window([4], 3, "xyz", [4], [])]],
  ["a segment beyond the source", [...header, ...window([1, 20, 1], 4, "", [20], [0])]],
  ["a copy of what is not there yet", [...header, ...window([1, 20, 0], 4, "", [20], [20])]],
  ["a copy from before the beginning", [...header, ...window([1, 20, 0], 4, "", [36], [21])]],
  ["too much", [...header, ...window([0], 2, "xyz", [4], [])]],
  ["too little", [...header, ...window([0], 4, "xyz", [4], [])]],
  ["a window of gigabytes", [...header, 0, 8, 0x88, 0x80, 0x80, 0x80, 0, 0, 0, 0]],
  ["an integer without an end", [...header, 0, ...Array<number>(12).fill(255)]],
])("%s is refused", (_, delta) => {
  expect(() => vcdiff.apply(base, Uint8Array.from(delta))).toThrow();
});

test("what is damaged is refused, or makes something else: it never runs away", () => {
  for (const vector of vectors) {
    const [from, delta] = [bytesOf(vector.base), bytesOf(vector.delta)];
    for (let at = 0; at < delta.length; at += 1) {
      const flipped = delta.slice();
      flipped[at]! ^= 0x55;
      for (const damaged of [delta.slice(0, at), flipped]) {
        try {
          if (crc32(vcdiff.apply(from, damaged)) === vector.crc) expect(at).toBe(3);
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }
    }
  }
});

test.each<[string, (string | undefined)[]]>([
  ['{"type":"publication","topic":"a","sequence":1,"data":{"x": 1}}', ['{"x": 1}']],
  ['[{"data": [1, {"data":2}] ,"topic":"a"},{"type":"pong"},{"data":"}\\\\\\",{"}]', ['[1, {"data":2}]', undefined, '"}\\\\\\",{"']],
  ['{"topic":"\\"data\\":7","text":"data"}', [undefined]],
  ['{"type":"history","publications":[{"data":1}],"x":{"data":2}}', [undefined]],
  [' [ { "data" : 1.0 } , {"topic":"data","data":-0}]', ["1.0", "-0"]],
  ['[{"data":true},{"kind":"data"}]', ["true", undefined]],
  ["[]", []],
])("the exact text of `data` in %s", (message, expected) => {
  expect(vcdiff.sources(message)).toEqual(expected);
});
