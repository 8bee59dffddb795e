/** The JSON dialect, `tidegate.v1.json`: what goes over the wire. docs/protocol.md#commands and docs/protocol.md#events. */

import type { PatchStep } from "./patch.js";

/** The WebSocket subprotocol. */
export const SUBPROTOCOL = "tidegate.v1.json";

/** What a server may send this client, beside what every version does: docs/protocol.md#features. */
export const FEATURES: readonly string[] = ["batch", "deltas", "extended", "fragments", "history", "ids", "requests", "subscribers"];

/** A place in a topic, in one life of its numbering. "I have everything up to here." */
export interface Position {
  readonly epoch: string;
  readonly sequence: number;
}

/** Positions by topic. Plain JSON: it can be stored and given to a later subscription. */
export type Positions = Record<string, Position>;

/** Where a subscription starts to read. */
export type From = "snapshot" | "now" | "all" | { readonly last: number } | Since | Position;

/** At the first publication that is kept and not older, in milliseconds since 1970. */
export interface Since {
  readonly since: number;
}

/**
 * What may be skipped: "off" nothing; "lagging" all but the newest of each topic while this client is behind; "always"
 * all but the newest of each topic and interval; "unsubscribe" nothing, but who lags too far behind is unsubscribed.
 */
export type Conflation = "off" | "lagging" | "always" | "unsubscribe";

/** What kind of payload a publication has. */
export type PayloadKind = "json" | "text" | "bytes";

/** A payload on the wire: exactly one of the first three. */
export interface WirePayload {
  readonly data?: unknown;
  readonly text?: string;
  readonly base64?: string;
  /** Never on the wire: bytes that were put together here. */
  readonly bytes?: Uint8Array;
  /** Never on the wire: the exact text of `data`, where it is needed. */
  readonly source?: string;
}

/** The value of a header. Numbers come as JavaScript has them. */
export type HeaderValue = string | number | boolean | Uint8Array;

/** What a publication has beside its payload: names and values. docs/protocol.md#headers. */
export type Headers = Readonly<Record<string, HeaderValue>>;

/** Headers on the wire: bytes are in base64. */
export type WireHeaders = Readonly<Record<string, string | number | boolean | { readonly base64: string }>>;

/** What may be said of a publication beside its place and its payload. */
export interface Extras {
  readonly previous?: number;
  readonly headers?: WireHeaders;
  readonly time_ms?: number;
  readonly principal?: string;
}

/** A command as it is sent. */
export interface Command extends WirePayload {
  readonly type: "hello" | "subscribe" | "unsubscribe" | "publish" | "history" | "acknowledge" | "ping";
  readonly id: number;
  readonly [member: string]: unknown;
}

/** What the server must have for a command, if that is something that not every server has: docs/protocol.md#features. */
export function featureOf({ type, name }: { readonly type?: string; readonly name?: unknown }): string | undefined {
  if (name !== undefined) return "subscribers";
  return type === "handle" || type === "request" ? "requests" : type === "history" ? type : undefined;
}

/** What tells readings apart: their number, or without ids the topic. */
export type ReadingKey = number | string;

/** What is of a topic, in a reading if the server has ids. */
interface Numbered {
  readonly topic: string;
  readonly number?: number;
}

/** A topic as `subscribed` and `topic` describe it. */
export interface WireTopic extends Numbered {
  /** The subscriptions that the number serves. */
  readonly subscriptions?: readonly number[];
  readonly epoch: string;
  readonly head: number;
  readonly start: number;
  readonly recovered?: boolean;
}

/** Why publications cannot be had: too old, another epoch, or this client was too slow. */
export type GapReason = "history" | "epoch" | "lagged";

