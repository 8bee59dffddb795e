/**
 * JSON patches (RFC 6902), and the canonical form of JSON (RFC 8785) by which their result is checked, for clients that
 * subscribe with `delta: "json-patch"`: pass `jsonPatch` as one of `deltas`. Pure.
 *
 * @module
 */

import type { PatchDecoder } from "./deltas.js";
import { crc32 } from "./deltas.js";

export type { DeltaDecoder, DeltaForm, PatchDecoder, VcdiffDecoder } from "./deltas.js";

/** What applies JSON patches. */
export const jsonPatch: PatchDecoder = {
  form: "json-patch",
  apply: (base, patch) => {
    const data = applyPatch(JSON.parse(base), patch);
    return { data, source: canonical(data) };
  },
  check: crc32,
};

/** One step of a patch. */
export interface PatchStep {
  readonly op: string;
  readonly path: string;
  readonly from?: string;
  readonly value?: unknown;
}

type Container = Record<string, unknown> | unknown[];

/** Makes the next value of `document`, which is changed. Throws if a step cannot be taken. */
export function applyPatch(document: unknown, patch: readonly PatchStep[]): unknown {
  // The path of the whole document is "", which splits into one empty level: a member of this.
  const root: Container = { "": document };
  for (const { op, path, from, value } of patch) {
    switch (op) {
      case "add":
        add(root, path, value);
        break;
      case "remove":
        remove(root, path);
        break;
      case "replace":
        remove(root, path);
        add(root, path, value);
        break;
      case "move":
        add(root, path, remove(root, from!));
        break;
      case "copy":
        add(root, path, JSON.parse(canonical(read(root, levelsOf(from!)))));
        break;
      case "test":
        if (canonical(read(root, levelsOf(path))) !== canonical(value)) throw new Error(`${path} is something else`);
        break;
      default:
        throw new Error(`a patch has no step ${op}`);
    }
  }
  return read(root, [""]);
}

/** The canonical text of a value: members sorted, no spaces, numbers as JavaScript writes them. */
export function canonical(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  // By UTF-16 code units, as RFC 8785 wants it and `sort` does it.
  const keys = Object.keys(value).sort();
  const members = keys.map((key) => `${JSON.stringify(key)}:${canonical((value as Record<string, unknown>)[key])}`);
  return `{${members.join()}}`;
}

function levelsOf(path: string): string[] {
  return path.split("/").map((level) => level.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function read(root: Container, levels: readonly string[]): unknown {
  let found: unknown = root;
  for (const level of levels) found = (found as Record<string, unknown>)[keyIn(found, level)];
  return found;
}

/** What holds the end of a path, and the end. */
function endOf(root: Container, path: string): [Container, string] {
  const levels = levelsOf(path);
  const end = levels.pop()!;
  return [read(root, levels) as Container, end];
}

function add(root: Container, path: string, value: unknown): void {
  const [container, end] = endOf(root, path);
  if (Array.isArray(container)) {
    // One beyond the last is a place, too.
    const isAtEnd = end === "-" || end === String(container.length);
    const index = isAtEnd ? container.length : Number(keyIn(container, end));
    container.splice(index, 0, value);
  } else if (typeof container === "object" && container !== null) {
    // Not an assignment: `__proto__` is a member like any other.
    Object.defineProperty(container, end, { value, writable: true, enumerable: true, configurable: true });
  } else throw new Error(`there is nothing to hold ${path}`);
}

function remove(root: Container, path: string): unknown {
  const [container, end] = endOf(root, path);
  const key = keyIn(container, end);
  if (Array.isArray(container)) return container.splice(Number(key), 1)[0];
  const removed = container[key];
  delete container[key];
  return removed;
}

/** `level` as a key of what is there. Throws if it is none. */
function keyIn(container: unknown, level: string): string {
  const isContainer = typeof container === "object" && container !== null;
  const isKey = isContainer && Object.hasOwn(container, level) && (!Array.isArray(container) || /^\d+$/.test(level));
  if (!isKey) throw new Error(`there is no ${level}`);
  return level;
}
