/**
 * The page's connection to the server, through the SDK. Other options mean another client, which goes on from the
 * positions of the one before: nothing is missed by switching.
 */

import { token } from "./token.js";
import { Client, jsonPatch } from "./vendor/tidegate.js";

const MARKET = "markets/ftse/+";
const MACHINE = "host/#";

/** A client that is replaced whenever the options change. */
export class Link {
  #network;
  #handlers;
  #client;
  #market;
  #machine;

  /** `handlers`: `quote`, `reading` (publications), `gap`, `resumed`, `lag`, `state`, `error`. */
  constructor(network, handlers) {
    this.#network = network;
    this.#handlers = handlers;
  }

  /** What it travels with now. */
  get transport() {
    return this.#client?.transport ?? "websocket";
  }

  /** Reads with these options from now on. */
  read({ transport, conflation, intervalMs, delta, bytesPerSecond, isBreaking }) {
    const positions = { market: this.#market?.positions, machine: this.#machine?.positions };
    this.#client?.close();
    const client = new Client(location.origin, {
      name: "page",
      token: token(),
      logger: false,
      transports: [transport],
      deltas: [jsonPatch],
      WebSocket: this.#network.webSocketClass(),
      bytesPerSecond,
      // It is looked at: it comes back soon. One that is broken on purpose stays away for a moment.
      firstMs: isBreaking ? 1_000 : 250,
      lastMs: 5_000,
      stableMs: 1_000,
    });
    this.#client = client;
    const ours = (handle) => (event) => client === this.#client && handle(event);
    const { quote, reading, gap, resumed, lag, state, error } = this.#handlers;
    client.on("state", ours(state));
    client.on("lag", ours(lag));
    client.on("error", ours(error));
    this.#market = client.subscribe(MARKET, {
      positions: positions.market,
      conflation,
      intervalMs,
      delta: delta === "none" ? undefined : delta,
    });
    this.#market.on("snapshot", ours(quote));
    this.#market.on("update", ours(quote));
    this.#market.on("gap", ours(gap));
    this.#market.on("resumed", ours(resumed));
    // The readings are few; what matters of them is the newest, and they go first where the line is thin.
    const few = { conflation: "always", intervalMs: 500, priority: 1 };
    this.#machine = client.subscribe(MACHINE, { positions: positions.machine, ...few });
    this.#machine.on("snapshot", ours(reading));
    this.#machine.on("update", ours(reading));
  }
}
