/**
 * Requests that one session asks and another one answers: `new Services(client)`. docs/protocol.md#requests.
 *
 * An entry of its own, so that who only subscribes and publishes does not load it.
 *
 * @module
 */

import type { Client, Part, Seat } from "./client.js";
import { LocalCode, TidegateError } from "./errors.js";
import type { Abortable } from "./options.js";
import type { Event, PayloadKind } from "./protocol.js";
import { decodePayload, encodePayload } from "./protocol.js";
import { isPattern, selects } from "./selector.js";
import { Stream } from "./stream.js";

/** The code of an answer that says that this client handles no such requests. */
const NOT_HANDLED = 4107;

/** How to ask. */
export interface RequestOptions extends Abortable {
  /** How long the answer may take, in milliseconds; a wait for a connection counts. Default 10,000. */
  readonly timeoutMs?: number;
  /** Only this session may answer. */
  readonly session?: string;
  /** Only sessions of this principal may answer. */
  readonly principal?: string;
  /** Only sessions for which this CEL expression over `session`, `principal` and `client` is true may answer. */
  readonly filter?: string;
  /** An idempotency key: the request is sent again after a break, and carried out once. */
  readonly key?: string;
  /** What kind of payload it is. Default "bytes" for a `Uint8Array`, else "json". */
  readonly kind?: PayloadKind;
}

/** One of several answers. */
export interface Answer<T = any> {
  /** The session that answered. */
  readonly from: string;
  readonly kind: PayloadKind;
  readonly data: T;
}

/** What is to be answered. */
export interface Request<T = any> {
  readonly topic: string;
  readonly kind: PayloadKind;
  readonly data: T;
  /** The session that asks, and its principal. */
  readonly from: string;
  readonly principal: string | undefined;
  /** How long the answer may take, in milliseconds. */
  readonly timeoutMs: number;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** Answers a request: the value is the answer's payload; what is thrown declines it (4221), with its message. */
export type AnswerRequest<T = any> = (request: Request<T>) => unknown;

/** How to handle requests. */
export interface HandleOptions extends Abortable {
  /** How many may be open at a time. Default 64. */
  readonly concurrency?: number;
}

/** The answers to `requestAll`, in a `for await` loop; it ends when all have answered, or the time is up. */
export class Answers<T = any> extends Stream<Answer<T>> {
  /** How many sessions were asked and did not answer; known when the loop has ended. */
  missing = 0;
}

/** The time a request may take, unless it says otherwise. */
const TIMEOUT_MS = 10_000;

/** How much later than the server a client gives up on an answer, and how long it waits before it registers again. */
const LATER_MS = 500;

/** Asks and answers over a client. */
export class Services {
  readonly #handlers = new Set<Handler>();
  readonly #seat: Seat;

  /** One for each client. */
  constructor(client: Client<any>) {
    const handlers = this.#handlers;
    const part: Part = {
      get isIdle() {
        return [...handlers].every(({ isIdle }) => isIdle);
      },
      handleConnected: () => handlers.forEach((handler) => handler.handleConnected()),
      handleDisconnect: () => handlers.forEach((handler) => handler.handleDisconnect()),
      handleEvent: (event) => event.type === "request" && (this.#handleRequest(event), true),
    };
    this.#seat = client.attach(part);
  }

  /**
   * Asks, and answers the answer's payload. Rejects with what went wrong: nobody handles the topic (4107), no answer in
   * time (4108), the session that had it ended (4109), all handlers are full (4110), it was declined (4221). When the
   * connection breaks before the answer it may have been carried out (4900); with a `key` it is sent again.
   */
  async request<T = any>(topic: string, data: unknown, options: RequestOptions = {}): Promise<T> {
    const event = await this.#ask(commandOf(topic, data, options), options);
    return decodePayload(event as Event & { type: "response" }).data as T;
  }

  /** Asks every session that handles the topic; the answers come as they are given. */
  requestAll<T = any>(topic: string, data: unknown, options: RequestOptions = {}): Answers<T> {
    const left = new AbortController();
    const { signal } = options;
    const answers = new Answers<T>({ capacity: Infinity, ...(signal && { signal }) }, () => left.abort());
    const take = (event: Event) => {
      const { from, ...payload } = event as Event & { type: "response" };
      answers.push({ from, ...decodePayload(payload) } as Answer<T>);
    };
    const command = { ...commandOf(topic, data, options), all: true };
    this.#ask(command, { ...options, signal: left.signal }, take).then(
      (event) => {
        answers.missing = (event as Event & { type: "responded" }).missing;
        answers.finish();
      },
      (error) => answers.fail(error),
    );
    return answers;
  }

