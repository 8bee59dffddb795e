/** The JSON dialect, `tidegate.v1.json`: what goes over the wire. docs/protocol.md, sections 3 to 5. */

/** The WebSocket subprotocol. */
export const SUBPROTOCOL = "tidegate.v1.json";

/** A place in a topic, in one life of its numbering. "I have everything up to here." */
export interface Position {
  readonly epoch: string;
  readonly sequence: number;
}

/** Positions by topic. Plain JSON: it can be stored and given to a later subscription. */
export type Positions = Record<string, Position>;

/** Where a subscription starts to read. */
export type From = "snapshot" | "now" | "all" | { readonly last: number } | Position;

/**
 * What may be skipped: "off" nothing; "lagging" all but the newest of each topic while this client is behind; "always"
 * all but the newest of each topic and interval; "unsubscribe" nothing, but who lags too far behind is unsubscribed.
 */
export type Conflation = "off" | "lagging" | "always" | "unsubscribe";

/** What kind of payload a publication has. */
export type PayloadKind = "json" | "text" | "bytes";

/** A payload on the wire: exactly one of the three. */
export interface WirePayload {
  readonly data?: unknown;
  readonly text?: string;
  readonly base64?: string;
}

/** A command as it is sent. */
export interface Command extends WirePayload {
  readonly type: "hello" | "subscribe" | "unsubscribe" | "publish" | "history" | "acknowledge" | "ping";
  readonly id: number;
  readonly [member: string]: unknown;
}

/** A topic as `subscribed` and `topic` describe it. */
export interface WireTopic {
  readonly topic: string;
  readonly epoch: string;
  readonly head: number;
  readonly start: number;
  readonly recovered?: boolean;
}

/** Why publications cannot be had: too old, another epoch, or this client was too slow. */
export type GapReason = "history" | "epoch" | "lagged";

/** An event as it comes. Types that are not listed are passed over. */
export type Event = { readonly id?: number } & (
  | { readonly type: "welcome"; readonly session: string; readonly node: string }
  | { readonly type: "subscribed"; readonly selectors: readonly string[]; readonly topics: readonly WireTopic[] }
  | {
      readonly type: "unsubscribed";
      readonly selectors: readonly string[];
      readonly code?: number;
      readonly error?: string;
    }
  | ({ readonly type: "topic" } & WireTopic)
  | ({ readonly type: "publication"; readonly topic: string; readonly sequence: number } & WirePayload)
  | {
      readonly type: "gap";
      readonly topic: string;
      readonly epoch: string;
      readonly from?: number;
      readonly to: number;
      readonly reason: GapReason;
    }
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
      readonly publications: readonly ({ readonly sequence: number; readonly time_ms: number } & WirePayload)[];
    }
  | { readonly type: "acknowledged" }
  | { readonly type: "pong" }
  | { readonly type: "lag"; readonly topic?: string; readonly ms: number }
  | { readonly type: "closing"; readonly code: number; readonly error: string; readonly retry_after_ms?: number }
);

/** The events of one message: one, or an array of them (section 5). Throws if it is not JSON. */
export function decodeMessage(text: string): readonly Event[] {
  const decoded = JSON.parse(text) as Event | readonly Event[];
  return Array.isArray(decoded) ? decoded : [decoded as Event];
}

/** The value of a payload: JSON as it was parsed, text as a string, bytes as a `Uint8Array`. */
export function decodePayload(wire: WirePayload): { kind: PayloadKind; data: unknown } {
  if (wire.text !== undefined) return { kind: "text", data: wire.text };
  if (wire.base64 === undefined) return { kind: "json", data: wire.data };
  const binary = atob(wire.base64);
  return { kind: "bytes", data: Uint8Array.from(binary, (character) => character.charCodeAt(0)) };
}

/** A value as a payload: bytes as base64, a string as text if `kind` says so, everything else as JSON. */
export function encodePayload(data: unknown, kind?: PayloadKind): WirePayload {
  if (data instanceof Uint8Array && (kind === undefined || kind === "bytes")) {
    // In pieces: a call takes only so many arguments.
    const pieces: string[] = [];
    for (let at = 0; at < data.length; at += 0x8000) {
      pieces.push(String.fromCharCode(...data.subarray(at, at + 0x8000)));
    }
    return { base64: btoa(pieces.join("")) };
  }
  if (kind === "text" && typeof data === "string") return { text: data };
  if ((kind === undefined || kind === "json") && JSON.stringify(data) !== undefined) return { data };
  throw new TypeError(`cannot publish a ${typeof data} as ${kind ?? "json"}: give a value of that kind`);
}
