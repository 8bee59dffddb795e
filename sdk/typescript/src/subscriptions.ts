/**
 * All subscriptions of a client and what each is at. Pure.
 *
 * A subscription outlives connections. It is `waiting` while there is none, `asked` from the command until the
 * answer, then `live`; a break takes it back to `waiting`. Unsubscribing or a refusal ends it.
 *
 * The server tells a session each topic once, however many selectors select it, and a `subscribe` restarts what it
 * overlaps with. So each subscription follows its own positions, and each `subscribe` asks for the earliest place
 * that any of them still needs: none of them is told anything twice, and none of them misses anything.
 */

import type { Pauses } from "./backoff.js";
import { pauseMs } from "./backoff.js";
import type { DeltaDecoder, DeltaForm, VcdiffDecoder } from "./deltas.js";
import { LocalCode, TidegateError } from "./errors.js";
import type { Arriving } from "./payloads.js";
import { Payloads } from "./payloads.js";
import type { Command, Conflation, Event, From, Position, Positions } from "./protocol.js";
import { Readers } from "./readers.js";
import { isPattern, selects } from "./selector.js";
import type { Told } from "./tracker.js";
import { Tracker } from "./tracker.js";

/** What a subscription is at. */
export type SubscriptionState = "waiting" | "asked" | "live" | "ended";

/** How a subscription is read. */
export interface ReadOptions {
  /** Where to start. Default "snapshot": the newest value, if one is kept. */
  readonly from?: From;
  /** Places from which to go on, as `Subscription.positions` gave them. */
  readonly positions?: Positions;
  /** What may be skipped. Default "off". */
  readonly conflation?: Conflation;
  /** The least time between two batches, in milliseconds. */
  readonly intervalMs?: number;
  /** -9 to 9, default 0: while this client is behind or throttled, higher ones are served first. */
  readonly priority?: number;
  /** A CEL expression over `data` and `topic`, such as `data.price > 100.0`: only what it is true for comes. */
  readonly filter?: string;
  /** Publications may come as differences, which one of the client's `deltas` puts together. */
  readonly delta?: DeltaForm;
  /** A durable subscriber's name: the server remembers what was acknowledged under it. */
  readonly name?: string;
}

/** Names a subscription of one client. */
export type SubscriptionIndex = number;

/** What came of an event, a command or time, and for which subscription. */
export type News =
  | { readonly of: SubscriptionIndex; readonly told: Told | { readonly type: "lag"; readonly ms: number } }
  | { readonly of: SubscriptionIndex; readonly state: SubscriptionState; readonly error?: TidegateError };

interface Subscription {
  readonly index: SubscriptionIndex;
  selectors: readonly string[];
  readonly options: ReadOptions;
  readonly tracker: Tracker;
  state: SubscriptionState;
  /** It was live once: what comes next must join on to what was read. */
  wasLive: boolean;
  /** A delta could not be applied: it is read without, from then on. */
  isWithoutDeltas: boolean;
  /** How often it was put off, and until when. */
  refusals: number;
  dueAt: number | undefined;
}

/** The subscriptions of one client. */
export class Subscriptions {
  readonly #all = new Map<SubscriptionIndex, Subscription>();
  readonly #readers = new Readers<Subscription>();
  /** Those whose answer is awaited, by the id of the command. */
  readonly #asked = new Map<number, Subscription>();
  /** Those of which the server knows where they are, but nobody here does: asked for, or with topics on their way. */
  #unplaced = new Readers<Subscription>();
  /** The same, of those that were live before: they agree among each other, because all of them ask for everything. */
  #returning = new Readers<Subscription>();
  /** All of these. */
  readonly #open = new Set<Subscription>();
  /** Of these, those that were answered, but whose patterns' topics may be on their way. */
  readonly #unsettled = new Set<Subscription>();
  /** The same, once somebody waits for them: they are settled with the `pong` of this id. */
  readonly #settling = new Map<number, readonly Subscription[]>();
  /** Those that overlap with these, and wait. */
  readonly #held = new Set<Subscription>();
  /** Those that the server put off. */
  readonly #postponed = new Set<Subscription>();
  /** Those for whose sake deltas may come. */
  readonly #withDeltas = new Set<Subscription>();
  readonly #payloads: Payloads;
  readonly #deltas: readonly DeltaDecoder[];
  readonly #commands: Command[] = [];
  readonly #news: News[] = [];
  readonly #nextId: () => number;
  readonly #pauses: Pauses;
  readonly #random: () => number;
  #isConnected = false;
  #nextIndex = 0;

