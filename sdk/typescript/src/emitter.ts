/** Handlers by name of event. */

/** Options of `on`. */
export interface OnOptions {
  /** Takes the handler away when it is aborted. */
  readonly signal?: AbortSignal;
}

/** Calls handlers. What one of `name` throws goes to `report`, and the others are called all the same. */
export class Emitter<Events extends object> {
  readonly #handlers = new Map<keyof Events, Set<(event: never) => void>>();
  readonly #report: (error: unknown, name: keyof Events) => void;

  constructor(report: (error: unknown, name: keyof Events) => void) {
    this.#report = report;
  }

  /** Adds a handler; the function that it answers takes it away. */
  on<Name extends keyof Events>(name: Name, handler: (event: Events[Name]) => void, options?: OnOptions): () => void {
    const signal = options?.signal;
    if (signal?.aborted) return () => {};
    const handlers = this.#handlers.get(name) ?? new Set();
    this.#handlers.set(name, handlers);
    // A function of its own, so that a handler added twice is called, and taken away, twice.
    const entry = (event: Events[Name]) => handler(event);
    handlers.add(entry);
    const off = () => {
      handlers.delete(entry);
      signal?.removeEventListener("abort", off);
    };
    signal?.addEventListener("abort", off);
    return off;
  }

  /** Whether anybody handles `name`. */
  has(name: keyof Events): boolean {
    return (this.#handlers.get(name)?.size ?? 0) > 0;
  }

  /** Calls the handlers of `name`; answers whether there were any. */
  emit<Name extends keyof Events>(name: Name, event: Events[Name]): boolean {
    const handlers = [...(this.#handlers.get(name) ?? [])];
    for (const handler of handlers) {
      try {
        (handler as (event: Events[Name]) => void)(event);
      } catch (error) {
        this.#report(error, name);
      }
    }
    return handlers.length > 0;
  }
}

/** Throws outside of everything that is under way, so that an error in a handler is seen like any other. */
export function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