/** An event as it comes. Types that are not listed are passed over. */
export type Event = { readonly id?: number } & (
  | {
      readonly type: "welcome";
      readonly session: string;
      readonly node: string;
      readonly limits?: { readonly message_bytes_max: number };
      readonly features?: readonly string[];
    }
  | { readonly type: "subscribed"; readonly selectors: readonly string[]; readonly topics: readonly WireTopic[] }
  | {
      readonly type: "unsubscribed";
      readonly subscription?: number;
      readonly selectors: readonly string[];
      /** `lagged`, if the server ended them. */
      readonly reason?: string;
    }
  | { readonly type: "complete"; readonly subscription: number }
  | ({ readonly type: "topic" } & WireTopic)
  | ({ readonly type: "publication"; readonly sequence: number } & Numbered & Extras & WirePayload)
  | ({
      readonly type: "delta";
      readonly sequence: number;
      readonly base: number;
      readonly crc: number;
      readonly kind: PayloadKind;
      /** Exactly one of the two. */
      readonly vcdiff?: string;
      readonly patch?: readonly PatchStep[];
    } & Numbered & Extras)
  | ({
      readonly type: "fragment";
      readonly sequence: number;
      readonly total: number;
      readonly offset: number;
      readonly kind: PayloadKind;
      readonly base64: string;
    } & Numbered & Extras)
  | ({
      readonly type: "gap";
      readonly epoch: string;
      readonly from?: number;
      readonly to: number;
      readonly reason: GapReason;
    } & Numbered)
  | {
      readonly type: "published";
      readonly topic: string;
      readonly epoch: string;
      readonly sequence: number;
      readonly level: "memory" | "disk";
    }
  | { readonly type: "refused"; readonly code: number; readonly error: string }
  | {
      readonly type: "history";
      readonly topic: string;
      readonly epoch: string;
      readonly head: number;
      readonly start: number;
      readonly publications: readonly ({ readonly sequence: number; readonly time_ms: number } & Extras & WirePayload)[];
    }
  | { readonly type: "acknowledged" }
  | { readonly type: "handling"; readonly selectors: readonly string[] }
  | { readonly type: "unhandled"; readonly selectors: readonly string[] }
  | ({
      readonly type: "request";
      readonly request: number;
      readonly topic: string;
      readonly timeout_ms: number;
      readonly from: string;
      readonly principal?: string;
    } & WirePayload)
  | ({ readonly type: "response"; readonly from: string; readonly more?: boolean } & WirePayload)
  | { readonly type: "responded"; readonly count: number; readonly missing: number }
  | { readonly type: "pong" }
  | { readonly type: "lag"; readonly ms: number }
  | { readonly type: "closing"; readonly code: number; readonly error: string; readonly retry_after_ms?: number }
);

/**
 * The events of one message: one, or an array of them (docs/protocol.md#batches). Throws if it is not JSON. `sources` finds the
 * exact text of each one's `data`, where that is needed.
 */
export function decodeMessage(
  text: string,
  sources?: (text: string) => readonly (string | undefined)[],
): readonly Event[] {
  const events = [JSON.parse(text) as Event | readonly Event[]].flat();
  if (sources === undefined || !text.includes('"data"')) return events;
  const found = sources(text);
  return events.map((event, index) => (found[index] === undefined ? event : { ...event, source: found[index] }));
}

/** What is said of a publication, as its reader gets it. */
export function decodeExtras({ previous, headers, time_ms, principal }: Extras, sequence: number): {
  previous: number;
  headers: Headers;
  timeMs?: number;
  principal?: string;
} {
  return {
    previous: previous ?? sequence - 1,
    headers: headers ? mapped(headers, (value) => (typeof value === "object" ? decodeBase64(value.base64) : value)) : NONE,
    ...(time_ms !== undefined && { timeMs: time_ms }),
    ...(principal !== undefined && { principal }),
  };
}

/** Headers as they are sent. */
export function encodeHeaders(headers: Headers | undefined): WireHeaders | undefined {
  return headers && mapped(headers, (value) => (typeof value === "object" ? { base64: encodeBase64(value) } : value));
}

const NONE: Headers = Object.freeze({});

function mapped<From, To>(values: Readonly<Record<string, From>>, map: (value: From) => To): Record<string, To> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value)]));
}

/** The value of a payload: JSON as it was parsed, text as a string, bytes as a `Uint8Array`. */
export function decodePayload(wire: WirePayload): { kind: PayloadKind; data: unknown } {
  if (wire.text !== undefined) return { kind: "text", data: wire.text };
  if (wire.base64 !== undefined) return { kind: "bytes", data: decodeBase64(wire.base64) };
  if (wire.bytes !== undefined) return { kind: "bytes", data: wire.bytes };
  return { kind: "json", data: wire.data };
}

/** Bytes in base64. Throws if it is none. */
export function decodeBase64(base64: string): Uint8Array {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  // A loop: of large payloads a tenth of what `Uint8Array.from` takes.
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** A value as a payload: bytes as base64, a string as text if `kind` says so, everything else as JSON. */
export function encodePayload(data: unknown, kind?: PayloadKind): WirePayload {
  if (data instanceof Uint8Array && (kind === undefined || kind === "bytes")) return { base64: encodeBase64(data) };
  if (kind === "text" && typeof data === "string") return { text: data };
  if ((kind === undefined || kind === "json") && JSON.stringify(data) !== undefined) return { data };
  throw new TypeError(`cannot publish a ${typeof data} as ${kind ?? "json"}: give a value of that kind`);
}

function encodeBase64(bytes: Uint8Array): string {
  // In pieces: a call takes only so many arguments.
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += 0x8000) pieces.push(String.fromCharCode(...bytes.subarray(at, at + 0x8000)));
  return btoa(pieces.join(""));
}