  constructor(nextId: () => number, pauses: Pauses, random: () => number, deltas: readonly DeltaDecoder[] = []) {
    this.#deltas = deltas;
    this.#payloads = new Payloads(deltas);
    this.#nextId = nextId;
    this.#pauses = pauses;
    this.#random = random;
  }

  /** Adds one. It is asked for at once, or when there is a connection. */
  add(selectors: readonly string[], options: ReadOptions): SubscriptionIndex {
    const { from } = options;
    this.#checkDelta(options.delta);
    const index = this.#nextIndex++;
    const subscription: Subscription = {
      index,
      selectors: [...selectors],
      options,
      tracker: new Tracker(from === undefined || from === "snapshot", ownPositions(selectors, options)),
      state: "waiting",
      wasLive: false,
      isWithoutDeltas: false,
      refusals: 0,
      dueAt: undefined,
    };
    this.#all.set(index, subscription);
    this.#readers.add(subscription);
    if (this.#isConnected) this.#ask(subscription);
    return index;
  }

  /** Ends one. What others still read stays subscribed. */
  remove(index: SubscriptionIndex): void {
    const ended = this.#all.get(index);
    if (ended === undefined) return;
    const wasAsked = ended.state === "asked" || ended.state === "live";
    this.#end(ended);
    const topics = ended.selectors.filter((selector) => !this.#readers.has(selector));
    if (wasAsked && topics.length > 0) {
      this.#commands.push({ type: "unsubscribe", id: this.#nextId(), topics });
    }
  }

  /** Ends all of them. */
  removeAll(): void {
    [...this.#all.values()].forEach((subscription) => this.#end(subscription));
    this.#commands.length = 0;
  }

  /** What a subscription is at. */
  state(index: SubscriptionIndex): SubscriptionState {
    return this.#all.get(index)?.state ?? "ended";
  }

  /** Asks for everything, each from where it was left. */
  handleConnected(): void {
    this.#isConnected = true;
    this.#all.forEach((subscription) => this.#ask(subscription));
  }

  /** Notes that the connection is gone: everything has to be asked for again. */
  handleDisconnect(): void {
    this.#isConnected = false;
    this.#commands.length = 0;
    this.#asked.clear();
    [this.#settling, this.#unsettled, this.#open, this.#held].forEach((all) => all.clear());
    this.#unplaced = new Readers();
    this.#returning = new Readers();
    this.#postponed.clear();
    this.#payloads.handleDisconnect();
    for (const subscription of this.#all.values()) {
      if (subscription.wasLive) subscription.tracker.handleDisconnect();
      [subscription.dueAt, subscription.refusals] = [undefined, 0];
      this.#enter(subscription, "waiting");
    }
  }

  /** Takes an event, if it concerns a subscription. */
  handleEvent(event: Event, now: number): void {
    switch (event.type) {
      case "subscribed":
        return this.#handleSubscribed(event);
      case "topic":
        this.#handleEpoch(event);
        return this.#tell(event.topic, (tracker) => tracker.handleTopic(event, this.#payloads.awaits(event.topic)));
      case "gap":
        this.#handleEpoch(event);
        return this.#handleArriving(event);
      case "publication":
      case "delta":
      case "fragment":
        return this.#handleArriving(event);
      case "lag":
        return this.#handleLag(event.topic, event.ms);
      case "refused":
        return this.#handleRefused(event, now);
      case "unsubscribed":
        return this.#handleUnsubscribed(event);
      case "pong":
        return this.#handleSettled(event.id);
    }
  }

  /** What finds the exact text of JSON payloads, while it is needed. */
  get sources(): VcdiffDecoder["sources"] | undefined {
    return this.#payloads.sources;
  }

  /** When it has to be woken, if nothing happens before. */
  get wakeAt(): number | undefined {
    let earliest: number | undefined;
    for (const { dueAt } of this.#postponed) {
      if (dueAt !== undefined && (earliest === undefined || dueAt < earliest)) earliest = dueAt;
    }
    return earliest;
  }

  /** Asks again for what was put off. */
  handleWake(now: number): void {
    for (const subscription of [...this.#postponed]) {
      if (subscription.dueAt! <= now) this.#ask(subscription);
    }
  }

  /** The next command to send. */
  pollCommand(): Command | undefined {
    return this.#commands.shift();
  }

  /** What to tell next. */
  pollNews(): News | undefined {
    return this.#news.shift();
  }

  /** Where a subscription is in each of its topics. */
  positions(index: SubscriptionIndex): Positions {
    return this.#all.get(index)?.tracker.positions ?? {};
  }

  #enter(subscription: Subscription, state: SubscriptionState, error?: TidegateError): void {
    if (subscription.state === state) return;
    subscription.state = state;
    this.#news.push({ of: subscription.index, state, ...(error && { error }) });
  }

  #end(subscription: Subscription, error?: TidegateError): void {
    this.#all.delete(subscription.index);
    this.#readers.remove(subscription);
    this.#forgetUnread(subscription.selectors);
    this.#postponed.delete(subscription);
    this.#held.delete(subscription);
    this.#readDeltas(subscription, false);
    this.#enter(subscription, "ended", error);
    this.#place(subscription);
  }

  /** Lets go of what came, or was under way, for selectors that had a reader. */
  #forgetUnread(selectors: readonly string[]): void {
    if (selectors.some(isPattern)) this.#payloads.forgetUnless((topic) => this.#readers.of(topic).length > 0);
    else selectors.forEach((topic) => this.#readers.of(topic).length > 0 || this.#payloads.forget(topic));
  }

  /** Notes whether deltas may come for its sake. */
  #readDeltas(subscription: Subscription, isReading: boolean): void {
    if (isReading) this.#withDeltas.add(subscription);
    else this.#withDeltas.delete(subscription);
    this.#payloads.expectDeltas(this.#withDeltas.size > 0);
  }

  #checkDelta(delta: DeltaForm | undefined): void {
    if (delta === undefined || this.#deltas.some(({ form }) => form === delta)) return;
    const text = `cannot read deltas as "${delta}": pass what "@tidegate/client/${delta}" has as \`deltas\``;
    throw new TidegateError(LocalCode.Misused, text);
  }

  /**
   * Asks for it, unless another was just asked for that it overlaps with: the server would restart what they share from
   * a place that only this one gives, and what the other has not told yet of its own would be lost.
   */
  #ask(subscription: Subscription): void {
    this.#held.delete(subscription);
    this.#postponed.delete(subscription);
    const others = subscription.wasLive ? [this.#unplaced] : [this.#unplaced, this.#returning];
    const isHeld = subscription.selectors.some((selector) => others.some((readers) => readers.overlap(selector)));
    if (!isHeld) return this.#subscribe(subscription);
    this.#held.add(subscription);
    this.#settle();
  }

  /** Notes that it is known where a subscription is, and asks for what waited for that. */
  #place(subscription: Subscription): void {
    if (!this.#open.delete(subscription)) return;
    this.#unsettled.delete(subscription);
    this.#unplaced.remove(subscription);
    this.#returning.remove(subscription);
    [...this.#held].forEach((held) => this.#ask(held));
  }

  #subscribe(subscription: Subscription): void {
    const { selectors, options, wasLive } = subscription;
    const positions = this.#placesFor(subscription);
    const id = this.#nextId();
    const delta = subscription.isWithoutDeltas ? undefined : options.delta;
    this.#readDeltas(subscription, delta !== undefined);
    this.#asked.set(id, subscription);
    const isPlaced = selectors.every((selector) => positions[selector] || this.#isCovered(selector, subscription));
    if (!isPlaced) this.#open.add(subscription);
    if (!isPlaced) (wasLive ? this.#returning : this.#unplaced).add(subscription);
    this.#commands.push({
      type: "subscribe",
      id,
      topics: selectors,
      // A topic without a position came into being meanwhile: all of it is news.
      from: wasLive ? "all" : isPosition(options.from) ? undefined : options.from,
      positions: Object.keys(positions).length > 0 ? positions : undefined,
      conflation: options.conflation,
      interval_ms: options.intervalMs,
      priority: options.priority,
      filter: options.filter,
      delta,
      name: options.name,
    });
    this.#enter(subscription, "asked");
  }

  /** Whether another has the same pattern, and knows where it is in all of its topics. */
  #isCovered(selector: string, subscription: Subscription): boolean {
    for (const other of this.#readers.with(selector)) {
      if (isPattern(selector) && other !== subscription && other.state === "live" && !this.#open.has(other)) return true;
    }
    return false;
  }

  /** The earliest place that anybody needs of each topic that `subscription` reads. */
  #placesFor(subscription: Subscription): Positions {
    const { selectors, tracker } = subscription;
    const topics = new Set([...tracker.topics(), ...selectors.filter((selector) => !isPattern(selector))]);
    const patterns = selectors.filter(isPattern);
    if (patterns.length > 0) {
      for (const other of this.#all.values()) {
        for (const topic of other.tracker.topics()) {
          if (patterns.some((pattern) => selects(pattern, topic))) topics.add(topic);
        }
      }
    }
    const places: [string, Position][] = [];
    for (const topic of topics) {
      const place = this.#placeFor(subscription, topic);
      if (place !== undefined) places.push([topic, place]);
    }
    return Object.fromEntries(places);
  }

  #placeFor(subscription: Subscription, topic: string): Position | undefined {
    let place = subscription.tracker.position(topic);
    for (const other of this.#readers.of(topic)) {
      const isKnown = other !== subscription && (other.wasLive || other.state === "asked");
      const theirs = isKnown ? other.tracker.position(topic) : undefined;
      if (theirs === undefined) continue;
      place ??= this.#join(subscription, topic, theirs);
      if (place?.epoch === theirs.epoch && theirs.sequence < place.sequence) place = theirs;
    }
    return place;
  }

