/** What got through, remembered for the next page of this origin: in `localStorage` where there is one. */

/** How long that is believed. */
const AGE_MAX_MS = 3_600_000;

interface Store {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/** Where there is no storage, or it is forbidden. */
const here = new Map<string, string>();

/** The transport that got through to `url` lately. */
export function remembered(url: string): string | undefined {
  const key = keyOf(url);
  const [name, at] = (inStorage((storage) => storage.getItem(key)) ?? here.get(key) ?? "").split(" ");
  const age = Date.now() - Number(at);
  return age >= 0 && age < AGE_MAX_MS ? name : undefined;
}

/** Notes which one gets through. */
export function remember(url: string, name: string): void {
  const [key, value] = [keyOf(url), `${name} ${Date.now()}`];
  here.set(key, value);
  inStorage((storage) => storage.setItem(key, value));
}

function keyOf(url: string): string {
  return `tidegate:${new URL(url).host}`;
}

/** Only of a page: elsewhere it is shared by all programs of a machine, or none. Even looking at it may throw. */
function inStorage<T>(use: (storage: Store) => T): T | undefined {
  const scope = globalThis as unknown as { document?: object; localStorage: Store };
  try {
    return scope.document && use(scope.localStorage);
  } catch {
    return undefined;
  }
}
