// Ways to await what a client tells.
import WebSocket from "ws";

import type { ClientOptions, Subscription } from "../src/index.js";
import { Client } from "../src/index.js";

/**
 * A client of `url` with npm's `ws`, as Node 20 needs it, whose pauses are short. It stays with its transport, because
 * these tests take servers away for longer than a client believes in one.
 */
export function clientOf(url: string | string[], options: ClientOptions = {}, Kind = Client): Client {
  return new Kind(url, { WebSocket, transports: ["websocket"], firstMs: 20, lastMs: 100, ...options });
}

/** Resolves when the client's connection gets into `state`, from now on. */
export function enters(client: Client, state: string): Promise<void> {
  return new Promise((resolve) => {
    const off = client.on("state", (change) => {
      if (change.state !== state) return;
      off();
      resolve();
    });
  });
}

/** Everything that a subscription tells, in order, one line each. */
export class Heard {
  readonly lines: string[] = [];
  #wake: (() => void) | undefined;

  constructor(subscription: Subscription) {
    const note = (line: string) => {
      this.lines.push(line);
      this.#wake?.();
    };
    subscription.on("snapshot", ({ topic, sequence, data }) => note(`snapshot ${topic} ${sequence} ${JSON.stringify(data)}`));
    subscription.on("update", ({ topic, sequence, data }) => note(`update ${topic} ${sequence} ${JSON.stringify(data)}`));
    subscription.on("gap", ({ topic, from, to, reason }) => note(`gap ${topic} ${from ?? ""}..${to} ${reason}`));
    subscription.on("resumed", ({ topic, recovered, missed }) => note(`resumed ${topic} ${recovered} ${missed}`));
    subscription.on("error", ({ code }) => note(`error ${code}`));
  }

  /** The first `count` lines, as soon as there are so many. */
  async take(count: number): Promise<string[]> {
    while (this.lines.length < count) await new Promise<void>((resolve) => (this.#wake = resolve));
    return this.lines.splice(0, count);
  }
}
