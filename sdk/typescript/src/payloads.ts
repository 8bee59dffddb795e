/**
 * Whole publications of what comes: pieces are put together, deltas applied. Pure.
 *
 * It stands before the subscriptions: what is a base, or is not finished, is of a reading and not of one reader. What comes
 * out is in the order of the topic: whatever comes after an unfinished publication waits for it. docs/protocol.md#deltas
 * and docs/protocol.md#fragments.
 */

import type { DeltaDecoder, PatchDecoder, VcdiffDecoder } from "./deltas.js";
import type { Event, Extras, PayloadKind, ReadingKey, WirePayload } from "./protocol.js";
import { decodeBase64 } from "./protocol.js";

type Of<Type extends Event["type"]> = Event & { readonly type: Type };

/** What goes through here. */
export type Arriving = Of<"publication"> | Of<"delta"> | Of<"fragment"> | Of<"gap">;

/** What comes out. `undefined`: a publication could not be made of what came; the reading has to be asked for again. */
export type Whole = Of<"publication"> | Of<"gap"> | undefined;

/** A publication of which pieces have come. */
interface Unfinished {
  readonly type: "unfinished";
  readonly topic: string;
  readonly sequence: number;
  readonly kind: PayloadKind;
  readonly total: number;
  readonly extras: Extras;
  readonly pieces: Uint8Array[];
  bytes: number;
}

type Waiting = Unfinished | Exclude<Arriving, Of<"fragment">>;

/** A payload as it was published: text, also that of JSON, or bytes. */
interface Value {
  readonly sequence: number;
  readonly kind: PayloadKind;
  readonly source: string | Uint8Array;
}

/** A piece or a base is not there, or what it makes is something else. Nobody reads it. */
const BROKEN = new Error();

/** Makes publications whole. */
export class Payloads {
  readonly #vcdiff: VcdiffDecoder | undefined;
  readonly #patch: PatchDecoder | undefined;
  /** What waits for an unfinished publication, by reading, in the order of the sequences. The first is unfinished. */
  readonly #waiting = new Map<ReadingKey, Waiting[]>();
  /** The newest payload of each reading; `undefined` while no deltas can come. */
  #values: Map<ReadingKey, Value> | undefined;

  constructor(decoders: readonly DeltaDecoder[]) {
    for (const decoder of decoders) {
      if (decoder.form === "vcdiff") this.#vcdiff = decoder;
      else this.#patch = decoder;
    }
  }

  /** Whether deltas can come from now on: only then payloads are kept to apply them to. */
  expectDeltas(isExpected: boolean): void {
    this.#values = isExpected ? (this.#values ?? new Map()) : undefined;
  }

  /** What finds the exact text of JSON payloads, while it is needed. */
  get sources(): VcdiffDecoder["sources"] | undefined {
    return this.#values && this.#vcdiff?.sources;
  }

  /** Forgets what came of a reading. */
  forget(key: ReadingKey): void {
    this.#waiting.delete(key);
    this.#values?.delete(key);
  }

  /** Notes that it goes on after `start`, as far as that is before what is under way: that comes again. */
  restart(key: ReadingKey, start: number): void {
    const [first] = this.#waiting.get(key) ?? [];
    if (first && placeOf(first) > start) this.#waiting.delete(key);
  }

  /** Forgets everything: the connection is gone, and the next one knows nothing of what this one was sent. */
  handleDisconnect(): void {
    this.#waiting.clear();
    this.#values?.clear();
  }

