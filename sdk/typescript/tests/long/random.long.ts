// Random programs against the real server: overlapping subscriptions with other options, cut cables, kills, stored positions, slow
// loops. A twin knows what each reader must have been told. SEED replays the choices, MINUTES says how long.
import { expect, test } from "vitest";

import type { Client, Positions, ReadOptions, Subscription } from "../../src/index.js";
import { jsonPatch } from "../../src/patch.js";
import { vcdiff } from "../../src/vcdiff.js";
import { clientOf } from "../helpers.js";
import { Proxy } from "../proxy.js";
import { Server } from "../server.js";
import { trace } from "./trace.js";
import type { Skipping } from "./twin.js";
import { Truth, Twin } from "./twin.js";

const MINUTES = Number(process.env.MINUTES ?? 10);
const SEED = Number(process.env.SEED ?? Date.now() % 1_000_000_000);
const STEPS_PER_ROUND = 150;
/** How long nobody may be told anything while somebody lacks something. */
const QUIET_MS = 60_000;
const TOPICS = ["disk/a", "disk/b", "disk/deep/a", "disk/deep/b", "memory/a", "memory/b", "memory/deep/a", "short/a", "short/b"];
const SELECTORS = [...TOPICS, "disk/+", "disk/#", "memory/#", "+/a", "+/+", "#", "disk/deep/+", "memory/+"];
const CONFIG = `
[store]
path = "{store}"
[[topics]]
selector = "disk/#"
ack = "disk"
history_count = 10000000
[[topics]]
selector = "memory/#"
history_count = 1000000
history_bytes = 1000000000
[[topics]]
selector = "short/#"
history_count = 20
[limits]
fragment_bytes = 4096
poll_ms = 300
`;

/** Repeatable choices (mulberry32). */
class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(count: number): number {
    return Math.floor(this.next() * count);
  }

  one<T>(of: readonly T[]): T {
    return of[this.below(of.length)]!;
  }
}

interface Reader {
  readonly twin: Twin;
  readonly subscription: Subscription;
  readonly selectors: string[];
  readonly options: ReadOptions;
  readonly skipping: Skipping | undefined;
  isPaused: boolean;
}

/** A client, its cable and its readers. */
interface Peer {
  readonly client: Client;
  readonly proxy: Proxy;
  readonly readers: Reader[];
  readonly skippings: Skipping[];
  readonly isSkipping: boolean;
  isMuted: boolean;
}

/** The same text for the same value: a patch may put its members into another order. */
function textOf(data: unknown): string {
  const { n, group, filler } = data as { n: number; group: number; filler: string };
  return `${n} ${group} ${filler}`;
}

class World {
  readonly dice = new Dice(SEED);
  readonly truth = new Truth();
  readonly peers: Peer[] = [];
  readonly publishing = new Set<Promise<void>>();
  readonly stored: { positions: Positions; last: Twin["last"]; selectors: string[]; isFromStart: boolean }[] = [];
  readonly faults: string[] = [];
  readonly counts = { rounds: 0, told: 0, published: 0, kills: 0, cuts: 0, subscriptions: 0, gaps: {} as Record<string, number> };
  isUp = true;
  #number = 0;

  constructor(readonly server: Server) {}

  async open(): Promise<void> {
    for (const [index, transport] of (["websocket", "websocket", "sse", "poll"] as const).entries()) {
      const proxy = await Proxy.open(this.server.port);
      const client = clientOf(proxy.url, { transports: [transport], deltas: [jsonPatch, vcdiff] });
      client.on("error", (error) => this.faults.push(`an error of client ${index}: ${String(error)}`));
      this.peers.push({ client, proxy, readers: [], skippings: [], isSkipping: index % 2 === 1, isMuted: false });
    }
  }

  close(): void {
    for (const { client, proxy } of this.peers) {
      client.close();
      proxy.close();
    }
  }

  async step(): Promise<void> {
    const { dice } = this;
    const peer = dice.one(this.peers);
    const what = dice.below(100);
    if (what < 45) this.publish(1 + dice.below(12));
    else if (what < 62) this.subscribe(peer);
    else if (what < 72) this.unsubscribe(peer, true);
    else if (what < 78) this.cut(peer);
    else if (what < 84) this.mend(peer);
    else if (what < 86) this.mute(peer);
    else if (what < 92) peer.readers.forEach((reader) => (reader.isPaused = dice.below(2) === 0));
    else if (what < 93) await this.kill();
    else if (what < 96) await new Promise((resolve) => setTimeout(resolve, dice.below(60)));
    else peer.client.nudge();
    await new Promise((resolve) => setTimeout(resolve, dice.below(4)));
  }

  publish(count: number): void {
    const topic = this.dice.one(TOPICS);
    const isLarge = this.dice.below(15) === 0;
    for (let index = 0; index < count; index += 1) {
      const number = (this.#number += 1);
      const filler = "x".repeat(isLarge ? 30_000 : this.dice.below(200));
      this.#track(this.#publishOne(topic, { n: number, group: number % 3, filler }));
    }
  }

  #track(work: Promise<void>): void {
    this.publishing.add(work);
    void work.finally(() => this.publishing.delete(work));
  }

