// A runner of the shared scenarios: steps on one side, the SDK's public face on the other.
import assert from "node:assert/strict";

import type { DeltaDecoder } from "../src/deltas.js";
import type { ReadOptions, Subscription, TransportName } from "../src/index.js";
import { Client, TidegateError } from "../src/index.js";
import type { Handler } from "../src/services.js";
import { Services } from "../src/services.js";
import { vcdiff } from "../src/vcdiff.js";
import { jsonPatch } from "../src/patch.js";
import { clientOf } from "./helpers.js";
import type { Manners } from "./middlebox.js";
import { Middlebox } from "./middlebox.js";
import { Proxy } from "./proxy.js";
import { Server } from "./server.js";

export interface Scenario {
  readonly title: string;
  readonly config?: readonly string[];
  /** What an SDK has to have for it. This one has it all. */
  readonly needs?: string;
  /** What the server says to what it hears, if it is not the real one. */
  readonly script?: readonly object[];
  readonly steps: readonly Step[];
}

/** One step; which members it has depends on `do`. */
type Step = { readonly do: string } & Record<string, any>;

/** What is tested: this SDK, or an earlier one. */
export interface Sdk {
  readonly Client: typeof Client;
  readonly deltas: readonly DeltaDecoder[];
  readonly Services?: typeof Services;
}

const current: Sdk = { Client, deltas: [jsonPatch, vcdiff], Services };

/** Runs all steps over a transport; fails with the step that failed. */
export async function run(scenario: Scenario, transport: TransportName, sdk = current): Promise<void> {
  const runner = new Runner(scenario, transport, sdk);
  try {
    for (const [index, step] of scenario.steps.entries()) {
      try {
        const verb = verbs[step.do];
        assert.ok(verb, `there is no verb ${step.do}`);
        await withinTenSeconds(verb(runner, step), () => runner.waitingFor);
      } catch (error) {
        throw new Error(`step ${index + 1}, ${JSON.stringify(step)}: ${(error as Error).message}`, { cause: error });
      }
    }
  } finally {
    await runner.end();
  }
}

export const knownVerbs = (): string[] => Object.keys(verbs).sort();

/** Networks of `connect`. */
const networks: Record<string, Manners> = {
  free: {},
  "no-websocket": { upgrade: "refuse" },
  "held-back": { upgrade: "refuse", passedBytes: 0 },
};

interface Peer {
  readonly client: Client;
  readonly services: Services | undefined;
  readonly proxy: Proxy;
  /** It cannot be reached, on purpose. */
  isAway: boolean;
}

class Runner {
  readonly scenario: Scenario;
  readonly transport: TransportName;
  readonly sdk: Sdk;
  readonly peers = new Map<string, Peer>();
  readonly events = new Map<string, { subscription: Subscription; client: Client; told: object[]; completed: number }>();
  readonly publishes = new Map<string, Promise<unknown>>();
  readonly handlers = new Map<string, { handler: Handler; asked: number }>();
  readonly boxes: Middlebox[] = [];
  /** What `$name` stands for. */
  readonly captured = new Map<string, unknown>();
  waitingFor: unknown;
  server: Server | undefined;
  wake = () => {};

  constructor(scenario: Scenario, transport: TransportName, sdk: Sdk) {
    [this.scenario, this.transport, this.sdk] = [scenario, transport, sdk];
  }

  peer({ client }: Step): Peer {
    const peer = this.peers.get(client);
    assert.ok(peer, `there is no client ${client}`);
    return peer;
  }

  told({ subscription }: Step): { subscription: Subscription; client: Client; told: object[]; completed: number } {
    const found = this.events.get(subscription);
    assert.ok(found, `there is no subscription ${subscription}`);
    return found;
  }

  /** A value of a scenario, with `$name` replaced by what was captured. */
  value(given: any): any {
    return typeof given === "string" && this.captured.has(given) ? this.captured.get(given) : given;
  }

  /** Whether `actual` has all that `expected` says; `$name` is captured, `!$name` is anything else. */
  matches(expected: any, actual: any): boolean {
    if (typeof expected === "string" && /^!?\$/.test(expected)) {
      const name = expected.replace("!", "");
      if (expected !== name) return this.captured.get(name) !== actual;
      if (!this.captured.has(name)) this.captured.set(name, actual);
      return this.captured.get(name) === actual;
    }
    if (typeof expected !== "object" || expected === null) return Object.is(expected, actual);
    if (typeof actual !== "object" || actual === null || Array.isArray(expected) !== Array.isArray(actual)) return false;
    if (Array.isArray(expected) && expected.length !== actual.length) return false;
    return Object.entries(expected).every(([key, value]) => this.matches(value, actual[key]));
  }

