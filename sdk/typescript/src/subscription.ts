/** A subscription as its user holds it: handlers, streams, and its state. */

import type { OnOptions } from "./emitter.js";
import { Emitter } from "./emitter.js";
import { LocalCode, TidegateError } from "./errors.js";
import type { Position, Positions } from "./protocol.js";
import type { StreamOptions } from "./stream.js";
import { Stream } from "./stream.js";
import type { Notice, SubscriptionState } from "./subscriptions.js";
import type { Gap, Publication, Resumed } from "./tracker.js";

/** This client is behind what was published. */
export interface Lag {
  readonly ms: number;
}

/** What a subscription tells. */
export interface SubscriptionEvents<T> {
  /** The value that a topic had when the subscription began. */
  snapshot: Publication<T>;
  /** Every other publication. */
  update: Publication<T>;
  /** Publications that cannot be had. */
  gap: Gap;
  /** All that was published when it was asked for, also again after a break, was told. Servers without ids do not say. */
  complete: void;
  /** After a break: a topic is read on from where it was left. */
  resumed: Resumed;
  /** The server says how far behind this client is. */
  lag: Lag;
  /** It is at something else; `error` says why, if the server ended it, a part of it, or put it off. */
  state: { readonly state: SubscriptionState; readonly error?: TidegateError };
  /** The server ended it: it was refused, or its reader was too slow. */
  error: TidegateError;
}

/** What a subscription asks of its client. */
export interface SubscriptionOwner {
  /** Why the client stopped, if it did: nothing comes until it is started again. */
  readonly stopped: () => TidegateError | undefined;
  readonly unsubscribe: () => void;
  /** Notification when nothing is kept back any more. */
  readonly handleCaughtUp: () => void;
  readonly report: (error: unknown) => void;
}

type Streamed<T> = Publication<T> | Gap;

/** Something that is read, across connections, until it is unsubscribed. */
export class Subscription<T = unknown> implements AsyncIterable<Publication<T>> {
  /** What it selects, as it was asked for. */
  readonly selectors: readonly string[];
  readonly #owner: SubscriptionOwner;
  /** Up to where each topic was handed out. */
  readonly #taken: Map<string, Position>;
  readonly #emitter: Emitter<SubscriptionEvents<T>>;
  readonly #streams = new Set<{ stream: Stream<Streamed<T>>; wantsGaps: boolean }>();
  /** What is kept back, because a stream is full, in order. */
  readonly #kept = new Set<Notice>();
  /** The stream that ended last, until another one begins: what it holds was not read by anybody. */
  #left: Stream<Streamed<T>> | undefined;
  readonly #awaiting = new Set<{ resolve(): void; reject(error: unknown): void }>();
  #state: SubscriptionState = "waiting";
  #error: TidegateError | undefined;

  /** @internal Use `Client.subscribe`. */
  constructor(selectors: readonly string[], positions: Positions, owner: SubscriptionOwner) {
    this.selectors = selectors;
    this.#taken = new Map(Object.entries(positions));
    this.#owner = owner;
    this.#emitter = new Emitter(owner.report);
  }

  /** What it is at. */
  get state(): SubscriptionState {
    return this.#state;
  }

  /** Why the server ended it, if it did. */
  get error(): TidegateError | undefined {
    return this.#error;
  }