  async #publishOne(topic: string, data: { n: number; group: number; filler: string }): Promise<void> {
    const payload = textOf(data);
    const kept = { at: performance.now(), isAccepted: data.group === 0 };
    // Until it is answered, and if it never is, it may have been kept.
    this.truth.doubtful.set(payload, kept);
    if (!this.isUp) return void this.truth.doubtful.delete(payload);
    const answer = await this.server.publish({ topic, data }).catch(() => undefined);
    if (answer?.status !== 200) return;
    const { epoch, sequence } = answer.body as { epoch: string; sequence: number };
    this.truth.add(topic, epoch, sequence, { payload, ...kept });
    this.truth.doubtful.delete(payload);
    this.counts.published += 1;
  }

  subscribe(peer: Peer): void {
    const { dice } = this;
    if (peer.readers.length >= 12) return this.unsubscribe(peer, false);
    const stored = dice.below(3) === 0 && this.stored.length > 0 ? this.stored.splice(dice.below(this.stored.length), 1)[0] : undefined;
    const selectors = stored?.selectors ?? [...new Set(Array.from({ length: 1 + dice.below(2) }, () => dice.one(SELECTORS)))];
    const isFromStart = stored ? stored.isFromStart : dice.below(2) === 0;
    const from = isFromStart ? "all" : dice.one(["snapshot", "now", { last: 5 }] as const);
    const isSkipping = peer.isSkipping && dice.below(4) === 0;
    const options: ReadOptions = {
      from,
      ...(stored && { positions: stored.positions }),
      ...(dice.below(4) === 0 && { delta: dice.one(["json-patch", "vcdiff"] as const) }),
      ...(dice.below(4) === 0 && { intervalMs: dice.one([5, 20]) }),
      ...(dice.below(4) === 0 && { priority: dice.below(5) - 2 }),
      ...(isSkipping && dice.one([{ filter: "data.group == 0" }, { conflation: "always" as const, intervalMs: 20 }])),
    };
    const skipping = isSkipping ? { from: performance.now(), to: Infinity, isFilter: options.filter !== undefined } : undefined;
    if (skipping) peer.skippings.push(skipping);
    const places = new Map(Object.entries(stored?.positions ?? {}).map(([topic, place]) => [topic, stored!.last.get(topic) ?? place]));
    const name = `reader ${(this.counts.subscriptions += 1)} of ${selectors} ${JSON.stringify({ ...options, positions: stored && "stored" })}`;
    const twin = new Twin(name, this.truth, peer.skippings, isFromStart, places);
    const subscription = peer.client.subscribe(selectors, options);
    const reader: Reader = { twin, subscription, selectors, options, skipping, isPaused: false };
    peer.readers.push(reader);
    subscription.on("error", (error) => this.faults.push(`${name} ended: ${error}`));
    if (dice.below(3) === 0) void this.#readInLoop(reader);
    else this.#readWithHandlers(reader);
  }

  #readWithHandlers({ twin, subscription }: Reader): void {
    const take = ({ topic, epoch, sequence, data }: { topic: string; epoch: string; sequence: number; data: unknown }) => {
      twin.handle({ type: "publication", topic, epoch, sequence, payload: textOf(data), at: performance.now() });
    };
    subscription.on("snapshot", take);
    subscription.on("update", take);
    subscription.on("gap", (gap) => twin.handle({ ...gap, at: performance.now() }));
  }

  async #readInLoop(reader: Reader): Promise<void> {
    const { twin, subscription } = reader;
    try {
      for await (const item of subscription.stream({ gaps: true, capacity: this.dice.one([2, 50]) })) {
        const at = performance.now();
        if (item.type === "gap") twin.handle({ ...item, at });
        else twin.handle({ type: "publication", topic: item.topic, epoch: item.epoch, sequence: item.sequence, payload: textOf(item.data), at });
        while (reader.isPaused && subscription.state !== "ended") await new Promise((resolve) => setTimeout(resolve, 5));
      }
    } catch (error) {
      this.faults.push(`the loop of ${twin.name} ended: ${String(error)}`);
    }
  }

  unsubscribe(peer: Peer, isStored: boolean): void {
    const { readers } = peer;
    if (readers.length === 0) return;
    const [reader] = readers.splice(this.dice.below(readers.length), 1) as [Reader];
    const { subscription, twin, selectors, skipping } = reader;
    subscription.unsubscribe();
    if (skipping) skipping.to = performance.now();
    // What it has still to take would be told again to whoever goes on from here.
    const { positions } = subscription;
    const last = new Map(twin.last);
    this.#ended.push(twin);
    if (isStored && !skipping && !peer.isSkipping) this.stored.push({ positions, last, selectors, isFromStart: twin.isFromStart });
  }

  readonly #ended: Twin[] = [];

  cut(peer: Peer): void {
    this.counts.cuts += 1;
    peer.proxy.cut();
  }

  mend(peer: Peer): void {
    // A stream without what was lost in its middle is nothing that TCP delivers.
    if (peer.isMuted) this.cut(peer);
    peer.isMuted = false;
    peer.proxy.mend();
  }

  mute(peer: Peer): void {
    peer.isMuted = true;
    peer.proxy.mute();
  }

  async kill(): Promise<void> {
    this.counts.kills += 1;
    this.isUp = false;
    await this.server.kill();
    await Promise.all(this.publishing);
    this.truth.handleKilled(performance.now());
    await this.server.start();
    await this.#settleDoubts();
    this.isUp = true;
  }

  /** Finds out which of those that were not answered are on disk. */
  async #settleDoubts(): Promise<void> {
    for (const topic of TOPICS.filter((each) => each.startsWith("disk/"))) {
      let after = Math.max(0, (this.truth.newest.get(topic)?.sequence ?? 0) - 200);
      for (;;) {
        const url = `${this.server.url.replace("ws:", "http:")}/v1/history/${topic}?after=${after}&limit=100`;
        const page = (await (await fetch(url)).json()) as { epoch: string; publications?: { sequence: number; data: unknown }[] };
        if (!page.publications?.length) break;
        for (const { sequence, data } of page.publications) {
          const payload = textOf(data);
          this.truth.add(topic, page.epoch, sequence, { payload, ...(this.truth.doubtful.get(payload) ?? { at: 0, isAccepted: false }) });
          after = sequence;
        }
      }
    }
  }

  /** Lets everything come to rest, and checks that all is there. */
  async round(): Promise<void> {
    for (let step = 0; step < STEPS_PER_ROUND; step += 1) await this.step();
    for (const peer of this.peers) {
      if (this.dice.below(2) === 0) this.cut(peer);
      this.mend(peer);
      for (const reader of [...peer.readers]) {
        reader.isPaused = false;
        if (reader.skipping) this.#end(peer, reader);
      }
      peer.client.nudge();
    }
    await Promise.all(this.publishing);
    await this.#checkRest();
    for (const peer of this.peers) {
      while (peer.readers.length > 6) this.unsubscribe(peer, true);
    }
    this.counts.rounds += 1;
  }

  #end(peer: Peer, reader: Reader): void {
    peer.readers.splice(peer.readers.indexOf(reader), 1);
    reader.subscription.unsubscribe();
    reader.skipping!.to = performance.now();
    this.#ended.push(reader.twin);
  }

  async #checkRest(): Promise<void> {
    let [told, until] = [0, 0];
    for (;;) {
      for (const twin of this.#ended) this.#check(twin);
      const lacking = this.peers.flatMap(({ client, readers }) =>
        readers.flatMap(({ twin, selectors, subscription }) => {
          this.#check(twin);
          const topics = [...this.truth.newest.keys()].filter((topic) => selectors.some((selector) => selects(selector, topic)));
          const at = `${client.state} ${subscription.state}`;
          return topics.map((topic) => twin.lacks(topic, performance.now())).filter(Boolean).map((lack) => `${twin.name} (${at}): ${lack}`);
        }),
      );
      if (lacking.length === 0) break;
      if (told < this.counts.told) [told, until] = [this.counts.told, performance.now() + QUIET_MS];
      if (performance.now() > until) return void this.faults.push(...lacking.map((lack) => `nothing more came: ${lack}`));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.#ended.length = 0;
  }

  #check(twin: Twin): void {
    this.counts.told += twin.check();
    for (const [reason, count] of twin.gaps) this.counts.gaps[reason] = (this.counts.gaps[reason] ?? 0) + count;
    twin.gaps.clear();
    this.faults.push(...twin.faults.splice(0));
  }
}

