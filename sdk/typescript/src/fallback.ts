/**
 * Which of several transports to use, the best one first: what does not get through is left for the next one, and
 * looked at again later. Pure.
 *
 * A dead server looks like a blocked transport. So a transport that worked is left only after several attempts, a walk
 * down the fallback ends after the last one (then the usual pauses apply), and what was left is looked at again soon.
 */

/** Attempts at a transport that worked, of each node, before it counts as blocked. */
const PATIENCE = 3;

/** Connections that break early, one after the other, before their transport counts as useless. */
const DEATHS = 3;

/** How much later better transports are looked at each time, and at the latest: after an hour. */
const CHECK_GROWTH = 4;
const CHECK_LAST_MS = 3_600_000;

/** Where a client is on its transports, by index. */
export class FallbackPolicy {
  readonly #count: number;
  readonly #checkMs: number;
  /** What worked last: there every round begins. */
  #home: number;
  #current: number;
  #hasWorked = false;
  #failures = 0;
  /** How many were left in this round. */
  #left = 0;
  #deaths = 0;
  #checks = 0;
  #checkAt: number | undefined;

  /** `home` is where to begin; better ones are looked at after `checkMs` for the first time. */
  constructor(count: number, home: number, checkMs: number) {
    this.#count = count;
    this.#checkMs = checkMs;
    this.#current = this.#home = home;
  }

  /** The one to use. */
  get current(): number {
    return this.#current;
  }

  /** Whether there is another to try, should this one fail. */
  get hasNext(): boolean {
    return this.#left + 1 < this.#count;
  }

  /** When better ones are to be looked at. */
  get checkAt(): number | undefined {
    return this.#checkAt;
  }

  /** Notes that it works. */
  handleWorking(now: number): void {
    this.#home = this.#current;
    this.#hasWorked = true;
    this.#failures = this.#left = 0;
    if (this.#current === 0) this.#checkAt = undefined;
    else this.#checkAt ??= this.#nextCheck(now);
  }

  /** Notes that it could not be opened, or gave no welcome; answers whether there is another to try at once. */
  handleUnopened(nodes: number): boolean {
    this.#failures += 1;
    if (this.#failures < nodes * (this.#hasWorked ? PATIENCE : 1)) return false;
    this.#failures = 0;
    this.#hasWorked = false;
    this.#left += 1;
    const isRoundOver = this.#left >= this.#count;
    if (isRoundOver) [this.#left, this.#current] = [0, this.#home];
    // Once around: what was blocked before may be what is open now.
    else this.#current = (this.#current + 1) % this.#count;
    return !isRoundOver;
  }

  /** Notes that a connection broke that stood; answers whether there is another to try at once. */
  handleBreak(isEarly: boolean): boolean {
    this.#deaths = isEarly ? this.#deaths + 1 : 0;
    if (!isEarly && this.#current === 0) this.#checks = 0;
    if (this.#deaths < DEATHS || this.#current + 1 >= this.#count) return false;
    this.#current += 1;
    this.#deaths = 0;
    this.#hasWorked = false;
    // It opens: looking whether it does would bring it back at once.
    this.#checks += 2;
    return true;
  }

  /** Notes what came of a look at the better ones: the index of one that works, if any does. */
  handleChecked(found: number | undefined, now: number): void {
    this.#checks += 1;
    this.#checkAt = this.#nextCheck(now);
    if (found !== undefined) this.#current = found;
  }

  /** Notes that this may be another network: all that was learnt means nothing. */
  handleNetwork(now: number): void {
    this.#home = this.#current = this.#checks = this.#deaths = 0;
    this.#hasWorked = false;
    if (this.#checkAt !== undefined) this.#checkAt = now;
  }

  #nextCheck(now: number): number {
    return now + Math.min(this.#checkMs * CHECK_GROWTH ** this.#checks, CHECK_LAST_MS);
  }
}
