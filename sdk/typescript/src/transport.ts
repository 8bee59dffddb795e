/**
 * How text travels to the server and back. The connection's state machine knows no more than this, so that other
 * transports than WebSocket can be put in its place.
 */

/** What a transport tells. After `handleClose` it tells nothing more. */
export interface TransportHandlers {
  /** It is open: text can be sent. */
  handleOpen(): void;
  /** A message arrived: an event, or an array of them. */
  handleText(text: string): void;
  /** It is closed, or could not be opened. `code` is the one that the server gave, if it gave one. */
  handleClose(reason: { code?: number; text: string }): void;
}

/** An open transport, or one that is being opened. */
export interface Transport {
  /** Sends one command. Only after `handleOpen`. */
  send(text: string): void;
  /** Closes it; nothing is told any more. */
  close(): void;
}

/** Begins to open a transport to a node's address. */
export type OpenTransport = (url: string, handlers: TransportHandlers) => Transport;
