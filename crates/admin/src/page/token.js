/** The visitor's own token: kept for this tab at most, and sent as the SDK sends it. */

const KEY = "tidegate-token";
let kept;

try {
  kept = sessionStorage.getItem(KEY) ?? undefined;
} catch {
  // Without storage it lasts until the page is left.
}

/** The token, if the visitor gave one. */
export const token = () => kept;

/** Keeps another one from now on; an empty one is none. */
export function keepToken(text) {
  kept = text.trim() || undefined;
  try {
    if (kept) sessionStorage.setItem(KEY, kept);
    else sessionStorage.removeItem(KEY);
  } catch {
    // As above.
  }
}

/**
 * The JSON that `GET path` answers. Throws an `Error` with the server's own text and its `code` if it refuses, and one without a
 * code if it cannot be reached.
 */
export async function ask(path) {
  const headers = kept ? { authorization: `Bearer ${kept}` } : {};
  const response = await fetch(path, { headers });
  const answer = await response.json();
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.error), { code: answer.code });
}
