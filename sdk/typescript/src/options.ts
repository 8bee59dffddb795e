/** What a client is told to do, and what it answers. */

import type { ConnectionState, ConnectionTimes } from "./connection.js";
import type { DeltaDecoder } from "./deltas.js";
import type { TidegateError } from "./errors.js";
import type { Headers, PayloadKind } from "./protocol.js";
import type { Lag } from "./subscription.js";
import type { OpenTransport, TransportKind, TransportName } from "./transport.js";
import type { WebSocketClass } from "./websocket.js";

/** Asks for a token. `refused` says why the last one was not good any more; `signal` that nobody waits for it. */
export type TokenProvider = (request: {
  readonly refused: TidegateError | undefined;
  readonly signal: AbortSignal;
}) => string | undefined | Promise<string | undefined>;

/** What writes warnings down, such as `console`. */
export interface Logger {
  warn(text: string): void;
}

/** How a client connects. */
export interface ClientOptions extends Partial<ConnectionTimes> {
  /** A token, or what to ask for one: at first, and whenever the server refuses the last. */
  readonly token?: string | TokenProvider;
  /** The client's own name, for the server's logs. */
  readonly name?: string;
  /** What the server may send this client at most. The server's own bounds go if they are stricter. */
  readonly bytesPerSecond?: number;
  /** The same, in messages. */
  readonly messagesPerSecond?: number;
  /** What applies deltas: `jsonPatch` of "@tidegate/client/json-patch", `vcdiff` of "@tidegate/client/vcdiff". */
  readonly deltas?: readonly DeltaDecoder[];
  /** The WebSocket class, where the runtime has none (Node before 22): npm's `ws`. Without it, others are used. */
  readonly WebSocket?: WebSocketClass;
  /**
   * What to travel with, the best first: what does not get through is left for the next one, and tried again later.
   * Default `["websocket", "sse", "poll"]`. The last two are loaded when they are tried; `sse` and `poll` of
   * "@tidegate/client/http", given here, are there from the start.
   */
  readonly transports?: readonly (TransportName | TransportKind)[];
  /** One of your own, instead of these. */
  readonly transport?: OpenTransport;
  /** Commands that may wait for a connection. Default 1,000. */
  readonly queueMax?: number;
  /** How long after it was first sent a publish with a key is sent again, in milliseconds. Default 240,000. */
  readonly resendMs?: number;
  /** How long a publish may take, in milliseconds; a wait for a connection counts. Default 10,000; `Infinity`: any time. */
  readonly publishMs?: number;
  /** What is told once, as a text, if the first connection fails. Default `console`; `false`: nobody is. */
  readonly logger?: Logger | false;
}

/** What a client tells. */
export interface ClientEvents {
  /** The connection is at something else; `error` says why, `retryInMs` when it is tried again. */
  state: { readonly state: ConnectionState; readonly error?: TidegateError; readonly retryInMs?: number };
  /** It travels with another transport than before. */
  transport: { readonly transport: string };
  /** The server says how far behind this client is. */
  lag: Lag;
  /** What nobody else took care of: an error thrown by a handler, a subscription or connection given up. */
  error: unknown;
}

/** Something that an `AbortSignal` can end. */
export interface Abortable {
  readonly signal?: AbortSignal;
}

/** How to publish. */
export interface PublishOptions extends Abortable {
  /** An idempotency key: a second publication with it is not kept, and this one is sent again after a break. */
  readonly key?: string;
  /** Refuses it (4217) unless this is the topic's newest sequence; 0: nothing was published yet. */
  readonly expect?: number;
  /** What kind of payload it is. Default "bytes" for a `Uint8Array`, else "json". */
  readonly kind?: PayloadKind;
  /** Names and values beside the payload: at most 32, of 4,096 bytes in all. */
  readonly headers?: Headers;
  /**
   * How long it may take, in milliseconds, instead of the client's `publishMs`. Then it is rejected: with 4906 if it was
   * never sent, with 4900 if it was, and may have been kept.
   */
  readonly timeoutMs?: number;
}

/** Where a publication was kept, and how safely. */
export interface Published {
  readonly topic: string;
  readonly epoch: string;
  readonly sequence: number;
  readonly level: "memory" | "disk";
}

/** Which page of a topic's history; one of the first four, or none for the oldest. */
export interface HistoryOptions extends Abortable {
  readonly after?: number;
  readonly before?: number;
  readonly last?: number;
  /** Milliseconds since 1970. */
  readonly since?: number;
  /** How many at most. Default 100. */
  readonly limit?: number;
}

/** Which part of a topic's history to read; without `after` or `since`, all that is kept. */
export interface HistoryRange extends Abortable {
  readonly after?: number;
  /** Milliseconds since 1970. */
  readonly since?: number;
  /** How many are fetched at a time. Default 100. */
  readonly pageSize?: number;
}

/** A page of a topic's history, oldest first. */
export interface HistoryPage<T = unknown> {
  readonly topic: string;
  readonly epoch: string;
  /** The newest sequence. */
  readonly head: number;
  /** The page comes after this; what lies between it and the first publication is not kept any more. */
  readonly start: number;
  readonly publications: readonly Kept<T>[];
}

/** A publication of a history. */
export interface Kept<T = unknown> {
  readonly sequence: number;
  /** When it was published, in milliseconds since 1970. */
  readonly timeMs: number;
  readonly previous: number;
  readonly headers: Headers;
  /** Who published it, where the topic's policy has that recorded. */
  readonly principal?: string;
  readonly kind: PayloadKind;
  readonly data: T;
}
