/**
 * The TypeScript SDK of Tidegate: connect, subscribe, resume after a break, publish with acknowledgement.
 *
 * Two state machines stand behind a `Client`, both pure: the connection, and the subscriptions with their
 * trackers. The client puts a transport, a clock and handlers around them.
 *
 * @module
 */

export { Client } from "./client.js";
export type { ConnectionState, ConnectionTimes } from "./connection.js";
export type { PatchStep } from "./patch.js";
export type { Pauses } from "./backoff.js";
export type { DeltaDecoder, DeltaForm, PatchDecoder, VcdiffDecoder } from "./deltas.js";
export type { OnOptions } from "./emitter.js";
export type { Advice } from "./errors.js";
export { adviceOf, LocalCode, TidegateError } from "./errors.js";
export type {
  Abortable,
  ClientEvents,
  ClientOptions,
  HistoryOptions,
  HistoryPage,
  HistoryRange,
  Kept,
  Logger,
  Published,
  PublishOptions,
  TokenProvider,
} from "./options.js";
export type { Conflation, From, GapReason, Headers, HeaderValue, PayloadKind, Position, Positions, Since } from "./protocol.js";
export type { Stream, StreamOptions } from "./stream.js";
export type { Lag, Subscription, SubscriptionEvents } from "./subscription.js";
export type { ReadOptions, SubscriptionState } from "./subscriptions.js";
export type { AnyTopics, PayloadOf } from "./topics.js";
export type { Gap, Publication, Resumed } from "./tracker.js";
export type { CloseReason, Given, OpenTransport, Transport, TransportHandlers, TransportKind, TransportName } from "./transport.js";
export type { WebSocketClass, WebSocketLike } from "./websocket.js";
