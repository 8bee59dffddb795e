/** Since when there is no connection, and when it is tried again. */

const SECOND_MS = 1_000;

/** Watches a client's state; `handleText` is told what to say, every second while it lasts, and `undefined` once it is over. */
export class Outage {
  #handleText;
  #since;
  #retryAt;
  #error;
  #wasConnected = false;
  #timer;

  constructor(handleText) {
    this.#handleText = handleText;
  }

  /** Takes a `state` event of the client. */
  take({ state, error, retryInMs }) {
    if (state === "connected" || state === "idle") {
      clearInterval(this.#timer);
      [this.#since, this.#timer, this.#error] = [undefined, undefined, undefined];
      this.#wasConnected ||= state === "connected";
    } else if (error !== undefined) {
      this.#since ??= new Date();
      this.#error = error;
      this.#timer ??= setInterval(() => this.#tell(), SECOND_MS);
    }
    this.#retryAt = retryInMs === undefined ? undefined : performance.now() + retryInMs;
    if (state === "stopped") this.#end(error);
    else this.#tell();
  }

  #tell() {
    if (this.#since === undefined) return this.#handleText(undefined);
    const at = clock(this.#since);
    const what = this.#wasConnected ? `Disconnected since ${at}` : `No connection since ${at}`;
    const left = this.#retryAt === undefined ? 0 : Math.ceil((this.#retryAt - performance.now()) / SECOND_MS);
    this.#handleText(left > 0 ? `${what}, trying again in ${left} s` : `${what}, trying now`, this.#error.message);
  }

  /** It is not tried again: the server said that it would be in vain. */
  #end(error) {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#handleText(`Not connected since ${clock(this.#since)}, and not trying again`, error?.message);
  }
}

/** 12:03:07 */
export const clock = (date) => date.toLocaleTimeString("en-GB");