  assertMatches(expected: unknown, actual: unknown): void {
    const text = () => `expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`;
    assert.ok(this.matches(expected, actual), text());
  }

  /** Waits for what a promise brings: the answer, or a refusal with a code. */
  async settle(promise: Promise<unknown>, { answer, refused }: Step): Promise<void> {
    const result = await promise.catch((error: unknown) => error);
    if (refused !== undefined) this.assertMatches({ code: refused }, result);
    else if (result instanceof Error) throw result;
    else if (answer !== undefined) this.assertMatches(answer, result);
  }

  async end(): Promise<void> {
    for (const { client, proxy } of this.peers.values()) {
      client.close();
      proxy.close();
    }
    this.boxes.forEach((box) => box.close());
    await this.server?.remove();
  }
}

type Verb = (runner: Runner, step: Step) => Promise<void>;

const verbs: Record<string, Verb> = {
  async start_server(runner) {
    if (runner.server) await runner.server.start();
    else if (runner.scenario.script) runner.server = await Server.play(runner.scenario);
    else runner.server = await Server.start(runner.scenario.config?.join("\n"));
    const peers = [...runner.peers.values()].filter(({ isAway }) => !isAway);
    for (const { client } of peers) client.nudge();
    await Promise.all(peers.map(({ client }) => client.ready()));
  },
  async kill_server(runner) {
    await withoutServer(runner, (server) => server.kill());
  },
  async stop_server(runner) {
    await withoutServer(runner, (server) => server.stop());
  },

  async connect(runner, step) {
    const { network } = step;
    const box = network === undefined ? undefined : await Middlebox.open(runner.server!.port, networks[network]!);
    if (box) runner.boxes.push(box);
    const proxy = await Proxy.open(runner.server!.port);
    const nodes = (step.nodes ?? ["server"]).map((node: string) => (node === "dead" ? "ws://127.0.0.1:1" : (box ?? proxy).url));
    const tokens: string[] = [...(step.tokens ?? [])];
    const token = step.tokens ? () => tokens.shift() : step.token;
    const transports: TransportName[] = box ? ["websocket", "sse", "poll"] : [runner.transport];
    const { deltas, Services } = runner.sdk;
    const client = clientOf(nodes, { transports, fallbackMs: 500, token, deltas, publishMs: 60_000 }, runner.sdk.Client);
    runner.peers.set(step.client, { client, services: Services && new Services(client), proxy, isAway: false });
    await runner.settle(client.ready(), step);
    assert.deepEqual(tokens, [], "not every token was asked for");
  },
  async close(runner, step) {
    const peer = runner.peer(step);
    peer.isAway = true;
    peer.client.close();
  },
  async cut(runner, step) {
    const peer = runner.peer(step);
    peer.isAway = true;
    peer.proxy.cut();
    await enters(peer.client, "waiting");
  },
  async mute(runner, step) {
    const peer = runner.peer(step);
    peer.isAway = true;
    peer.proxy.mute();
  },
  async mend(runner, step) {
    const { client, proxy } = runner.peer(step);
    proxy.cut();
    await enters(client, "waiting");
    proxy.mend();
    runner.peer(step).isAway = false;
    client.nudge();
    await client.ready();
  },

  async subscribe(runner, step) {
    const { client } = runner.peer(step);
    const { from: start, positions, conflation, interval_ms: intervalMs, priority, filter, delta, name } = step;
    const from = Object.entries({ from: start, positions, conflation, intervalMs, priority, filter, delta, name });
    const options = Object.fromEntries(
      from.filter(([, value]) => value !== undefined).map(([key, value]) => [key, replaced(runner, value)]),
    );
    const subscription = client.subscribe(step.selectors as string[], options as ReadOptions);
    const told: object[] = [];
    const note = (event: object) => {
      told.push(event);
      runner.wake();
    };
    for (const name of ["snapshot", "update", "gap", "resumed"] as const) {
      subscription.on(name, (event) => note({ ...event, ...payloadOf(event), event: name }));
    }
    const noted = { subscription, client, told, completed: 0 };
    subscription.on("complete", () => {
      noted.completed += 1;
      runner.wake();
    });
    runner.events.set(step.as, noted);
    await runner.settle(subscription.ready(), step);
  },
  async completed(runner, step) {
    const noted = runner.told(step);
    while (noted.completed < step.count) await new Promise<void>((resolve) => (runner.wake = resolve));
    assert.equal(noted.completed, step.count);
  },
  async unsubscribe(runner, step) {
    runner.told(step).subscription.unsubscribe();
  },
  async save_positions(runner, step) {
    runner.captured.set(`$${step.as}`, runner.told(step).subscription.positions);
  },

  async publish(runner, step) {
    const kind = step.text !== undefined ? "text" : step.base64 !== undefined ? "bytes" : "json";
    const data = { text: step.text, bytes: Buffer.from(step.base64 ?? "", "base64"), json: step.data }[kind];
    const published = runner.peer(step).client.publish(step.topic, data, { key: step.key, expect: step.expect, headers: step.headers, kind });
    if (step.as === undefined) return runner.settle(published, step);
    published.catch(() => {});
    runner.publishes.set(step.as, published);
  },
  async answered(runner, step) {
    await runner.settle(runner.publishes.get(step.of)!, step);
  },
  async http_publish(runner, step) {
    const { status, body } = await runner.server!.publish(step.body);
    assert.equal(status, 200, JSON.stringify(body));
  },
  async history(runner, step) {
    const { after, before, last, since, limit } = step;
    await runner.settle(runner.peer(step).client.history(step.topic, { after, before, last, since, limit }), step);
  },
  async acknowledge(runner, step) {
    await runner.settle(runner.peer(step).client.acknowledge(step.name, replaced(runner, step.positions)), step);
  },

  async handle(runner, step) {
    const noted = { handler: undefined as unknown as Handler, asked: 0 };
    const answer = ({ data }: { data: unknown }) => {
      noted.asked += 1;
      runner.wake();
      if (step.answers === "decline") throw new Error("declined");
      return step.answers === "echo" ? data : new Promise(() => {});
    };
    noted.handler = runner.peer(step).services!.handle(step.selectors, answer, { concurrency: step.concurrency });
    runner.handlers.set(step.as, noted);
    await runner.settle(noted.handler.ready(), step);
  },
  async handling(runner, step) {
    await runner.handlers.get(step.handler)!.handler.ready();
  },
  async unhandle(runner, step) {
    runner.handlers.get(step.handler)!.handler.end();
  },
  async asked(runner, step) {
    const noted = runner.handlers.get(step.handler)!;
    while (noted.asked < step.count) await new Promise<void>((resolve) => (runner.wake = resolve));
  },
  async request(runner, step) {
    const { timeout_ms: timeoutMs, key } = step;
    const answer = runner.peer(step).services!.request(step.topic, step.data, { timeoutMs, key });
    if (step.as === undefined) return runner.settle(answer, step);
    answer.catch(() => {});
    runner.publishes.set(step.as, answer);
  },
  async ping(runner, step) {
    await runner.peer(step).client.ping();
  },
  async expect_transport(runner, step) {
    assert.equal(runner.peer(step).client.transport, step.transport);
  },

  async expect(runner, step) {
    const { told } = runner.told(step);
    const wanted: object[] = [...step.events];
    runner.waitingFor = told;
    while (told.length < wanted.length) await new Promise<void>((resolve) => (runner.wake = resolve));
    for (const actual of told.splice(0, wanted.length)) {
      const at = step.in_any_order ? wanted.findIndex((one) => runner.matches(one, actual)) : 0;
      runner.assertMatches(wanted[at] ?? wanted, actual);
      wanted.splice(at, 1);
    }
  },
  async expect_nothing(runner, step) {
    const { told, client } = runner.told(step);
    // The server answers in order: what it had to tell is told before the pong.
    await client.ping();
    assert.deepEqual(told, []);
  },
};

