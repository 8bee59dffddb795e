/**
 * What the transports over plain HTTP have in common: the first command opens the session, the others go up in requests
 * of their own, one at a time, so that they stay in order. docs/protocol.md#sessions-over-plain-http.
 *
 * No header of ours and no content type but `text/plain`: then a browser asks another origin without a preflight.
 */

import { TidegateError } from "./errors.js";
import type { Transport, TransportHandlers } from "./transport.js";

/** What of the commands that wait goes up together, in characters, if there are several. */
const TOGETHER = 1 << 18;

/** How long it takes until commands are offered again that the server had no room for. */
const FULL_MS = 200;

/** The longest that anything on the way may ask to stay away. */
const RETRY_AFTER_MAX_MS = 3_600_000;

/** A session, as the way down sees it. */
export interface HttpSession {
  /** Sends a request about it; answers its response. Throws a `TidegateError` if the server refused it. */
  ask(path: string, query: Record<string, string | number>, body?: string): Promise<Response>;
  /** Hands out records as they came. The first ones open it. */
  tell(records: readonly string[]): void;
  /** What names it in requests, once `welcome` told. */
  readonly key: string;
  /** Whether somebody is there to be told. */
  readonly isOpen: boolean;
  /** Resolves when more may be read. */
  readonly isWanted: Promise<void>;
}

/** Reads what comes down until it ends, which is always an error. `hello` opens the session. */
export type ReadDown = (session: HttpSession, hello: string) => Promise<never>;

/** The address of a node's `/v1/PATH`: beside its WebSocket, wherever that is. */
export function httpUrl(address: string, path: string, query: Record<string, string | number>): string {
  const url = new URL(address);
  url.protocol = url.protocol.replace(/^ws/, "http");
  url.pathname = url.pathname.endsWith("/ws") ? url.pathname.slice(0, -2) + path : `/v1/${path}`;
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
  return url.href;
}

/** Opens a session that `readDown` reads. One that outlives its requests is told when it is not wanted any more. */
export function httpTransport(
  address: string,
  handlers: TransportHandlers,
  readDown: ReadDown,
  outlivesRequests = false,
): Transport {
  /** What ends the last request to each path; those before it are over. One signal for all would gather their listeners. */
  const asked = new Map<string, AbortController>();
  const waiting: string[] = [];
  let isOpen = true;
  let isBegun = false;
  let isSending = false;
  let key = "";
  let isWanted = Promise.resolve();
  let goOn = () => {};

  const end = () => {
    isOpen = false;
    asked.forEach((each) => each.abort());
  };
  const fail = (error: unknown) => {
    if (!isOpen) return;
    end();
    const code = error instanceof TidegateError ? error.code : undefined;
    const text = code ? (error as Error).message : `cannot reach ${address}: ${error}`;
    handlers.handleClose({ ...(code && { code }), text, retryAfterMs: retryAfterMs(error) });
  };
  const session: HttpSession = {
    ask: async (path, query, body = "") => {
      const own = new AbortController();
      asked.set(path, own);
      if (!isOpen) own.abort();
      const headers = { "content-type": "text/plain" };
      const init = { method: "POST", headers, body, signal: own.signal, cache: "no-store" } as const;
      const response = await fetch(httpUrl(address, path, query), init);
      if (!response.ok) throw await refusalOf(response);
      return response;
    },
    tell: (records) => {
      if (!key && records.length > 0) key = (JSON.parse(records[0]!) as { key?: string }).key ?? "";
      if (isOpen) handlers.handleText(`[${records.join()}]`);
    },
    get key() {
      return key;
    },
    get isOpen() {
      return isOpen;
    },
    get isWanted() {
      return isWanted;
    },
  };
  /** Sends what waits, as often as something does. */
  const sendUp = async () => {
    isSending = true;
    while (waiting.length > 0 && isOpen) {
      const count = countWithin(waiting, TOGETHER);
      try {
        await session.ask("commands", { session: key }, `[${waiting.slice(0, count).join()}]`);
        waiting.splice(0, count);
      } catch (error) {
        if (!(error instanceof TidegateError) || error.code !== 4101) return fail(error);
        await pause(Math.max(FULL_MS, retryAfterMs(error)));
      }
    }
    isSending = false;
  };
  queueMicrotask(() => isOpen && handlers.handleOpen());
  return {
    send: (text) => {
      if (!isBegun) {
        isBegun = true;
        readDown(session, text).catch(fail);
        return;
      }
      waiting.push(text);
      // Later, so that what is sent in the same moment goes up together.
      if (!isSending) queueMicrotask(() => isSending || void sendUp());
    },
    hold: (isHeld) => {
      goOn();
      if (isHeld) isWanted = new Promise((resolve) => (goOn = resolve));
    },
    close: () => {
      const isKnown = key !== "" && isOpen;
      end();
      if (!isKnown || !outlivesRequests) return;
      // A session that is just not polled any more would count, and handle requests, for half a minute.
      const init = { method: "POST", headers: { "content-type": "text/plain" }, body: '{"type":"close"}', keepalive: true };
      fetch(httpUrl(address, "commands", { session: key }), init).catch(() => {});
    },
  };
}

/**
 * Hands out a response's text as it comes, to its end.
 *
 * A page that was frozen gets neither more of a response that had begun nor its end (Chromium 156): when the page goes on, what
 * came before is all of it.
 */
export async function readText(
  body: ReadableStream<Uint8Array>,
  take: (text: string) => void,
  session?: HttpSession,
): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const { document } = globalThis as { document?: EventTarget };
  const handleThawed = () => void reader.cancel();
  document?.addEventListener("resume", handleThawed);
  try {
    for (;;) {
      await session?.isWanted;
      const { done, value } = await reader.read();
      if (done) return;
      take(decoder.decode(value, { stream: true }));
    }
  } finally {
    document?.removeEventListener("resume", handleThawed);
  }
}

/** A response's text; less than that if the page was frozen meanwhile. */
export async function textOf(response: Response): Promise<string> {
  // React Native has whole texts only.
  if (!response.body) return response.text();
  let text = "";
  await readText(response.body, (piece) => (text += piece));
  return text;
}

/** Resolves after that many milliseconds. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** How many of the first texts are within `length` together; at least one. */
function countWithin(texts: readonly string[], length: number): number {
  let count = 1;
  for (let sum = texts[0]!.length; count < texts.length; count += 1) {
    sum += texts[count]!.length;
    if (sum > length) break;
  }
  return count;
}

/** What a response that is no success says. Without a code of ours it comes from something on the way. */
export async function refusalOf(response: Response): Promise<Error> {
  const after = response.headers.get("retry-after") ?? "";
  // Seconds, or a date.
  const asked = { retryAfterMs: Math.min(Number(after) * 1_000 || Date.parse(after) - Date.now() || 0, RETRY_AFTER_MAX_MS) };
  try {
    const said = JSON.parse(await textOf(response)) as { code?: number; error?: string };
    if (said.code) return Object.assign(new TidegateError(said.code, said.error ?? ""), asked);
  } catch {
    // No JSON.
  }
  return Object.assign(new Error(`the status is ${response.status}`), asked);
}

/** How long whoever refused a request asked to stay away. */
export function retryAfterMs(error: unknown): number {
  return Math.max(0, (error as { retryAfterMs?: number }).retryAfterMs ?? 0);
}
