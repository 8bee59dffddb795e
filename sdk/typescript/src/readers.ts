/** Who reads which topic: selectors as a tree of their levels, so that thousands of subscriptions cost a look-up. Pure. */

/** Something that reads what its selectors select. */
export interface Reader {
  readonly selectors: readonly string[];
}

/** What selectors that begin alike have in common. */
interface Level<R> {
  readonly below: Map<string, Level<R>>;
  readonly readers: Set<R>;
}

/** All readers, found by topic. */
export class Readers<R extends Reader> {
  readonly #root: Level<R> = emptyLevel();
  /** Those that have exactly a selector. */
  readonly #bySelector = new Map<string, Set<R>>();
  /** What was looked up; forgotten when anything changes. */
  readonly #found = new Map<string, ReadonlySet<R>>();

  /** Adds a reader. */
  add(reader: R): void {
    this.#found.clear();
    for (const selector of reader.selectors) {
      let level = this.#root;
      for (const name of selector.split("/")) {
        if (!level.below.has(name)) level.below.set(name, emptyLevel());
        level = level.below.get(name)!;
      }
      this.#bySelector.set(selector, level.readers.add(reader));
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
      prune(this.#root, selector.split("/"), 0);
    }
  }

  /** Whether there is anybody. */
  get hasAny(): boolean {
    return this.#bySelector.size > 0;
  }

  /** Those that have exactly this selector, if there are any. */
  with(selector: string): ReadonlySet<R> | undefined {
    return this.#bySelector.get(selector);
  }

  /** Those that read a topic, or may read a topic that a pattern selects. */
  of(selector: string): ReadonlySet<R> {
    let found = this.#found.get(selector) as Set<R> | undefined;
    if (found === undefined) {
      this.#found.set(selector, (found = new Set()));
      find(this.#root, selector.split("/"), 0, found);
    }
    return found;
  }
}

/** From 1 on, whatever follows. */
const ANYTHING = ["", "#"];

function emptyLevel<R>(): Level<R> {
  return { below: new Map(), readers: new Set() };
}

/** Adds those whose selectors go on from a level as `names` do from `at`. */
function find<R>(level: Level<R>, names: readonly string[], at: number, found: Set<R>): void {
  const name = names[at];
  // "a/#" also selects "a": the level before it is included.
  if (name === undefined || name === "#") level.readers.forEach((reader) => found.add(reader));
  const go = (key: string, next: Level<R> | undefined) => {
    // Wildcards at the beginning do not select what begins with "$".
    if (next === undefined || (at === 0 && isWild(key) !== isWild(name) && /^[+#]?\$/.test(key + name))) return;
    if (key === "#") next.readers.forEach((reader) => found.add(reader));
    else if (name === "#") find(next, ANYTHING, 1, found);
    else if (name !== undefined) find(next, names, at + 1, found);
  };
  if (isWild(name)) return level.below.forEach((next, key) => go(key, next));
  for (const key of [name, "+", "#"]) go(key!, level.below.get(key!));
}

function isWild(name: string | undefined): boolean {
  return name === "+" || name === "#";
}

/** Takes away what nobody needs of the way along `names`; answers whether all of the level was. */
function prune<R>({ below, readers }: Level<R>, names: readonly string[], at: number): boolean {
  const name = names[at];
  const next = name === undefined ? undefined : below.get(name);
  if (next && prune(next, names, at + 1)) below.delete(name!);
  return below.size + readers.size === 0;
}
