/**
 * The Svelte store: any version, since a store is only an agreement.
 *
 * @module
 */

import type { Client } from "./client.js";
import type { ReadOptions } from "./subscriptions.js";
import type { PayloadOf } from "./topics.js";
import type { View } from "./view.js";
import { viewOf } from "./view.js";

export type { View } from "./view.js";

/** A store that can be read, as Svelte's `$store` wants it. */
export interface TopicStore<T> {
  /** Calls `run` with the view now and whenever it changes, until the answer is called. */
  readonly subscribe: (run: (view: View<T>) => void) => () => void;
}

/** A store of a topic, or of all that a pattern selects. It reads while somebody is subscribed to it. */
export function topicStore<Topics extends object, Selector extends string>(
  client: Client<Topics>,
  selector: Selector | readonly Selector[],
  options?: ReadOptions,
): TopicStore<PayloadOf<Topics, Selector>> {
  const source = viewOf(client, selector, options);
  return {
    subscribe: (run) => {
      run(source.get());
      return source.listen(() => run(source.get()));
    },
  };
}
