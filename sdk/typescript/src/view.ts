/** What user interfaces show of a subscription: the newest values and the state. Base of `react` and `svelte`. */

import type { Client } from "./client.js";
import type { TidegateError } from "./errors.js";
import type { Subscription } from "./subscription.js";
import type { ReadOptions, SubscriptionState } from "./subscriptions.js";
import type { PayloadOf } from "./topics.js";
import type { Gap, Publication } from "./tracker.js";

/** What is known of a selector at a moment. Never changed: a change makes a new one. */
export interface View<T> {
  /** The payload of the newest publication, of whichever topic; `undefined` before there is one. */
  readonly data: T | undefined;
  /** The newest publication. */
  readonly publication: Publication<T> | undefined;
  /** The newest publication of each topic, for patterns. */
  readonly topics: ReadonlyMap<string, Publication<T>>;
  /** The newest gap. */
  readonly gap: Gap | undefined;
  /** What the subscription is at; "live" means that the values are current. */
  readonly state: SubscriptionState;
  /** Why the server ended the subscription, or will not have the client. */
  readonly error: TidegateError | undefined;
}

/** A view that is current while somebody listens. */
export interface ViewSource<T> {
  /** Subscribes with the first listener, unsubscribes with the last. */
  readonly listen: (listener: () => void) => () => void;
  /** The view now; the same object until something changes. */
  readonly get: () => View<T>;
}

/** Makes a view of what a client reads. All that arrives in one message is one change. */
export function viewOf<Topics extends object, Selector extends string>(
  client: Client<Topics>,
  selectors: Selector | readonly Selector[],
  options?: ReadOptions,
): ViewSource<PayloadOf<Topics, Selector>> {
  type T = PayloadOf<Topics, Selector>;
  const listeners = new Set<() => void>();
  const topics = new Map<string, Publication<T>>();
  const waiting = { data: undefined, publication: undefined, gap: undefined, error: undefined };
  let view: View<T> = { ...waiting, topics: new Map(), state: "waiting" };
  let pending: Partial<View<T>> | undefined;
  let subscription: Subscription<T> | undefined;
  let release = () => {};

  const flush = () => {
    if (pending === undefined) return;
    view = { ...view, ...pending, topics: pending.publication ? new Map(topics) : view.topics };
    pending = undefined;
    [...listeners].forEach((listener) => listener());
  };
  const change = (part: Partial<View<T>>) => {
    if (pending === undefined) queueMicrotask(flush);
    pending = { ...pending, ...part };
  };
  const take = (publication: Publication<T>) => {
    topics.set(publication.topic, publication);
    change({ publication, data: publication.data });
  };
  const begin = () => {
    const begun = client.subscribe(selectors, options);
    if (view.error) change({ error: undefined, state: begun.state });
    begun.on("snapshot", take);
    begun.on("update", take);
    begun.on("gap", (gap) => change({ gap }));
    begun.on("error", (error) => change({ error }));
    release = client.on("state", ({ state, error }) => {
      if (state === "stopped") change({ error });
    });
    begun.on("state", ({ state }) => {
      if (begun === subscription) change({ state });
    });
    return begun;
  };
  return {
    listen: (listener) => {
      // A function of its own, so that the same listener can listen twice.
      const entry = () => listener();
      listeners.add(entry);
      subscription ??= begin();
      return () => {
        listeners.delete(entry);
        if (listeners.size > 0) return;
        const ended = subscription;
        subscription = undefined;
        release();
        ended?.unsubscribe();
      };
    },
    get: () => view,
  };
}