  /** Takes what came; answers what is whole now, in order. */
  take(key: ReadingKey, event: Arriving): readonly Whole[] {
    const waiting = this.#waiting.get(key);
    if (event.type === "fragment") return this.#takePiece(key, event, waiting ?? []);
    const isLater = waiting !== undefined && placeOf(event) > placeOf(waiting[0]!);
    if (!isLater) return [this.#finish(key, event)];
    insert(waiting, event);
    return [];
  }

  #takePiece(key: ReadingKey, event: Of<"fragment">, waiting: Waiting[]): readonly Whole[] {
    const { topic, sequence, kind, total, offset, base64 } = event;
    const isIt = (each: Waiting): each is Unfinished => each.type === "unfinished" && each.sequence === sequence;
    let unfinished = waiting.find(isIt);
    if (offset === 0) {
      const fresh: Unfinished = { type: "unfinished", topic, sequence, kind, total, extras: extrasOf(event), pieces: [], bytes: 0 };
      if (unfinished) waiting[waiting.indexOf(unfinished)] = fresh;
      else insert(waiting, fresh);
      unfinished = fresh;
      this.#waiting.set(key, waiting);
    }
    // The rest of something that nobody waits for any more.
    if (unfinished === undefined) return [];
    try {
      if (unfinished.bytes !== offset) throw BROKEN;
      const piece = decodeBase64(base64);
      unfinished.pieces.push(piece);
      unfinished.bytes += piece.length;
    } catch {
      return [this.#break(key)];
    }
    return this.#drain(key, waiting);
  }

  /** Hands out what does not wait any more. */
  #drain(key: ReadingKey, waiting: Waiting[]): readonly Whole[] {
    const whole: Whole[] = [];
    while (waiting.length > 0) {
      const [first] = waiting as [Waiting];
      if (first.type === "unfinished" && first.bytes < first.total) return whole;
      waiting.shift();
      whole.push(this.#finish(key, first));
    }
    this.#waiting.delete(key);
    return whole;
  }

  #finish(key: ReadingKey, event: Waiting): Whole {
    if (event.type === "gap") return event;
    const { topic, sequence } = event;
    try {
      if (event.type === "publication") {
        if (this.#values) this.#keep(key, sequence, event);
        return event;
      }
      const payload = event.type === "delta" ? this.#apply(key, event) : payloadOf(event.kind, joined(event.pieces));
      if (this.#values) this.#keep(key, sequence, payload);
      return { type: "publication", topic, sequence, ...(event.type === "delta" ? extrasOf(event) : event.extras), ...payload };
    } catch {
      return this.#break(key);
    }
  }

  #break(key: ReadingKey): Whole {
    this.forget(key);
    return undefined;
  }

  #keep(key: ReadingKey, sequence: number, { text, base64, bytes, data, source }: WirePayload): void {
    const value: Omit<Value, "sequence"> =
      text !== undefined
        ? { kind: "text", source: text }
        : base64 !== undefined
          ? { kind: "bytes", source: decodeBase64(base64) }
          : bytes !== undefined
            ? // The reader may do with his what he likes.
              { kind: "bytes", source: bytes.slice() }
            : { kind: "json", source: source ?? JSON.stringify(data) };
    this.#values!.set(key, { sequence, ...value });
  }

  /** What a delta makes. Throws if its base is not there, or its check differs. */
  #apply(key: ReadingKey, { base, kind, crc, vcdiff, patch }: Of<"delta">): WirePayload {
    const value = this.#values?.get(key);
    if (value?.sequence !== base || value.kind !== kind) throw BROKEN;
    if (patch !== undefined) {
      const made = this.#patch!.apply(value.source as string, patch);
      assertSame(this.#patch!.check(new TextEncoder().encode(made.source)), crc);
      return made;
    }
    const { source } = value;
    const bytes = typeof source === "string" ? new TextEncoder().encode(source) : source;
    const made = this.#vcdiff!.apply(bytes, decodeBase64(vcdiff!));
    assertSame(this.#vcdiff!.check(made), crc);
    return payloadOf(kind, made);
  }
}

function extrasOf({ previous, headers, time_ms, principal }: Extras): Extras {
  return { previous, headers, time_ms, principal } as Extras;
}

/** Where it stands in its topic: a gap where it ends. */
function placeOf(event: Waiting): number {
  return event.type === "gap" ? event.to : event.sequence;
}

/** Puts it after all that are not later. */
function insert(waiting: Waiting[], event: Waiting): void {
  let at = waiting.length;
  while (at > 0 && placeOf(waiting[at - 1]!) > placeOf(event)) at -= 1;
  waiting.splice(at, 0, event);
}

function assertSame(check: number, expected: number): void {
  if (check !== expected) throw BROKEN;
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** A payload of its bytes. Throws if they are not of that kind. */
function payloadOf(kind: PayloadKind, bytes: Uint8Array): WirePayload {
  if (kind === "bytes") return { bytes };
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  return kind === "text" ? { text } : { data: JSON.parse(text), source: text };
}
