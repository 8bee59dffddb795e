/** Lines of a text that comes in pieces. Pure. */
export class Lines {
  /** Pieces of a line that has not ended: joined once, so that a long line costs no more than its length. */
  #begun: string[] = [];

  /** Takes a piece; answers the lines that ended with it, without their ends. */
  take(piece: string): string[] {
    const lines = piece.split("\n");
    const rest = lines.pop()!;
    if (lines.length > 0) {
      lines[0] = this.#begun.join("") + lines[0]!;
      this.#begun = [];
    }
    if (rest) this.#begun.push(rest);
    return lines;
  }
}
