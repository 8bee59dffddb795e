/** How long it took from the server to this page, and from there to the screen. */

/** Measurements of one second at most; more are not needed for a percentile. */
const MAX = 8_192;

class Percentiles {
  #values = new Float64Array(MAX);
  #count = 0;

  add(value) {
    // Of more than fit, later ones replace earlier ones.
    this.#values[this.#count % MAX] = value;
    this.#count += 1;
  }

  /** p50, p99 and the least of what came since the last call. */
  take() {
    const sorted = this.#values.subarray(0, Math.min(this.#count, MAX)).sort();
    this.#count = 0;
    if (sorted.length === 0) return undefined;
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
    return { least: sorted[0], p50: at(0.5), p99: at(0.99) };
  }
}

/**
 * To the page: payloads carry the clock of the feed, which runs in the server, in whole milliseconds, so a result is too large by
 * up to one. On the same machine both clocks are one. From another machine the fastest one seen counts as zero: what is shown then
 * is how much slower the others were. To the screen: both ends are this page's own clock.
 */
export class Latency {
  #arrivals = new Percentiles();
  #screens = new Percentiles();
  #offset = -Infinity;
  #renewAt = 0;
  #isSameMachine = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  #least = Infinity;

  get isSameMachine() {
    return this.#isSameMachine;
  }

  /** A value published at `stamp` (milliseconds since 1970) has arrived. */
  arrive(stamp, now) {
    this.#arrivals.add(now - stamp);
  }

  /** Values that arrived at these times, by `performance.now()`, are on screen. */
  show(arrivals) {
    const now = performance.now();
    for (const arrivedAt of arrivals) this.#screens.add(now - arrivedAt);
  }

  /** The wall clock, finer than `Date.now()`: the monotonic clock, set by it. */
  now() {
    const monotonic = performance.now();
    if (monotonic > this.#renewAt) [this.#offset, this.#renewAt] = [-Infinity, monotonic + 10_000];
    // `Date.now()` is cut to whole milliseconds: the largest difference is the closest.
    this.#offset = Math.max(this.#offset, Date.now() - monotonic);
    return monotonic + this.#offset;
  }

  /** What came since the last call: `{ arrival, screen }`, each with p50 and p99, or undefined. */
  take() {
    const [arrival, screen] = [this.#arrivals.take(), this.#screens.take()];
    if (this.#isSameMachine) return { arrival, screen };
    this.#least = Math.min(this.#least, arrival?.least ?? Infinity);
    const relative = arrival && { p50: arrival.p50 - this.#least, p99: arrival.p99 - this.#least };
    return { arrival: relative, screen };
  }
}
