/** What could not be had: the gaps that the server announced, and the restarts that it went through. */

import { clock } from "./outage.js";
import { count, many } from "./text.js";

const reasons = {
  history: "the server did not keep them any longer",
  lagged: "this page was too slow",
};

export class Losses {
  /** Gaps within a numbering. */
  gaps = 0;
  /** Publications in all gaps, as far as they are numbered. */
  missing = 0;
  restarts = 0;
  #topics = new Set();
  #reasons = new Set();
  #restartedAt;
  #isRestartNoted = false;

  /** A connection stands: what begins anew from now on is another restart. */
  handleConnected() {
    this.#isRestartNoted = false;
  }

  /** Takes a gap as the SDK tells it; `after` is the sequence that was taken before it. */
  take({ topic, from, to, reason }, after = 0) {
    if (reason === "epoch") this.#noteRestart();
    else this.gaps += 1;
    // What a numbering had that ended is not known; of the new one everything up to `to` is missing.
    const lost = reason === "epoch" ? to : to - (from ?? after + 1) + 1;
    if (lost <= 0) return;
    this.missing += lost;
    this.#topics.add(topic);
    if (reason in reasons) this.#reasons.add(reasons[reason]);
  }

  /** All topics began anew with it: it is told once. */
  #noteRestart() {
    if (this.#isRestartNoted) return;
    this.#isRestartNoted = true;
    this.restarts += 1;
    this.#restartedAt = new Date();
  }

  get isEmpty() {
    return this.missing === 0 && this.restarts === 0;
  }

  /** What to say first. */
  get title() {
    if (this.missing > 0) return `${many(this.missing, "publication")} could not be had`;
    return "The server restarted: numbering began anew";
  }

  /** What, how many, and why. */
  get text() {
    const parts = [];
    if (this.missing > 0) {
      const why = this.#reasons.size > 0 ? `: ${[...this.#reasons].join(", or ")}` : "";
      parts.push(`${many(this.missing, "publication")} of ${many(this.#topics.size, "topic")} could not be had${why}`);
    }
    if (this.restarts > 0) {
      const times = this.restarts > 1 ? `${count(this.restarts)} times, the last time ` : "";
      parts.push(`The server restarted ${times}before ${clock(this.#restartedAt)}: what it published last may never have come`);
    }
    return parts.join(". ");
  }
}
