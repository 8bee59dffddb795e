/**
 * Publishing without a connection, for backends: `new Publisher("http://localhost:8470")`. docs/protocol.md#http-api.
 *
 * Each publication is one of a `POST /v1/publish`, with an idempotency key unless told otherwise, so that sending it again
 * keeps it once. An entry of its own, so that pages do not load it.
 *
 * @module
 */

import { pauseMs } from "./backoff.js";
import { adviceOf, LocalCode, TidegateError } from "./errors.js";
import { httpUrl, refusalOf, retryAfterMs } from "./http.js";
import type { Abortable, Published, PublishOptions, TokenProvider } from "./options.js";
import type { PayloadKind } from "./protocol.js";
import { encodePayload } from "./protocol.js";

/** How to publish over HTTP. */
export interface PublisherOptions {
  /** A token, or what to ask for one: at first, and whenever the server refuses the last. */
  readonly token?: string | TokenProvider;
  /** How long a publish may take, tries included, in milliseconds. Default 10,000. */
  readonly publishMs?: number;
  /** Whether publications that have no key get one, so that they can be sent again. Default true. */
  readonly keys?: boolean;
  /** Requests at a time. Default 16. */
  readonly requestsMax?: number;
  /** Calls that may wait for their turn. Default 10,000; then 4902. */
  readonly queueMax?: number;
  /** What sends requests, such as one with a proxy. Default the runtime's own `fetch`, which keeps connections open. */
  readonly fetch?: typeof fetch;
}

/** One of several publications. */
export interface Draft {
  readonly topic: string;
  readonly data: unknown;
  readonly key?: string;
  readonly expect?: number;
  readonly kind?: PayloadKind;
}

/** What goes into one request at most: publications, and characters unless one alone has more. */
const BATCH_MAX = 1_000;
const BATCH_LENGTH_MAX = 1 << 19;

/** The longest time that a timer takes. */
const TIMER_MAX_MS = 2 ** 31 - 1;

const PAUSES = { firstMs: 250, lastMs: 5_000 };

/** Codes of tokens that are not good any more. */
const TOKEN_REFUSED: readonly number[] = [4300, 4305];

interface Item {
  readonly index: number;
  readonly text: string;
  readonly hasKey: boolean;
  /** Whether it may have been kept. */
  isDoubtful: boolean;
}

/** A call: what is left of it, what came of it, and until when it may go on. */
interface Call {
  left: Item[];
  readonly outcomes: (Published | TidegateError)[];
  readonly signal: AbortSignal;
  readonly ms: number;
  /** Why what is left was not answered. */
  why: string;
}

/** Publishes over HTTP. It holds nothing that has to be closed. */
export class Publisher {
  readonly #url: string;
  readonly #options: PublisherOptions;
  readonly #keys: string = randomText();
  #keysGiven = 0;
  #token: string | undefined;
  #needsToken: boolean;
  #refused: TidegateError | undefined;
  #requests = 0;
  readonly #waiting: (() => void)[] = [];

  /** A publisher to the server at `url`, such as `http://localhost:8470`. Throws if it is not an address. */
  constructor(url: string, options: PublisherOptions = {}) {
    this.#url = httpUrl(url, "publish", {});
    this.#options = options;
    this.#needsToken = typeof options.token === "function";
    if (typeof options.token === "string") this.#token = options.token;
  }

  /**
   * Publishes, and tells where it was kept.
   *
   * Rejects with the server's refusal, or when the time is up: 4906, it was never sent; 4900, it may have been kept. What a
   * break or a busy server left open is sent again, if it has a key.
   */
  async publish(topic: string, data: unknown, options: PublishOptions = {}): Promise<Published> {
    const { signal, timeoutMs, ...rest } = options;
    const [outcome] = await this.publishAll([{ topic, data, ...rest }], { signal, timeoutMs });
    if (outcome instanceof TidegateError) throw outcome;
    return outcome!;
  }

