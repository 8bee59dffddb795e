/** What got through, remembered for the next page of this origin: in `localStorage` where there is one. */

/** How long that is believed. */
const AGE_MAX_MS = 3_600_000;

/** What has no storage, or must not use it, remembers here. */
const here = new Map<string, string>();

/** The transport that got through to `url` lately. */
export function remembered(url: string): string | undefined {
  const [name, at] = (storage()?.[keyOf(url)] ?? here.get(keyOf(url)) ?? "").split(" ");
  const age = Date.now() - Number(at);
  return age >= 0 && age < AGE_MAX_MS ? name : undefined;
}

/** Notes which one gets through. */
export function remember(url: string, name: string): void {
  const value = `${name} ${Date.now()}`;
  here.set(keyOf(url), value);
  try {
    storage()![keyOf(url)] = value;
  } catch {
    // There is none, or it is full.
  }
}

function keyOf(url: string): string {
  return `tidegate:${new URL(url).host}`;
}

/** A page's: elsewhere it is shared by all programs of a machine. Even looking at it may throw. */
function storage(): Record<string, string> | undefined {
  const scope = globalThis as unknown as { document?: object; localStorage?: Record<string, string> };
  try {
    return scope.document && scope.localStorage;
  } catch {
    return undefined;
  }
}
