/**
 * How text travels to the server and back. The connection's state machine knows no more than this, so that other
 * transports than WebSocket can be put in its place.
 */

import type { WebSocketClass } from "./websocket.js";

/** Why a transport is closed. */
export interface CloseReason {
  /** The code that the server gave, if it gave one. */
  readonly code?: number;
  readonly text: string;
  /** How long it asked to stay away. */
  readonly retryAfterMs?: number;
}

/** What a transport tells. After `handleClose` it tells nothing more. */
export interface TransportHandlers {
  /** It is open: text can be sent. Never told before the transport was answered to whoever opened it. */
  handleOpen(): void;
  /** A message arrived: an event, or an array of them. An empty array is a sign of life. */
  handleText(text: string): void;
  /** It is closed, or could not be opened. */
  handleClose(reason: CloseReason): void;
}

/** An open transport, or one that is being opened. */
export interface Transport {
  /** Sends one command. Only after `handleOpen`; the first one is `hello`. */
  send(text: string): void;
  /** Closes it; nothing is told any more. */
  close(): void;
  /** Stops reading, if it can, or goes on: the server notices that nobody takes more. */
  hold?(isHeld: boolean): void;
}

/** Begins to open a transport to a node's address. */
export type OpenTransport = (url: string, handlers: TransportHandlers) => Transport;

/** The transports that come with the SDK. */
export type TransportName = "websocket" | "sse" | "poll";

/** What a runtime may lack, and its user gives. */
export interface Given {
  readonly WebSocket?: WebSocketClass | undefined;
}

/** A way to travel, of which a client may have several. */
export interface TransportKind {
  /** What `client.transport` calls it. */
  readonly name: string;
  /**
   * A proxy on the way may hold back what comes over it although its beginning got through. It counts as working when
   * something came after `welcome`.
   */
  readonly isDoubtful?: boolean;
  /** What opens it, or `undefined` where the runtime has not got what it needs. */
  open(given: Given): OpenTransport | undefined;
}