  /**
   * Publishes several, in this order, in as few requests as they go into. Answers for each, in order, where it was kept or why
   * not; what a busy server puts off is sent again after the others. Rejects only if `signal` is aborted, or one cannot be published at all.
   */
  async publishAll(
    drafts: Iterable<Draft>,
    { signal, timeoutMs = this.#options.publishMs ?? 10_000 }: Abortable & { readonly timeoutMs?: number } = {},
  ): Promise<(Published | TidegateError)[]> {
    signal?.throwIfAborted();
    const left = [...drafts].map((draft, index) => this.#item(draft, index));
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = setTimeout(abort, Math.min(timeoutMs, TIMER_MAX_MS));
    signal?.addEventListener("abort", abort);
    const call: Call = { left, outcomes: [], signal: stop.signal, ms: timeoutMs, why: "no answer came" };
    try {
      await this.#carryOut(call);
      signal?.throwIfAborted();
      for (const item of call.left) call.outcomes[item.index] = unanswered(item, call);
      return call.outcomes;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  #item({ topic, data, expect, kind, key = this.#nextKey() }: Draft, index: number): Item {
    const text = JSON.stringify({ topic, key, expect, ...encodePayload(data, kind) });
    return { index, text, hasKey: key !== undefined, isDoubtful: false };
  }

  #nextKey(): string | undefined {
    return this.#options.keys === false ? undefined : `${this.#keys}-${(this.#keysGiven += 1)}`;
  }

  /** Sends what is left until nothing is, or nothing may be sent any more. */
  async #carryOut(call: Call): Promise<void> {
    for (let attempt = 0; call.left.length > 0 && !call.signal.aborted; attempt += 1) {
      const before = call.left;
      call.left = [];
      let asked = 0;
      for (const batch of batches(before)) asked = Math.max(asked, await this.#send(batch, call));
      if (call.left.length > 0) await pause(pauseMs(attempt, { retryAfterMs: asked }, PAUSES, Math.random), call.signal);
    }
  }

  /** Sends a batch; answers for how long the server wants to be left alone. What is to be sent again goes to what is left. */
  async #send(batch: readonly Item[], call: Call): Promise<number> {
    if (call.signal.aborted) return (call.left.push(...batch), 0);
    let isSent = false;
    try {
      await this.#turn(call.signal);
      try {
        const token = await this.#tokenFor(call.signal);
        isSent = true;
        return await this.#post(batch, token, call);
      } finally {
        this.#requests -= 1;
        this.#waiting.shift()?.();
      }
    } catch (error) {
      return this.#handleFailure(error, batch, call, isSent);
    }
  }

  async #post(batch: readonly Item[], token: string | undefined, call: Call): Promise<number> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    const body = `{"publications":[${batch.map(({ text }) => text).join()}]}`;
    const init = { method: "POST", headers, body, signal: call.signal } as const;
    const response = await (this.#options.fetch ?? fetch)(this.#url, init);
    if (!response.ok) throw await refusalOf(response);
    const { results } = (await response.json()) as { results?: readonly (Published & { code?: number; error: string })[] };
    if (results?.length !== batch.length) throw new Error("the answer is not one of a Tidegate server");
    batch.forEach((item, at) => {
      const { code, error, ...kept } = results[at]!;
      const refusal = code === undefined ? undefined : new TidegateError(code, error);
      if (refusal && isPutOff(refusal)) call.left.push(item);
      else call.outcomes[item.index] = refusal ?? kept;
      if (refusal) call.why = refusal.message;
    });
    return 0;
  }

  #handleFailure(error: unknown, batch: readonly Item[], call: Call, isSent: boolean): number {
    const refusal = error instanceof TidegateError ? error : undefined;
    const mayHaveToken = refusal && TOKEN_REFUSED.includes(refusal.code) && typeof this.#options.token === "function";
    if (mayHaveToken) [this.#needsToken, this.#refused] = [true, refusal];
    if (refusal && !mayHaveToken && !isPutOff(refusal)) {
      batch.forEach(({ index }) => (call.outcomes[index] = refusal));
      return 0;
    }
    if (!call.signal.aborted) call.why = String(error instanceof Error ? error.message : error);
    // Where nobody listens nothing was taken.
    const isDoubtful = isSent && !refusal && !isUnheard(error);
    for (const item of batch) {
      item.isDoubtful ||= isDoubtful;
      if (item.isDoubtful && !item.hasKey) call.outcomes[item.index] = unanswered(item, call);
      else call.left.push(item);
    }
    return retryAfterMs(error);
  }

  /** Waits until another request may be made. */
  async #turn(signal: AbortSignal): Promise<void> {
    const { requestsMax = 16, queueMax = 10_000 } = this.#options;
    while (this.#requests >= requestsMax) {
      if (this.#waiting.length >= queueMax) {
        const text = `cannot publish: ${queueMax} calls wait for their turn; await them, or raise queueMax`;
        throw new TidegateError(LocalCode.QueueFull, text);
      }
      await new Promise<void>((resolve, reject) => {
        const wake = () => (signal.removeEventListener("abort", abort), resolve());
        const abort = () => (this.#waiting.splice(this.#waiting.indexOf(wake), 1), reject(signal.reason));
        this.#waiting.push(wake);
        signal.addEventListener("abort", abort, { once: true });
        if (signal.aborted) abort();
      });
    }
    this.#requests += 1;
  }

  async #tokenFor(signal: AbortSignal): Promise<string | undefined> {
    if (!this.#needsToken) return this.#token;
    const provider = this.#options.token as TokenProvider;
    this.#token = await provider({ refused: this.#refused, signal });
    [this.#needsToken, this.#refused] = [false, undefined];
    return this.#token;
  }
}

/** Whether the server may take it later. */
function isPutOff({ code }: TidegateError): boolean {
  const advice = adviceOf(code);
  return advice === "retry-now" || advice === "retry-later";
}

/** Whether the connection was not even opened, as Node tells. */
function isUnheard(error: unknown): boolean {
  const { code } = ((error as Error)?.cause ?? {}) as { code?: string };
  return code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "UND_ERR_CONNECT_TIMEOUT";
}

function unanswered({ isDoubtful, hasKey }: Item, { why, ms }: Call): TidegateError {
  if (!isDoubtful) {
    const text = `cannot publish: nothing was taken within ${ms} ms (${why}), and it was not kept; try again, or wait longer`;
    return new TidegateError(LocalCode.NotSent, text);
  }
  const how = hasKey ? "give it a `key` of your own, then it can be published again" : "give it a key, then it is sent again by itself";
  const text = `this may or may not have been kept: ${why}; ${how}`;
  return new TidegateError(LocalCode.Unanswered, text);
}

/** In requests of a size that every server takes. */
function* batches(items: readonly Item[]): Generator<Item[]> {
  let batch: Item[] = [];
  let length = 0;
  for (const item of items) {
    if (batch.length === BATCH_MAX || (batch.length > 0 && length + item.text.length > BATCH_LENGTH_MAX)) {
      yield batch;
      [batch, length] = [[], 0];
    }
    batch.push(item);
    length += item.text.length;
  }
  if (batch.length > 0) yield batch;
}

/** Resolves after that many milliseconds, or when `signal` is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

/** Text that nobody else comes upon. Node 18 has no `crypto` of its own. */
function randomText(): string {
  const bytes = globalThis.crypto?.getRandomValues(new Uint8Array(16));
  const numbers = bytes ? [...bytes] : Array.from({ length: 16 }, () => Math.floor(Math.random() * 256));
  return numbers.map((number) => number.toString(16).padStart(2, "0")).join("");
}
