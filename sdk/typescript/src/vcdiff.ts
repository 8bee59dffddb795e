/**
 * Deltas as VCDIFF (RFC 3284), for clients that subscribe with `delta: "vcdiff"`: pass `vcdiff` as one of `deltas`.
 *
 * Decodes what the server makes: the default code table, any number of windows, no secondary compression. A decoder
 * of our own, because the built file of the one on npm (67 kB minified) is twice as large as the whole client.
 *
 * @module
 */

import type { VcdiffDecoder } from "./deltas.js";
import { crc32 } from "./deltas.js";

export type { DeltaDecoder, DeltaForm, PatchDecoder, VcdiffDecoder } from "./deltas.js";

/** What applies VCDIFF deltas. */
export const vcdiff: VcdiffDecoder = { form: "vcdiff", apply: applyVcdiff, check: crc32, sources: sourcesOf };

/** Bytes of one window at most: a delta of a few bytes can ask for any number. */
const WINDOW_BYTES_MAX = 1 << 28;

const [NOTHING, ADD, RUN, COPY] = [0, 1, 2, 3];

/** Reads bytes, and never beyond their end. */
class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  byte(): number {
    if (this.isAtEnd) throw new Error("the delta ends too early");
    return this.#bytes[this.#at++]!;
  }

  /** An integer: 7 bits a byte, the most significant first. Section 2. */
  integer(): number {
    let value = 0;
    for (;;) {
      const byte = this.byte();
      value = value * 128 + (byte & 127);
      if (value > Number.MAX_SAFE_INTEGER) throw new Error("a number is too large");
      if (byte < 128) return value;
    }
  }

  take(count: number): Uint8Array {
    const end = this.#at + count;
    if (end > this.#bytes.length) throw new Error("the delta ends too early");
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }
}

/** Makes the target of `base`. Throws if the delta is damaged, or of a form that the server does not make. */
function applyVcdiff(base: Uint8Array, delta: Uint8Array): Uint8Array {
  const reader = new Reader(delta);
  const [first, second, third] = reader.take(4);
  if (first !== 0xd6 || second !== 0xc3 || third !== 0xc4) throw new Error("it is not a VCDIFF");
  if (reader.byte() !== 0) throw new Error("it has secondary compression, a code table or a header of its own");
  let target: Uint8Array = new Uint8Array(0);
  while (!reader.isAtEnd) {
    const window = decodeWindow(reader, base, target);
    if (target.length === 0) target = window;
    else {
      const longer = new Uint8Array(target.length + window.length);
      longer.set(target);
      longer.set(window, target.length);
      target = longer;
    }
  }
  return target;
}

/** One window, section 4.2. `target` is what the ones before it made. */
function decodeWindow(reader: Reader, base: Uint8Array, target: Uint8Array): Uint8Array {
  const indicator = reader.byte();
  if (indicator > 2) throw new Error("its window has a checksum, or both sources");
  let segment = base.subarray(0, 0);
  if (indicator !== 0) {
    const [count, from] = [reader.integer(), reader.integer()];
    const source = indicator === 1 ? base : target;
    if (from + count > source.length) throw new Error("its source is longer than what there is");
    segment = source.subarray(from, from + count);
  }
  const body = new Reader(reader.take(reader.integer()));
  const length = body.integer();
  if (length > WINDOW_BYTES_MAX) throw new Error("its window is too large");
  if (body.byte() !== 0) throw new Error("it has secondary compression");
  const lengths = [body.integer(), body.integer(), body.integer()] as const;
  const [data, instructions, addresses] = lengths.map((count) => new Reader(body.take(count))) as [Reader, Reader, Reader];
  return follow({ segment, length, data, instructions, addresses });
}

interface Window {
  readonly segment: Uint8Array;
  readonly length: number;
  readonly data: Reader;
  readonly instructions: Reader;
  readonly addresses: Reader;
}

/** Follows the instructions of a window, section 5.4. */
function follow({ segment, length, data, instructions, addresses }: Window): Uint8Array {
  // Addresses are of the segment and what is made so far, one after the other.
  const made = new Uint8Array(segment.length + length);
  made.set(segment);
  const cache = new AddressCache(addresses);
  let at = segment.length;
  const codes = codeTable();
  while (!instructions.isAtEnd) {
    const code = instructions.byte() * 6;
    for (let half = code; half < code + 6; half += 3) {
      const kind = codes[half]!;
      if (kind === NOTHING) continue;
      const count = codes[half + 1]! || instructions.integer();
      if (at + count > made.length) throw new Error("it makes too much");
      if (kind === ADD) made.set(data.take(count), at);
      else if (kind === RUN) made.fill(data.byte(), at, at + count);
      else copy(made, cache.next(at, codes[half + 2]!), at, count);
      at += count;
    }
  }
  if (at !== made.length) throw new Error("it makes too little");
  return made.slice(segment.length);
}

