/** Selectors: topics, or patterns over them. docs/protocol.md#terms. */

/** Whether `selector` is a pattern, not the name of one topic. */
export function isPattern(selector: string): boolean {
  return selector.split("/").some((level) => level === "+" || level === "#");
}

/** Whether there may be a topic that both select. */
export function overlap(selector: string, other: string): boolean {
  const [levels, others] = [selector.split("/"), other.split("/")];
  for (let index = 0; ; index += 1) {
    const [one, two] = [levels[index], others[index]];
    // Wildcards at the beginning do not select what begins with "$".
    if (index === 0 && one !== two && (one?.[0] === "$" || two?.[0] === "$")) return false;
    if (one === "#" || two === "#" || (one === undefined && two === undefined)) return true;
    if (one !== two && (one === undefined || two === undefined || (one !== "+" && two !== "+"))) return false;
  }
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
