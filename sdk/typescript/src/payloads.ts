/**
 * Whole publications of what comes: pieces are put together, deltas applied. Pure.
 *
 * It stands before the subscriptions, because the server tells a session each topic once: what is a base, or is not
 * finished, is of the connection and not of one reader. What comes out is in the order of the topic: whatever comes
 * after an unfinished publication waits for it. docs/protocol.md#deltas and docs/protocol.md#fragments.
 */

import type { DeltaDecoder, PatchDecoder, VcdiffDecoder } from "./deltas.js";
import type { Event, PayloadKind, WirePayload } from "./protocol.js";
import { decodeBase64 } from "./protocol.js";

type Of<Type extends Event["type"]> = Event & { readonly type: Type };

/** What goes through here. */
export type Arriving = Of<"publication"> | Of<"delta"> | Of<"fragment"> | Of<"gap">;

/** What comes out. `broken`: a publication could not be made of what came; the topic has to be asked for again. */
export type Whole = Of<"publication"> | Of<"gap"> | { readonly type: "broken"; readonly topic: string };

/** A publication of which pieces have come. */
interface Unfinished {
  readonly type: "unfinished";
  readonly topic: string;
  readonly sequence: number;
  readonly kind: PayloadKind;
  readonly total: number;
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

/** A piece or a base is not there, or what it makes is something else. Nobody reads it: `broken` is told. */
const BROKEN = new Error();

/** Makes publications whole. */
export class Payloads {
  readonly #vcdiff: VcdiffDecoder | undefined;
  readonly #patch: PatchDecoder | undefined;
  /** What waits for an unfinished publication, by topic, in the order of the sequences. The first is unfinished. */
  readonly #waiting = new Map<string, Waiting[]>();
  /** The newest payload of each topic; `undefined` while no deltas can come. */
  #values: Map<string, Value> | undefined;

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

  /** Whether pieces are still to come of something in `topic`: the server counts it as told. */
  awaits(topic: string): boolean {
    return this.#waiting.has(topic);
  }

  /** Forgets what came of a topic. */
  forget(topic: string): void {
    this.#waiting.delete(topic);
    this.#values?.delete(topic);
  }

  /** Notes that a topic is read again after `start`: what is under way beyond that comes again. */
  restart(topic: string, start: number): void {
    const [first] = this.#waiting.get(topic) ?? [];
    if (first && placeOf(first) > start) this.#waiting.delete(topic);
  }

  /** Forgets what came of the topics that nobody reads. */
  forgetUnless(isRead: (topic: string) => boolean): void {
    for (const topic of [...this.#waiting.keys(), ...(this.#values?.keys() ?? [])]) {
      if (!isRead(topic)) this.forget(topic);
    }
  }

  /** Forgets everything: the connection is gone, and the next one knows nothing of what this one was sent. */
  handleDisconnect(): void {
    this.#waiting.clear();
    this.#values?.clear();
  }

  /** Takes what came; answers what is whole now, in order. */
  take(event: Arriving): readonly Whole[] {
    const waiting = this.#waiting.get(event.topic);
    if (event.type === "fragment") return this.#takePiece(event, waiting ?? []);
    const isLater = waiting !== undefined && placeOf(event) > placeOf(waiting[0]!);
    if (!isLater) return [this.#finish(event)];
    insert(waiting, event);
    return [];
  }

  #takePiece(event: Of<"fragment">, waiting: Waiting[]): readonly Whole[] {
    const { topic, sequence, kind, total, offset, base64 } = event;
    const isIt = (each: Waiting): each is Unfinished => each.type === "unfinished" && each.sequence === sequence;
    let unfinished = waiting.find(isIt);
    if (offset === 0) {
      const fresh: Unfinished = { type: "unfinished", topic, sequence, kind, total, pieces: [], bytes: 0 };
      if (unfinished) waiting[waiting.indexOf(unfinished)] = fresh;
      else insert(waiting, fresh);
      unfinished = fresh;
      this.#waiting.set(topic, waiting);
    }
    // The rest of something that nobody waits for any more.
    if (unfinished === undefined) return [];
    try {
      if (unfinished.bytes !== offset) throw BROKEN;
      const piece = decodeBase64(base64);
      unfinished.pieces.push(piece);
      unfinished.bytes += piece.length;
    } catch {
      return [this.#break(topic)];
    }
    return this.#drain(topic, waiting);
  }

  /** Hands out what does not wait any more. */
  #drain(topic: string, waiting: Waiting[]): readonly Whole[] {
    const whole: Whole[] = [];
    while (waiting.length > 0) {
      const [first] = waiting as [Waiting];
      if (first.type === "unfinished" && first.bytes < first.total) return whole;
      waiting.shift();
      whole.push(this.#finish(first));
    }
    this.#waiting.delete(topic);
    return whole;
  }

  #finish(event: Waiting): Whole {
    if (event.type === "gap") return event;
    const { topic, sequence } = event;
    try {
      if (event.type === "publication") {
        if (this.#values) this.#keep(topic, sequence, event);
        return event;
      }
      const payload = event.type === "delta" ? this.#apply(event) : payloadOf(event.kind, joined(event.pieces));
      if (this.#values) this.#keep(topic, sequence, payload);
      return { type: "publication", topic, sequence, ...payload };
    } catch {
      return this.#break(topic);
    }
  }

  #break(topic: string): Whole {
    this.forget(topic);
    return { type: "broken", topic };
  }

  #keep(topic: string, sequence: number, { text, base64, bytes, data, source }: WirePayload): void {
    const value: Omit<Value, "sequence"> =
      text !== undefined
        ? { kind: "text", source: text }
        : base64 !== undefined
          ? { kind: "bytes", source: decodeBase64(base64) }
          : bytes !== undefined
            ? // The reader may do with his what he likes.
              { kind: "bytes", source: bytes.slice() }
            : { kind: "json", source: source ?? JSON.stringify(data) };
    this.#values!.set(topic, { sequence, ...value });
  }

  /** What a delta makes. Throws if its base is not there, or its check differs. */
  #apply({ topic, base, kind, crc, vcdiff, patch }: Of<"delta">): WirePayload {
    const value = this.#values?.get(topic);
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