  /** Answers requests to what is selected, now and after every break, until it ends or `signal` is aborted. */
  handle<T = any>(selectors: string | readonly string[], answer: AnswerRequest<T>, options: HandleOptions = {}): Handler {
    const list = typeof selectors === "string" ? [selectors] : [...new Set(selectors)];
    for (const { selectors: taken } of this.#handlers) {
      const twice = taken.find((selector) => list.includes(selector));
      if (twice === undefined) continue;
      throw new TidegateError(LocalCode.Misused, `cannot handle ${twice} twice: this client does already; end that first`);
    }
    const handler = new Handler(this.#seat, list, answer, options, () => this.#handlers.delete(handler));
    this.#handlers.add(handler);
    handler.handleConnected();
    return handler;
  }

  async #ask(command: object, { timeoutMs = TIMEOUT_MS, key, signal }: RequestOptions, more?: (event: Event) => void) {
    signal?.throwIfAborted();
    const late = new AbortController();
    const text = `cannot wait longer for the answer: there was none within ${timeoutMs} ms; check who handles it, or give it longer`;
    // The server tells it first, if there is a connection to it.
    const timer = setTimeout(() => late.abort(new TidegateError(4108, text)), timeoutMs + LATER_MS);
    const abort = () => late.abort(signal!.reason);
    signal?.addEventListener("abort", abort);
    const afterBreak = key === undefined ? "fail" : "ask-again-while-remembered";
    try {
      return await this.#seat.ask(command, afterBreak, late.signal, more);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  #handleRequest(event: Event & { type: "request" }): void {
    let best: { handler: Handler; selector: string } | undefined;
    for (const handler of this.#handlers) {
      for (const selector of handler.selectors) {
        if (!selects(selector, event.topic)) continue;
        if (best === undefined || isMoreSpecific(selector, best.selector)) best = { handler, selector };
      }
    }
    // One that ended meanwhile: somebody else may handle it.
    if (best === undefined) this.#seat.tell({ type: "respond", request: event.request, error: "this client does not handle it any more", code: NOT_HANDLED });
    else void best.handler.answer(event);
  }
}

/** A registration to handle requests. */
export class Handler {
  readonly selectors: readonly string[];
  readonly #seat: Seat;
  readonly #answer: AnswerRequest;
  readonly #concurrency: number | undefined;
  readonly #release: () => void;
  readonly #open = new Set<AbortController>();
  #state: "waiting" | "asked" | "live" | "ended" = "waiting";
  #ready = new Settled();

  /** @internal Use `Services.handle`. */
  constructor(seat: Seat, selectors: readonly string[], answer: AnswerRequest, options: HandleOptions, release: () => void) {
    [this.#seat, this.selectors, this.#answer] = [seat, selectors, answer];
    const { concurrency, signal } = options;
    const end = () => this.end();
    signal?.throwIfAborted();
    signal?.addEventListener("abort", end);
    this.#concurrency = concurrency;
    this.#release = () => {
      signal?.removeEventListener("abort", end);
      release();
    };
  }

