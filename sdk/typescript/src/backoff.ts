/** Pauses between attempts to connect: they grow, and no two clients have the same. Pure. */

import { adviceOf } from "./errors.js";

/** Bounds of the pauses, in milliseconds. */
export interface Pauses {
  /** The whole of the first pause. Default 250. */
  readonly firstMs: number;
  /** The whole of the longest. Default 30,000. */
  readonly lastMs: number;
}

/** What ended the last attempt. */
export interface Ending {
  /** The server's code, if it gave one. */
  readonly code?: number;
  /** How long the server asked to stay away. */
  readonly retryAfterMs?: number;
}

/**
 * The pause before the next attempt, in milliseconds.
 *
 * `attempt` counts those that failed since a connection last stood, from 0. A pause is between half of and
 * the whole of `firstMs`, doubled at each attempt, at most `lastMs`. Codes that say "at once", or "with another
 * token", have none the first time. What the server asked for is never undercut, and stretched by up to a
 * quarter, so that not everybody comes back in the same moment. `random` gives a number in [0, 1).
 */
export function pauseMs(attempt: number, ending: Ending, pauses: Pauses, random: () => number): number {
  const whole = Math.min(pauses.firstMs * 2 ** Math.min(attempt, 20), pauses.lastMs);
  const advice = ending.code === undefined ? "retry-later" : adviceOf(ending.code);
  const isAtOnce = attempt === 0 && (advice === "retry-now" || advice === "authenticate-first");
  const own = isAtOnce ? 0 : whole * (0.5 + random() / 2);
  const asked = (ending.retryAfterMs ?? 0) * (1 + random() / 4);
  return Math.max(own, asked);
}
