/** Asks a server why it opened no connection: a browser tells a page nothing of that. docs/protocol.md#why-a-handshake-failed. */

import { LocalCode, TidegateError } from "./errors.js";
import { httpUrl, refusalOf, retryAfterMs } from "./http.js";
import type { CloseReason } from "./transport.js";

/** What a server answers to a request for its WebSocket that is none: it would let in who asks. */
const LET_IN = 4210;

/** Why the node at `address` will not have us, if it says so: another answer, and none, say nothing. */
export async function whyNot(address: string, signal: AbortSignal): Promise<CloseReason | undefined> {
  const response = await fetch(httpUrl(address, "ws", {}), { signal, credentials: "omit", cache: "no-store" });
  if (response.ok) return undefined;
  const error = await refusalOf(response);
  const isSaid = error instanceof TidegateError && error.code !== LET_IN && error.code < LocalCode.Unanswered;
  return isSaid ? { code: error.code, text: error.message, retryAfterMs: retryAfterMs(error) } : undefined;
}
