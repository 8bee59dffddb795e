/**
 * The network as this page sees it: counts what arrives, and breaks connections when asked to. The SDK above it does not
 * know: what it does about a break is what it would do on a train.
 */

const AWAY = "the network is away, as it was asked to be";

/** What arrived, and the connections that are open. */
export class Network {
  /** Messages of a WebSocket, or pieces of a response. */
  messages = 0;
  bytes = 0;
  #breakers = new Set();
  #cutUntil = 0;

  /** Breaks every connection, as abruptly as a page can. */
  break() {
    for (const breaker of [...this.#breakers]) breaker();
  }

  /** Breaks every connection, and lets none be made for so long. */
  cut(ms) {
    this.#cutUntil = performance.now() + ms;
    this.break();
  }

  get #isCut() {
    return performance.now() < this.#cutUntil;
  }

  /** A WebSocket class whose connections are counted, and can be broken. */
  webSocketClass() {
    const network = this;
    return class extends WebSocket {
      constructor(url, subprotocols) {
        super(url, subprotocols);
        const breaker = () => {
          network.#breakers.delete(breaker);
          const handleClose = this.onclose;
          this.onopen = this.onmessage = this.onclose = null;
          this.close();
          handleClose?.call(this, { code: 1006, reason: "" });
        };
        network.#breakers.add(breaker);
        if (network.#isCut) queueMicrotask(breaker);
        this.addEventListener("message", ({ data }) => network.#count(data.length));
        this.addEventListener("close", () => network.#breakers.delete(breaker));
      }
    };
  }

  /** Lets this page's own `fetch` count what a session is sent over plain HTTP, and break it. */
  watchFetch() {
    const plain = globalThis.fetch.bind(globalThis);
    globalThis.fetch = (input, init) => {
      const { pathname } = new URL(input.url ?? input, location.href);
      // Asked why there is no WebSocket, a network that is away does not answer either.
      if (this.#isCut && pathname === "/v1/ws") return Promise.reject(new TypeError(AWAY));
      return /\/v1\/(sse|stream|poll)$/.test(pathname) ? this.#watched(plain, input, init) : plain(input, init);
    };
  }

  async #watched(plain, input, init = {}) {
    if (this.#isCut) throw new TypeError(AWAY);
    const breaking = new AbortController();
    const breaker = () => breaking.abort(new TypeError("the network broke, as it was asked to"));
    const done = () => this.#breakers.delete(breaker);
    this.#breakers.add(breaker);
    breaking.signal.addEventListener("abort", done);
    init.signal?.addEventListener("abort", () => breaking.abort(init.signal.reason));
    try {
      const response = await plain(input, { ...init, signal: breaking.signal });
      const transform = (piece, controller) => {
        this.#count(piece.byteLength);
        controller.enqueue(piece);
      };
      const counted = response.body.pipeThrough(new TransformStream({ transform, flush: done }));
      return new Response(counted, { status: response.status, headers: response.headers });
    } catch (error) {
      done();
      throw error;
    }
  }

  #count(bytes) {
    this.messages += 1;
    this.bytes += bytes;
  }
}
