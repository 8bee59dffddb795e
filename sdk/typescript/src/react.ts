/**
 * The React hook. React is a peer dependency.
 *
 * @module
 */

import { useMemo, useSyncExternalStore } from "react";

import type { Client } from "./client.js";
import type { ReadOptions } from "./subscriptions.js";
import type { PayloadOf } from "./topics.js";
import type { View } from "./view.js";
import { viewOf } from "./view.js";

export type { View } from "./view.js";

/**
 * Reads a topic, or all that a pattern selects, while the component is mounted; renders again when it changes.
 *
 * `options` may be written in place: what counts is what they say, not which object they are.
 */
export function useTopic<Topics extends object, Selector extends string>(
  client: Client<Topics>,
  selector: Selector | readonly Selector[],
  options?: ReadOptions,
): View<PayloadOf<Topics, Selector>> {
  const wanted = JSON.stringify([selector, options]);
  const source = useMemo(() => {
    const [selectors, read] = JSON.parse(wanted) as [Selector | Selector[], ReadOptions | null];
    return viewOf(client, selectors, read ?? undefined);
  }, [client, wanted]);
  return useSyncExternalStore(source.listen, source.get, source.get);
}