async function withoutServer(runner: Runner, end: (server: Server) => Promise<void>): Promise<void> {
  const connected = [...runner.peers.values()].filter(({ client }) => client.state === "connected");
  await end(runner.server!);
  await Promise.all(connected.map(({ client }) => enters(client, "waiting")));
}

/** Resolves when the client is in `state`; it may be already. */
function enters(client: Client, state: string): Promise<void> {
  return new Promise((resolve) => {
    if (client.state === state) return resolve();
    const off = client.on("state", (change) => {
      if (change.state !== state) return;
      off();
      resolve();
    });
  });
}

/** A payload as scenarios write it: `data`, `text` or `base64`. */
function payloadOf(event: object): object {
  if (!("kind" in event) || !("data" in event) || event.kind === "json") return {};
  if (event.kind === "text") return { data: undefined, text: event.data };
  return { data: undefined, base64: Buffer.from(event.data as Uint8Array).toString("base64") };
}

function replaced(runner: Runner, value: any): any {
  if (typeof value !== "object" || value === null) return runner.value(value);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, replaced(runner, inner)]));
}

async function withinTenSeconds<T>(work: Promise<T>, waitingFor: () => unknown): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const fail = () => reject(new TidegateError(4905, `nothing more came in 10 s; so far: ${JSON.stringify(waitingFor())}`));
    timer = setTimeout(fail, 10_000);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