  /** Resolves when the server sends requests here; rejects when it refused to, or it ended. */
  ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Takes no more requests; those that are open may still be answered. */
  end(): void {
    if (this.#state === "ended") return;
    const wasKnown = this.#state === "asked" || this.#state === "live";
    this.#finish(new TidegateError(LocalCode.Closed, "cannot wait for the handler: it has ended; handle again"));
    if (wasKnown) this.#seat.tell({ type: "unhandle", topics: this.selectors });
  }

  /** @internal */
  get isIdle(): boolean {
    return this.#open.size === 0;
  }

  /** @internal Registers, also again. */
  handleConnected(): void {
    if (this.#state === "waiting") void this.#register();
  }

  /** @internal Forgets what was asked over the connection: nobody waits for these answers. */
  handleDisconnect(): void {
    // One that was not answered is sent again by itself.
    if (this.#state === "live") [this.#state, this.#ready] = ["waiting", new Settled()];
    this.#open.forEach((open) => open.abort());
    this.#open.clear();
  }

  /** @internal Answers a request, unless nobody waits for it any more. */
  async answer({ request, topic, timeout_ms, from, principal, ...payload }: Event & { type: "request" }): Promise<void> {
    const open = new AbortController();
    const { signal } = open;
    const timer = setTimeout(() => open.abort(), timeout_ms);
    this.#open.add(open);
    let response: object;
    try {
      const { kind, data } = decodePayload(payload);
      const value = await this.#answer({ topic, kind, data, from, principal, timeoutMs: timeout_ms, signal });
      response = encodePayload(value ?? null);
    } catch (error) {
      response = { error: error instanceof Error ? error.message : String(error) };
    }
    clearTimeout(timer);
    this.#open.delete(open);
    if (!signal.aborted) this.#seat.tell({ type: "respond", request, ...response });
  }

  async #register(): Promise<void> {
    this.#state = "asked";
    try {
      await this.#seat.ask({ type: "handle", topics: this.selectors, concurrency: this.#concurrency }, "ask-again");
      if (!this.#isEnded()) this.#state = "live";
      this.#ready.resolve();
    } catch (error) {
      if (this.#isEnded()) return;
      const { advice } = error as Partial<TidegateError>;
      if (advice !== "retry-now" && advice !== "retry-later") return this.#giveUp(error);
      this.#state = "waiting";
      setTimeout(() => this.handleConnected(), LATER_MS);
    }
  }

  #isEnded(): boolean {
    return this.#state === "ended";
  }

  #giveUp(error: unknown): void {
    const wasAwaited = this.#finish(error);
    // Who closed the client knows.
    if (!wasAwaited && (error as TidegateError).code !== LocalCode.Closed) this.#seat.report(error);
  }

  #finish(error: unknown): boolean {
    this.#state = "ended";
    this.#release();
    return this.#ready.reject(error);
  }
}

/** A promise that is settled from outside. */
class Settled {
  readonly #promise: Promise<void>;
  #isAwaited = false;
  resolve!: () => void;
  #reject!: (error: unknown) => void;

  constructor() {
    this.#promise = new Promise((resolve, reject) => ([this.resolve, this.#reject] = [resolve, reject]));
    // Nobody has to wait for it.
    this.#promise.catch(() => {});
  }

  get promise(): Promise<void> {
    this.#isAwaited = true;
    return this.#promise;
  }

  /** Answers whether anybody waited. */
  reject(error: unknown): boolean {
    this.#reject(error);
    return this.#isAwaited;
  }
}

function commandOf(topic: string, data: unknown, options: RequestOptions): object {
  const { timeoutMs = TIMEOUT_MS, session, principal, filter, key, kind } = options;
  const payload = encodePayload(data, kind);
  return { type: "request", topic, timeout_ms: timeoutMs, session, principal, filter, key, ...payload };
}

/** Whether `selector` goes before `other`: level by level a name before `+` before `#`. */
function isMoreSpecific(selector: string, other: string): boolean {
  const [left, right] = [selector.split("/").map(rankOf), other.split("/").map(rankOf)];
  const index = left.findIndex((rank, at) => rank !== (right[at] ?? NONE));
  return index >= 0 && left[index]! < (right[index] ?? NONE);
}

/** That of a level that is not there: "a" goes before "a/#". */
const NONE = -1;

function rankOf(level: string): number {
  return isPattern(level) ? (level === "+" ? 1 : 2) : 0;
}