/** Written again, so that the SDK's own is not its judge. */
function selects(selector: string, topic: string): boolean {
  const pattern = selector.replace(/\/?#$/, "(/.*)?").replaceAll("+", "[^/]+").replace(/^\(\/\.\*\)\?$/, ".*");
  return new RegExp(`^${pattern}$`).test(topic);
}

test("random programs", { timeout: (MINUTES + 2) * 60_000 }, async () => {
  const until = performance.now() + MINUTES * 60_000;
  const server = await Server.start(CONFIG);
  const writeTrace = process.env.TRACE ? trace(process.env.TRACE) : undefined;
  const world = new World(server);
  process.stdout.write(`SEED=${SEED} MINUTES=${MINUTES}\n`);
  try {
    await world.open();
    let toldAt = 0;
    while (performance.now() < until && world.faults.length === 0) {
      await world.round();
      if (performance.now() - toldAt > 15_000) process.stdout.write(`${JSON.stringify(world.counts)}\n`);
      if (performance.now() - toldAt > 15_000) toldAt = performance.now();
    }
    process.stdout.write(`${JSON.stringify(world.counts)}\n`);
    if (world.faults.length > 0) writeTrace?.(`trace-${SEED}.log`);
    expect(world.faults.slice(0, 20), `SEED=${SEED}`).toEqual([]);
  } finally {
    world.close();
    await server.remove();
  }
});
