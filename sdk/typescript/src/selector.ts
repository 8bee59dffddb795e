/** Selectors: topics, or patterns over them. docs/protocol.md#terms. */

/** Whether `selector` is a pattern, not the name of one topic. */
export function isPattern(selector: string): boolean {
  return selector.split("/").some((level) => level === "+" || level === "#");
}

/** Whether `selector` selects `topic`. */
export function selects(selector: string, topic: string): boolean {
  if (selector === topic) return true;
  const pattern = selector.split("/");
  const levels = topic.split("/");
  if (topic.startsWith("$") && (pattern[0] === "+" || pattern[0] === "#")) return false;
  for (const [index, wanted] of pattern.entries()) {
    // "a/#" also selects "a": the level before it is included.
    if (wanted === "#") return levels.length >= index;
    if (index >= levels.length || (wanted !== "+" && wanted !== levels[index])) return false;
  }
  return pattern.length === levels.length;
}
