/**
 * Proves it: counts every publication of every symbol. A sequence that is neither the next one, nor covered by a gap
 * that the server announced, nor skipped because the page asked for less, is a violation, and stays one. Now and then
 * a symbol's values are compared with the server's own history, fetched by plain HTTP.
 */

import { Losses } from "./losses.js";
import { ask } from "./token.js";

/** Values kept of each symbol, to be compared. */
const KEPT = 128;
/** How often another symbol is compared. */
const COMPARE_MS = 2_000;
/** How often the server is asked how far it is, and of how many answers a rate is made. */
const HEADS_MS = 1_000;
const HEADS_KEPT = 6;

class Track {
  sequence = 0;
  epoch = "";
  /** The newest values by sequence, in a ring. */
  sequences = new Float64Array(KEPT);
  prices = new Float64Array(KEPT);
  /** Everything after this was taken, or is accounted for. */
  wholeSince = 0;

  keep(sequence, price) {
    this.sequence = sequence;
    this.sequences[sequence % KEPT] = sequence;
    this.prices[sequence % KEPT] = price;
  }
}

export class Checker {
  #tracks = new Map();
  #maySkip = false;
  #nextCompared = 0;
  received = 0;
  /** Sequences passed over because the options allow it. */
  skipped = 0;
  /** What the server said that it cannot tell. */
  losses = new Losses();
  /** Values that were found equal to the server's history. */
  compared = 0;
  violations = [];
  /** How many were published a second, as the server's own numbering tells, whatever of it was received. */
  publishedRate = 0;
  /** How many the server has that this page was not told yet. */
  behind = 0;
  #heads = [];

  constructor() {
    setInterval(() => void this.#compareNext(), COMPARE_MS);
    setInterval(() => void this.#readHeads(), HEADS_MS);
  }

  /** Whether sequences may be passed over from now on. */
  set maySkip(maySkip) {
    // What was under way when the options changed is judged by the new ones: they go for all that follows.
    this.#maySkip = maySkip;
    if (maySkip) return;
    for (const track of this.#tracks.values()) track.wholeSince = track.sequence;
  }

  get topics() {
    return this.#tracks.size;
  }

  /** Takes a publication, in the order in which the SDK tells them. */
  take({ topic, epoch, sequence, data }) {
    let track = this.#tracks.get(topic);
    if (track === undefined) {
      track = new Track();
      [track.epoch, track.wholeSince] = [epoch, sequence - 1];
      this.#tracks.set(topic, track);
    } else if (epoch !== track.epoch) {
      this.#violate(`${topic} came with the epoch ${epoch} after ${track.epoch}, and no gap was announced`);
    } else if (sequence <= track.sequence) {
      this.#violate(`${topic} came with sequence ${sequence} after ${track.sequence}`);
    } else if (sequence > track.sequence + 1) {
      if (this.#maySkip) this.skipped += sequence - track.sequence - 1;
      else this.#violate(`${topic} came with sequence ${sequence} after ${track.sequence}, and no gap was announced`);
    }
    this.received += 1;
    track.keep(sequence, data.price);
  }

  /** Takes a gap: what the server says that it cannot tell any more. */
  takeGap(gap) {
    const track = this.#tracks.get(gap.topic);
    this.losses.take(gap, track?.sequence);
    if (track) [track.epoch, track.sequence, track.wholeSince] = [gap.epoch, gap.to, gap.to];
  }

  /** Forgets what could not be had until now; a violation stays. */
  countAnew() {
    this.losses = new Losses();
    [this.received, this.skipped, this.compared] = [0, 0, 0];
  }

  #violate(text) {
    this.violations.push(text);
    console.warn(`violation: ${text}`);
  }

  async #readHeads() {
    if (this.#tracks.size === 0 || document.hidden) return;
    const answer = await ask("v1/topics?selector=markets/ftse/%2B&limit=1000").catch(() => undefined);
    if (answer === undefined) return;
    const at = performance.now();
    let [sum, behind] = [0, 0];
    for (const { topic, epoch, sequence } of answer.topics) {
      sum += sequence;
      const track = this.#tracks.get(topic);
      if (track?.epoch === epoch) behind += Math.max(0, sequence - track.sequence);
    }
    // A new epoch counts from the beginning.
    if (sum < (this.#heads.at(-1)?.sum ?? 0)) this.#heads.length = 0;
    this.#heads.push({ sum, at });
    if (this.#heads.length > HEADS_KEPT) this.#heads.shift();
    const [first] = this.#heads;
    if (at > first.at) this.publishedRate = ((sum - first.sum) * 1000) / (at - first.at);
    this.behind = behind;
  }

  async #compareNext() {
    const topics = [...this.#tracks.keys()];
    if (topics.length === 0 || document.hidden) return;
    const topic = topics[this.#nextCompared++ % topics.length];
    const track = this.#tracks.get(topic);
    const { epoch, wholeSince } = track;
    const page = await history(topic, 50);
    if (page === undefined || page.epoch !== epoch || track.epoch !== epoch || track.wholeSince !== wholeSince) return;
    for (const { sequence, data } of page.publications) {
      const isKept = track.sequences[sequence % KEPT] === sequence;
      const isDue = sequence > wholeSince && sequence <= track.sequence && sequence > track.sequence - KEPT;
      if (isKept && track.prices[sequence % KEPT] !== data.price) {
        this.#violate(`${topic} had ${track.prices[sequence % KEPT]} here as ${sequence}, and ${data.price} in the history`);
      } else if (isKept) this.compared += 1;
      else if (isDue && !this.#maySkip) this.#violate(`${topic} never came with sequence ${sequence}`);
    }
  }
}

/** The newest publications of a topic, by plain HTTP; undefined if they cannot be had. */
export const history = (topic, last) => ask(`v1/history/${topic}?last=${last}`).catch(() => undefined);