function copy(bytes: Uint8Array, from: number, to: number, count: number): void {
  if (from >= to) throw new Error("it copies what is not there yet");
  if (from + count <= to) bytes.copyWithin(to, from, from + count);
  // What is copied may be what is being made: then it repeats itself.
  else for (let index = 0; index < count; index += 1) bytes[to + index] = bytes[from + index]!;
}

/** Addresses told as differences from earlier ones, section 5.1. */
class AddressCache {
  readonly #near = [0, 0, 0, 0];
  readonly #same = new Array<number>(3 * 256).fill(0);
  readonly #addresses: Reader;
  #next = 0;

  constructor(addresses: Reader) {
    this.#addresses = addresses;
  }

  /** The next address, in `mode`, when `here` is where it is copied to. */
  next(here: number, mode: number): number {
    const addresses = this.#addresses;
    const address =
      mode === 0
        ? addresses.integer()
        : mode === 1
          ? here - addresses.integer()
          : mode < 6
            ? this.#near[mode - 2]! + addresses.integer()
            : this.#same[(mode - 6) * 256 + addresses.byte()]!;
    if (address < 0) throw new Error("it copies from before the beginning");
    this.#near[this.#next] = address;
    this.#next = (this.#next + 1) % 4;
    this.#same[address % (3 * 256)] = address;
    return address;
  }
}

let table: Uint8Array | undefined;

/** The default code table, section 5.6: for each code two instructions of kind, size (0: told) and mode. */
function codeTable(): Uint8Array {
  if (table) return table;
  const entries: number[][] = [[RUN, 0, 0]];
  for (let size = 0; size <= 17; size += 1) entries.push([ADD, size, 0]);
  for (let mode = 0; mode < 9; mode += 1) {
    entries.push([COPY, 0, mode]);
    for (let size = 4; size <= 18; size += 1) entries.push([COPY, size, mode]);
  }
  for (let mode = 0; mode < 9; mode += 1) {
    for (let added = 1; added <= 4; added += 1) {
      for (let size = 4; size <= (mode < 6 ? 6 : 4); size += 1) entries.push([ADD, added, 0, COPY, size, mode]);
    }
  }
  for (let mode = 0; mode < 9; mode += 1) entries.push([COPY, 4, mode, ADD, 1, 0]);
  table = new Uint8Array(256 * 6);
  entries.forEach((entry, code) => table!.set(entry, code * 6));
  return table;
}

/** The exact text of `data` in each event of a message, which is valid JSON: an event, or an array of them. */
function sourcesOf(message: string): (string | undefined)[] {
  const found: (string | undefined)[] = [];
  const level = message.trimStart().startsWith("[") ? 2 : 1;
  const signs = /["{}[\],:]/g;
  let [depth, key, start] = [0, "", -1];
  let source: string | undefined;
  for (let sign = signs.exec(message); sign; sign = signs.exec(message)) {
    const { index } = sign;
    switch (sign[0]) {
      case '"':
        signs.lastIndex = endOfString(message, index);
        if (depth === level && start < 0) key = message.slice(index, signs.lastIndex);
        continue;
      case "{":
      case "[":
        depth += 1;
        continue;
      case ":":
        if (depth === level && start < 0 && key === '"data"') start = index + 1;
        continue;
    }
    // A comma or a closing bracket: if it is the event's, a member ends here.
    if (depth === level && start >= 0) [source, start] = [message.slice(start, index).trim(), -1];
    if (sign[0] === ",") continue;
    depth -= 1;
    if (depth !== level - 1 || sign[0] === "]") continue;
    found.push(source);
    [source, key] = [undefined, ""];
  }
  return found;
}

/** Where the string ends that begins with the quote at `start`: after its closing quote. */
function endOfString(text: string, start: number): number {
  let end = start;
  for (;;) {
    end = text.indexOf('"', end + 1);
    let first = end;
    while (text[first - 1] === "\\") first -= 1;
    if ((end - first) % 2 === 0) return end + 1;
  }
}
