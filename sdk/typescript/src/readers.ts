/** Who reads which topic: an index over selectors, so that thousands of subscriptions cost a look-up. Pure. */

import { isPattern, overlaps, selects } from "./selector.js";

/** Something that reads what its selectors select. */
export interface Reader {
  readonly selectors: readonly string[];
}

/** All readers, found by topic. */
export class Readers<R extends Reader> {
  readonly #bySelector = new Map<string, Set<R>>();
  readonly #patterns = new Set<string>();
  /** What was looked up; forgotten when anything changes. */
  readonly #found = new Map<string, readonly R[]>();

  /** Adds a reader. */
  add(reader: R): void {
    this.#found.clear();
    for (const selector of reader.selectors) {
      if (isPattern(selector)) this.#patterns.add(selector);
      const readers = this.#bySelector.get(selector);
      if (readers) readers.add(reader);
      else this.#bySelector.set(selector, new Set([reader]));
    }
  }

  /** Removes a reader, which must have the selectors that it was added with. */
  remove(reader: R): void {
    this.#found.clear();
    for (const selector of reader.selectors) {
      const readers = this.#bySelector.get(selector);
      readers?.delete(reader);
      if (readers?.size !== 0) continue;
      this.#bySelector.delete(selector);
      this.#patterns.delete(selector);
    }
  }

  /** Whether anybody has exactly this selector. */
  has(selector: string): boolean {
    return this.#bySelector.has(selector);
  }

  /** Those that have exactly this selector. */
  with(selector: string): Iterable<R> {
    return this.#bySelector.get(selector) ?? [];
  }

  /** Whether anybody may read a topic that `selector` selects. */
  overlap(selector: string): boolean {
    if (!isPattern(selector)) return this.of(selector).length > 0;
    for (const other of this.#bySelector.keys()) if (overlaps(selector, other)) return true;
    return false;
  }

  /** Those that read `topic`. */
  of(topic: string): readonly R[] {
    const known = this.#found.get(topic);
    if (known !== undefined) return known;
    const found = new Set(this.#bySelector.get(topic));
    for (const pattern of this.#patterns) {
      if (selects(pattern, topic)) this.#bySelector.get(pattern)!.forEach((reader) => found.add(reader));
    }
    const readers = [...found];
    this.#found.set(topic, readers);
    return readers;
  }
}
