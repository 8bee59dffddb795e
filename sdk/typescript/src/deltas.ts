/** What is known of deltas without being able to apply any: their forms, and the check of what they make. */

import type { PatchStep } from "./patch.js";

/** The forms of deltas: docs/protocol.md#deltas. */
export type DeltaForm = "json-patch" | "vcdiff";

/** Applies deltas as VCDIFF, which are of bytes. */
export interface VcdiffDecoder {
  readonly form: "vcdiff";
  /** Makes the payload of what it was before. Throws if it cannot be. */
  readonly apply: (base: Uint8Array, delta: Uint8Array) => Uint8Array;
  /** The CRC-32 of what was made. */
  readonly check: (made: Uint8Array) => number;
  /** The exact text of `data` in each event of a message: a parsed value has lost it. */
  readonly sources: (message: string) => readonly (string | undefined)[];
}

/** Applies deltas as JSON patches. */
export interface PatchDecoder {
  readonly form: "json-patch";
  /** Makes the value, and its canonical text, of the text that it was before. Throws if it cannot be. */
  readonly apply: (base: string, patch: readonly PatchStep[]) => { readonly data: unknown; readonly source: string };
  /** The CRC-32 of its canonical text. */
  readonly check: (made: Uint8Array) => number;
}

/**
 * What applies deltas of one form, given to a client as one of its `deltas`. They are entries of their own, so that only
 * who uses them loads them.
 */
export type DeltaDecoder = VcdiffDecoder | PatchDecoder;

let table: Uint32Array | undefined;

/** The CRC-32 of IEEE 802.3, as an unsigned number. */
export function crc32(bytes: Uint8Array): number {
  table ??= Uint32Array.from({ length: 256 }, (_, index) => {
    let rest = index;
    for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
    return rest;
  });
  let rest = 0xffffffff;
  for (let at = 0; at < bytes.length; at += 1) rest = table[(rest ^ bytes[at]!) & 255]! ^ (rest >>> 8);
  return (rest ^ 0xffffffff) >>> 0;
}
