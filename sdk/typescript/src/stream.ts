/** A bounded buffer between what arrives and a `for await` loop. */

import { LocalCode, TidegateError } from "./errors.js";

/** How a stream holds what its reader has not taken yet. */
export interface StreamOptions {
  /** How many it holds. Default 1,000. */
  readonly capacity?: number;
  /**
   * What happens when another comes: "wait" (default) keeps back all that the subscription tells, and has nothing more read
   * from the server where the transport can do that; "fail" ends the loop with an error once what is held was taken;
   * "drop-oldest" forgets the oldest and counts it in `dropped`.
   */
  readonly whenFull?: "wait" | "fail" | "drop-oldest";
  /** Ends the loop at once, with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What a `for await` loop reads. One reader at a time. */
export class Stream<Item> implements AsyncIterableIterator<Item> {
  readonly #capacity: number;
  readonly #whenFull: StreamOptions["whenFull"];
  readonly #handleTaken: () => void;
  readonly #held: Item[] = [];
  #unread: readonly Item[] = [];
  readonly #takers: { resolve(result: IteratorResult<Item>): void; reject(error: unknown): void }[] = [];
  readonly #release: () => void;
  #end: { readonly error?: unknown } | undefined;
  #dropped = 0;

  /** @internal `release` is called once, when nothing more has to be pushed; `handleTaken` after each item that was held. */
  constructor(options: StreamOptions, release: () => void, handleTaken: () => void = () => {}) {
    const { capacity = 1_000, whenFull = "wait", signal } = options;
    this.#handleTaken = handleTaken;
    if (!(capacity >= 1)) throw new RangeError(`cannot hold ${capacity}: a stream's capacity is at least 1`);
    [this.#capacity, this.#whenFull] = [capacity, whenFull];
    const abort = () => {
      this.#unread = this.#held.splice(0);
      this.fail(signal?.reason);
    };
    this.#release = () => {
      signal?.removeEventListener("abort", abort);
      release();
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort);
  }

  /** How many were forgotten because the reader was too slow. */
  get dropped(): number {
    return this.#dropped;
  }

  /** @internal Whether nothing may be pushed now. */
  get isFull(): boolean {
    return this.#whenFull === "wait" && this.#held.length >= this.#capacity;
  }

  /** @internal What its reader has not taken, the oldest first; also what it never will, because it left. */
  get untaken(): readonly Item[] {
    return [...this.#held, ...this.#unread];
  }

  /** @internal Gives an item to the reader, or holds it. */
  push(item: Item): void {
    if (this.#end) return;
    const taker = this.#takers.shift();
    if (taker) return taker.resolve({ done: false, value: item });
    if (this.#held.length >= this.#capacity) {
      if (this.#whenFull === "fail") return this.overflow([item]);
      this.#held.shift();
      this.#dropped += 1;
    }
    this.#held.push(item);
  }

  /** @internal Ends it: what is held can still be taken. */
  finish(): void {
    this.#close({});
  }

  /** @internal Ends it with an error, after what is held. */
  fail(error: unknown): void {
    this.#close({ error });
  }

  /** The next item; waits for it. */
  next(): Promise<IteratorResult<Item>> {
    const item = this.#held.shift();
    if (item !== undefined) {
      this.#handleTaken();
      return Promise.resolve({ done: false, value: item });
    }
    if (this.#end === undefined) return new Promise((resolve, reject) => this.#takers.push({ resolve, reject }));
    const { error } = this.#end;
    // An error is told once.
    this.#end = {};
    return error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
  }

  /** Ends it from the reader's side, as leaving a loop does. */
  return(): Promise<IteratorResult<Item>> {
    this.#unread = this.#held.splice(0);
    this.#close({});
    this.#end = {};
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** @internal Ends it, because of these there is too much. */
  overflow(unread: readonly Item[] = []): void {
    this.#unread = unread;
    const text =
      `cannot hold another: ${this.#capacity} wait for their reader already; read faster, raise \`capacity\`, ` +
      "or use `whenFull: \"drop-oldest\"`";
    this.fail(new TidegateError(LocalCode.BufferFull, text));
  }

  #close(end: { readonly error?: unknown }): void {
    if (this.#end) return;
    this.#end = end;
    this.#release();
    const [first, ...others] = this.#takers.splice(0);
    if (first === undefined) return;
    if (end.error !== undefined) first.reject(end.error);
    else first.resolve({ done: true, value: undefined });
    this.#end = {};
    others.forEach((taker) => taker.resolve({ done: true, value: undefined }));
  }
}