  /**
   * Where it is in each topic, also after its end: store it, and give it to a later subscription as `positions`. It is
   * up to what handlers were given and loops have taken; what nobody read lies after it.
   */
  get positions(): Positions {
    const positions = new Map(this.#taken);
    const streams = [...this.#streams].map(({ stream }) => stream);
    if (this.#left && !this.#emitter.has("update")) streams.push(this.#left);
    for (const stream of streams) {
      for (const item of [...stream.untaken].reverse()) {
        const before = placeBefore(item);
        const known = positions.get(item.topic);
        if (known?.epoch !== before.epoch || before.sequence < known.sequence) positions.set(item.topic, before);
      }
    }
    return Object.fromEntries(positions);
  }

  /** Adds a handler; the function that it answers takes it away. */
  on<Name extends keyof SubscriptionEvents<T>>(
    name: Name,
    handler: (event: SubscriptionEvents<T>[Name]) => void,
    options?: OnOptions,
  ): () => void {
    return this.#emitter.on(name, handler, options);
  }

  /** Resolves when it is live; rejects when it ends before. */
  ready(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const { signal } = options;
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.#state === "live") return Promise.resolve();
    const reason = this.#state === "ended" ? (this.#error ?? ended()) : this.#owner.stopped();
    if (reason) return Promise.reject(reason);
    return new Promise((resolve, reject) => {
      const abort = () => entry.reject(signal?.reason);
      const settle = () => {
        this.#awaiting.delete(entry);
        signal?.removeEventListener("abort", abort);
      };
      const entry = {
        resolve: () => (settle(), resolve()),
        reject: (error: unknown) => (settle(), reject(error)),
      };
      this.#awaiting.add(entry);
      signal?.addEventListener("abort", abort);
    });
  }

  /** Reads publications in a `for await` loop, from now on. With `gaps`, gaps come in their place among them. */
  stream(options: StreamOptions & { readonly gaps: true }): Stream<Publication<T> | Gap>;
  stream(options?: StreamOptions): Stream<Publication<T>>;
  stream(options: StreamOptions & { readonly gaps?: boolean } = {}): Stream<Publication<T>> | Stream<Streamed<T>> {
    const goOn = () => {
      if (this.isBehind) queueMicrotask(() => this.#goOn());
    };
    const release = () => {
      this.#streams.delete(entry);
      this.#left = stream;
      goOn();
    };
    const stream = new Stream<Streamed<T>>(options, release, goOn);
    this.#left = undefined;
    const entry = { stream, wantsGaps: options.gaps === true };
    const reason = this.#error ?? this.#owner.stopped();
    if (reason) stream.fail(reason);
    else if (this.#state === "ended") stream.finish();
    else this.#streams.add(entry);
    return stream;
  }

  /** A stream with the default buffer. Leaving the loop ends the stream, not the subscription. */
  [Symbol.asyncIterator](): Stream<Publication<T>> {
    return this.stream();
  }

  /** Ends it, also while there is no connection. Nothing is told any more but its end. */
  unsubscribe(): void {
    if (this.#state === "ended") return;
    this.#owner.unsubscribe();
    this.end();
  }

  /** @internal Ends it at once, whatever is kept back. */
  end(): void {
    this.#kept.clear();
    this.#handleState("ended", undefined);
    this.#owner.handleCaughtUp();
  }

  /** @internal Whether something is kept back. */
  get isBehind(): boolean {
    return this.#kept.size > 0;
  }

  /** @internal Gives up the loops that keep things back. */
  overflow(): void {
    [...this.#streams].forEach(({ stream }) => stream.isFull && stream.overflow());
  }

  /** @internal Takes what the client has for it. */
  handleNotice(notice: Notice): void {
    const isEnd = "state" in notice && notice.state === "ended";
    // What it is at is told at once, but that there is nothing more.
    if ("state" in notice && !isEnd) this.#handleState(notice.state, notice.error);
    else if (this.isBehind || this.#isFull) this.#kept.add(notice);
    else this.#take(notice);
  }

  get #isFull(): boolean {
    for (const { stream } of this.#streams) if (stream.isFull) return true;
    return false;
  }

  #goOn(): void {
    for (const notice of this.#kept) {
      if (this.#isFull) return;
      this.#kept.delete(notice);
      this.#take(notice);
    }
    this.#owner.handleCaughtUp();
  }

  #take(notice: Notice): void {
    if ("state" in notice) return this.#handleState(notice.state, notice.error);
    if (this.#state === "ended") return;
    const { told } = notice;
    if ("epoch" in told) this.#note(told.topic, { epoch: told.epoch, sequence: told.type === "gap" ? told.to : told.sequence });
    switch (told.type) {
      case "publication":
        this.#push(told as Publication<T>);
        this.#emitter.emit(told.isSnapshot ? "snapshot" : "update", told as Publication<T>);
        break;
      case "gap":
        this.#push(told);
        this.#emitter.emit("gap", told);
        break;
      case "resumed":
        this.#emitter.emit("resumed", told);
        break;
      case "complete":
        this.#emitter.emit("complete", undefined);
        break;
      case "lag":
        this.#emitter.emit("lag", { ms: told.ms });
    }
  }

  /** @internal Ends open loops and waits, because the client stopped; answers whether there were any. */
  interrupt(error: TidegateError): boolean {
    const wasAwaited = this.#streams.size + this.#awaiting.size > 0;
    [...this.#streams].forEach(({ stream }) => stream.fail(error));
    [...this.#awaiting].forEach((waiting) => waiting.reject(error));
    return wasAwaited;
  }

  /** Notes what is handed out, if there is anybody who takes it. */
  #note(topic: string, position: Position): void {
    const isRead = this.#streams.size > 0 || this.#emitter.has("update") || this.#emitter.has("snapshot");
    if (isRead || !this.#taken.has(topic)) this.#taken.set(topic, position);
  }

  #push(item: Streamed<T>): void {
    for (const { stream, wantsGaps } of [...this.#streams]) {
      if (wantsGaps || item.type === "publication") stream.push(item);
    }
  }

  #handleState(state: SubscriptionState, error: TidegateError | undefined): void {
    if (this.#state === "ended") return;
    this.#state = state;
    if (state === "live") [...this.#awaiting].forEach((waiting) => waiting.resolve());
    if (state === "ended") this.#handleEnd(error);
    this.#emitter.emit("state", { state, ...(error && { error }) });
  }

  #handleEnd(error: TidegateError | undefined): void {
    this.#error = error;
    const wasAwaited = error !== undefined && this.interrupt(error);
    [...this.#streams].forEach(({ stream }) => stream.finish());
    [...this.#awaiting].forEach((waiting) => waiting.reject(ended()));
    if (error === undefined) return;
    // Nobody may miss it: who has no handler here has it told by the client.
    const isHandled = this.#emitter.emit("error", error);
    if (!isHandled && !wasAwaited) this.#owner.report(error);
  }
}

/** A place from which this is told again. Where a numbering began anew that is any of another life. */
function placeBefore({ epoch, ...item }: Publication | Gap): Position {
  if (item.type === "publication") return { epoch, sequence: item.sequence - 1 };
  return item.from === undefined ? { epoch: "-", sequence: 0 } : { epoch, sequence: item.from - 1 };
}

function ended(): TidegateError {
  return new TidegateError(LocalCode.Closed, "cannot wait for the subscription: it has ended; subscribe again");
}