  /** Where a new subscription starts in a topic of which another has read up to `theirs`. */
  #join({ options, wasLive, tracker }: Subscription, topic: string, theirs: Position): Position | undefined {
    const from = options.from ?? "snapshot";
    // The server starts from the oldest that there is, or from where the name left off.
    if (wasLive || from === "all" || isPosition(from) || options.name !== undefined) return undefined;
    const back = from === "now" ? 0 : from === "snapshot" ? 1 : from.last;
    const sequence = Math.max(0, theirs.sequence - back);
    tracker.join(topic, theirs, sequence);
    return { epoch: theirs.epoch, sequence };
  }

  #handleSubscribed(event: Event & { type: "subscribed" }): void {
    const subscription = this.#answered(event.id);
    if (subscription === undefined) return;
    [subscription.wasLive, subscription.refusals] = [true, 0];
    this.#enter(subscription, "live");
    for (const topic of event.topics) {
      this.#handleEpoch(topic);
      this.#push(subscription, subscription.tracker.handleTopic(topic, this.#payloads.awaits(topic.topic)));
    }
    if (!subscription.selectors.some(isPattern)) return this.#place(subscription);
    if (this.#open.has(subscription)) this.#unsettled.add(subscription);
    if (this.#held.size > 0) this.#settle();
  }

  /** Finds out when what was answered is known whole: the topics that patterns select come before the pong. */
  #settle(): void {
    if (this.#unsettled.size === 0) return;
    const id = this.#nextId();
    this.#settling.set(id, [...this.#unsettled]);
    this.#unsettled.clear();
    this.#commands.push({ type: "ping", id });
  }

  #handleSettled(id: number | undefined): void {
    const settled = this.#settling.get(id!);
    this.#settling.delete(id!);
    settled?.forEach((subscription) => this.#place(subscription));
  }

  #handleRefused(event: Event & { type: "refused" }, now: number): void {
    const subscription = this.#answered(event.id);
    if (subscription === undefined) return;
    const error = new TidegateError(event.code, event.error);
    if (error.advice !== "retry-now" && error.advice !== "retry-later") return this.#end(subscription, error);
    subscription.dueAt = now + pauseMs(subscription.refusals, error, this.#pauses, this.#random);
    subscription.refusals += 1;
    this.#postponed.add(subscription);
    this.#enter(subscription, "waiting", error);
    this.#place(subscription);
  }

  /** The subscription that was asked for with this id, unless it ended since. */
  #answered(id: number | undefined): Subscription | undefined {
    const subscription = id === undefined ? undefined : this.#asked.get(id);
    if (id !== undefined) this.#asked.delete(id);
    return subscription?.state === "asked" ? subscription : undefined;
  }

  /** Without an id it is the server that ended it, because the reader was too far behind. */
  #handleUnsubscribed(event: Event & { type: "unsubscribed" }): void {
    if (event.id !== undefined) return;
    const text =
      `cannot keep the subscription to ${event.selectors.join(", ")}: its reader is too slow; ` +
      'read faster, or use the conflation "lagging"';
    const error = new TidegateError(4102, text);
    const ended = new Set(event.selectors.flatMap((selector) => [...this.#readers.with(selector)]));
    for (const subscription of ended) {
      const left = subscription.selectors.filter((selector) => !event.selectors.includes(selector));
      if (left.length === 0) {
        this.#end(subscription, error);
      } else {
        this.#readers.remove(subscription);
        this.#place(subscription);
        subscription.selectors = left;
        this.#readers.add(subscription);
        this.#forgetUnread(event.selectors);
        // It goes on with what is left; whoever cares is told what is not.
        this.#news.push({ of: subscription.index, state: subscription.state, error });
      }
    }
  }

  #handleLag(topic: string | undefined, ms: number): void {
    const lagging = topic === undefined ? [...this.#all.values()] : this.#readers.of(topic);
    for (const { index, state } of lagging) {
      if (state === "live") this.#news.push({ of: index, told: { type: "lag", ms } });
    }
  }

  /** A numbering that began anew: nothing that came of the old one is a base of what comes, or holds it up. */
  #handleEpoch({ topic, epoch }: { readonly topic: string; readonly epoch: string }): void {
    const isAnew = this.#readers.of(topic).some(({ tracker }) => (tracker.position(topic)?.epoch ?? epoch) !== epoch);
    if (isAnew) this.#payloads.forget(topic);
  }

  /** Takes what may have to wait, or be put together, before it is told. */
  #handleArriving(event: Arriving): void {
    if (this.#readers.of(event.topic).length === 0) return this.#payloads.forget(event.topic);
    for (const whole of this.#payloads.take(event)) {
      if (whole.type === "broken") this.#repair(whole.topic);
      else if (whole.type === "gap") this.#tell(whole.topic, (tracker) => tracker.handleGap(whole));
      else this.#tell(whole.topic, (tracker) => tracker.handlePublication(whole));
    }
  }

  /** Asks again for what could not be put together, without deltas: the values come whole. */
  #repair(topic: string): void {
    for (const reader of this.#readers.of(topic)) {
      if (reader.state !== "live") continue;
      reader.isWithoutDeltas = true;
      // Also while asking has to wait: what comes meanwhile would seem to follow what was lost.
      this.#enter(reader, "asked");
      this.#ask(reader);
    }
  }

  #tell(topic: string, take: (tracker: Tracker) => Told[]): void {
    for (const reader of this.#readers.of(topic)) {
      // Until it is answered, what comes is meant for others.
      if (reader.state === "live") this.#push(reader, take(reader.tracker));
    }
  }

  #push(subscription: Subscription, told: Told[]): void {
    for (const one of told) this.#news.push({ of: subscription.index, told: one });
  }
}

function isPosition(from: From | undefined): from is Position {
  return typeof from === "object" && "epoch" in from;
}

function ownPositions(selectors: readonly string[], { from, positions }: ReadOptions): Positions {
  if (!isPosition(from)) return positions ?? {};
  const [topic] = selectors;
  if (topic === undefined || selectors.length > 1 || isPattern(topic)) {
    throw new TypeError("cannot start several topics from one position: give `positions`, by topic");
  }
  return { ...positions, [topic]: from };
}
