/**
 * All subscriptions of a client and what each is at. Pure.
 *
 * A subscription outlives connections. It is `waiting` while there is none, `asked` from the command until the
 * answer, then `live`; a break takes it back to `waiting`. Unsubscribing or a refusal ends it.
 *
 * Each has an id on the wire, under which the server keeps its options and its place, whatever else is read. What comes
 * names a reading, by number: a topic as it is read for those subscriptions that the topic's description lists.
 * docs/protocol.md#subscription-ids. A server without ids is told of subscriptions that do not overlap.
 */

import type { Pauses } from "./backoff.js";
import { pauseMs } from "./backoff.js";
import type { DeltaDecoder, DeltaForm, VcdiffDecoder } from "./deltas.js";
import { LocalCode, TidegateError } from "./errors.js";
import type { Arriving } from "./payloads.js";
import { Payloads } from "./payloads.js";
import type { Command, Conflation, Event, From, Position, Positions, ReadingKey, WireTopic } from "./protocol.js";
import { isPattern, overlap, selects } from "./selector.js";
import type { Notification } from "./tracker.js";
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
  /** Publications have the time of their publication. */
  readonly time?: boolean;
  /** Publications have the principal that published them, where the topic's policy has that recorded. */
  readonly principal?: boolean;
  /** A durable subscriber's name: the server remembers what was acknowledged under it. */
  readonly name?: string;
}

/** Names a subscription of one client. */
export type SubscriptionIndex = number;

/** What a subscription has to tell. */
export type Told = Notification | { readonly type: "lag"; readonly ms: number } | { readonly type: "complete" };

/** What came of an event, a command or time, and for which subscription. */
export type Notice =
  | { readonly of: SubscriptionIndex; readonly told: Told }
  | { readonly of: SubscriptionIndex; readonly state: SubscriptionState; readonly error?: TidegateError };

interface Subscription {
  readonly index: SubscriptionIndex;
  selectors: readonly string[];
  readonly options: ReadOptions;
  readonly tracker: Tracker;
  state: SubscriptionState;
  /** It was live once: what comes next must join on to what was read. */
  wasLive: boolean;
  /** The command whose answer counts, and how many of those since its `subscribe` are not complete. */
  askedAs: number;
  openCount: number;
  /** The readings that are its. */
  readonly readings: Set<Reading>;
  /** Topics that are asked for by name, because their places had no room in the message before, under which id; and those of the next ones. */
  named: string[];
  namedId: number;
  unnamed: string[];
  /** A delta could not be applied: it is read without, from then on. */
  isWithoutDeltas: boolean;
  /** How often it was put off, and until when. */
  refusals: number;
  dueAt: number | undefined;
}

/** A topic as it is read for some subscriptions. */
interface Reading {
  readonly key: ReadingKey;
  readonly topic: string;
  epoch: string;
  readonly readers: Set<Subscription>;
}

/** How much of a message that the server takes may be selectors and places, in characters: each has up to three bytes, and some quotes. */
const ROOM_SHARE = 1 / 8;

/** What a place has beside the name of its topic, in characters. */
const PLACE_LENGTH = 64;

/** The code of what the server lacks. */
const MISSING_FEATURE = 4236;

/** The code of a `subscribe` with which the session would have more selectors than it may. */
const TOO_MANY = 4207;

/** The subscriptions of one client. */
export class Subscriptions {
  readonly #all = new Map<SubscriptionIndex, Subscription>();
  /** The same by their ids on the wire; those that are asked for in several messages have two at a time. */
  readonly #ids = new Map<number, Subscription>();
  /** Those whose answer is awaited, by the id of the command. */
  readonly #asked = new Map<number, Subscription>();
  readonly #readings = new Map<ReadingKey, Reading>();
  /** Those that the server put off. */
  readonly #postponed = new Set<Subscription>();
  /** Those for whose sake deltas may come. */
  readonly #withDeltas = new Set<Subscription>();
  readonly #payloads: Payloads;
  readonly #deltas: readonly DeltaDecoder[];
  readonly #commands: Command[] = [];
  readonly #notices: Notice[] = [];
  readonly #nextId: () => number;
  readonly #pauses: Pauses;
  readonly #random: () => number;
  #isConnected = false;
  #hasIds = true;
  #room = Infinity;
  /** How many topics are asked for by name at a time. */
  #namesMax = Infinity;
  #lastIndex = 0;

  constructor(nextId: () => number, pauses: Pauses, random: () => number, deltas: readonly DeltaDecoder[] = []) {
    this.#deltas = deltas;
    this.#payloads = new Payloads(deltas);
    this.#nextId = nextId;
    this.#pauses = pauses;
    this.#random = random;
  }

  /** Adds one. It is asked for at once, or when there is a connection. */
  add(selectors: readonly string[], options: ReadOptions): SubscriptionIndex {
    this.#checkDelta(options.delta);
    const index = (this.#lastIndex += 1);
    const subscription: Subscription = {
      index,
      selectors: [...selectors],
      options,
      tracker: new Tracker(options.from, ownPositions(selectors, options)),
      state: "waiting",
      wasLive: false,
      askedAs: 0,
      openCount: 0,
      readings: new Set(),
      named: [],
      namedId: 0,
      unnamed: [],
      isWithoutDeltas: false,
      refusals: 0,
      dueAt: undefined,
    };
    this.#all.set(index, subscription);
    this.#ids.set(index, subscription);
    if (this.#isConnected) this.#subscribe(subscription);
    return index;
  }

  /** Ends one. */
  remove(index: SubscriptionIndex): void {
    const ended = this.#all.get(index);
    if (ended === undefined) return;
    const { state, selectors } = ended;
    this.#end(ended);
    if (state === "asked" || state === "live") this.#unsubscribe(index, selectors);
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

  /** Asks for everything, each from where it was left, in messages of at most so many bytes, of a server that has ids or not. */
  handleConnected(messageBytesMax: number = Infinity, hasIds = true): void {
    this.#isConnected = true;
    this.#hasIds = hasIds;
    // Without ids nothing can be said of a subscription in several messages.
    this.#room = hasIds ? messageBytesMax * ROOM_SHARE : Infinity;
    this.#namesMax = Infinity;
    [...this.#all.values()].forEach((subscription) => this.#subscribe(subscription));
  }

  /** Notes that the connection is gone: everything has to be asked for again. */
  handleDisconnect(): void {
    this.#isConnected = false;
    this.#commands.length = 0;
    this.#asked.clear();
    this.#readings.clear();
    this.#postponed.clear();
    this.#payloads.handleDisconnect();
    for (const subscription of this.#all.values()) {
      if (subscription.wasLive) subscription.tracker.handleDisconnect();
      subscription.readings.clear();
      [subscription.dueAt, subscription.refusals] = [undefined, 0];
      this.#forgetNamed(subscription);
      this.#enter(subscription, "waiting");
    }
  }

  /** Takes an event, if it concerns a subscription. */
  handleEvent(event: Event, now: number): void {
    switch (event.type) {
      case "subscribed":
        return this.#handleSubscribed(event);
      case "topic":
        return this.#handleTopic(event);
      case "publication":
      case "delta":
      case "fragment":
      case "gap":
        return this.#handleArriving(event);
      case "complete":
        return this.#handleComplete(event.subscription);
      case "lag":
        return this.#all.forEach((each) => each.state === "live" && this.#tell(each, { type: "lag", ms: event.ms }));
      case "refused":
        return this.#handleRefused(event, now);
      case "unsubscribed":
        return this.#handleUnsubscribed(event);
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
      if (subscription.dueAt! <= now) this.#subscribe(subscription);
    }
  }

  /** The next command to send. */
  pollCommand(): Command | undefined {
    return this.#commands.shift();
  }

  /** What to tell next. */
  pollNotice(): Notice | undefined {
    return this.#notices.shift();
  }

  #tell({ index }: Subscription, told: Told): void {
    this.#notices.push({ of: index, told });
  }

  #enter(subscription: Subscription, state: SubscriptionState, error?: TidegateError): void {
    if (subscription.state === state) return;
    subscription.state = state;
    this.#notices.push({ of: subscription.index, state, ...(error && { error }) });
  }

  #end(subscription: Subscription, error?: TidegateError): void {
    this.#all.delete(subscription.index);
    this.#ids.delete(subscription.index);
    this.#forgetNamed(subscription);
    this.#leave(subscription);
    this.#postponed.delete(subscription);
    this.#readDeltas(subscription, false);
    this.#enter(subscription, "ended", error);
  }

  /** Takes it out of all readings: what comes is meant for others, until it is described again. */
  #leave(subscription: Subscription): void {
    subscription.readings.forEach((reading) => this.#part(subscription, reading));
  }

  #part(subscription: Subscription, reading: Reading): void {
    const { key, readers } = reading;
    subscription.readings.delete(reading);
    readers.delete(subscription);
    if (readers.size > 0) return;
    this.#readings.delete(key);
    this.#payloads.forget(key);
  }

  #unsubscribe(id: number, topics: readonly string[]): void {
    const what = this.#hasIds ? { subscription: id } : { topics };
    this.#commands.push({ type: "unsubscribe", id: this.#nextId(), ...what });
  }

  /** Ends the subscription to those that were asked for by name. */
  #forgetNamed(subscription: Subscription): void {
    const { namedId } = subscription;
    if (this.#ids.delete(namedId) && this.#isConnected) this.#unsubscribe(namedId, []);
    subscription.namedId = 0;
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

  /** Asks for it, from where it is: under its id that replaces what the server had. */
  #subscribe(subscription: Subscription): void {
    const { selectors, options, tracker, isWithoutDeltas } = subscription;
    this.#postponed.delete(subscription);
    if (!this.#hasIds && this.#refuseOverlap(subscription)) return;
    this.#leave(subscription);
    this.#forgetNamed(subscription);
    this.#readDeltas(subscription, options.delta !== undefined && !isWithoutDeltas);
    subscription.openCount = 0;
    const others = this.#send(subscription, subscription.index, selectors, tracker.positions());
    subscription.unnamed = others.filter((topic) => isReadBy(subscription, topic));
    this.#enter(subscription, "asked");
  }

  /** Without ids the server would read what overlaps under the options and from the place of the last. */
  #refuseOverlap(subscription: Subscription): boolean {
    const others = [...this.#all.values()].filter((each) => each !== subscription && (each.state === "asked" || each.state === "live"));
    const other = others.find(({ selectors }) => selectors.some((one) => subscription.selectors.some((two) => overlap(one, two))));
    if (other === undefined) return false;
    const text = `cannot subscribe beside the subscription to ${other.selectors.join(", ")}: they overlap, and the server has no \`ids\`; use one that has`;
    this.#end(subscription, new TidegateError(MISSING_FEATURE, text));
    return true;
  }

  /** Sends the command, with as many places as there is room for; answers the topics of the others. */
  #send(subscription: Subscription, id: number, selectors: readonly string[], places: Iterable<[string, Position]>): string[] {
    const { options, wasLive, isWithoutDeltas } = subscription;
    subscription.askedAs = this.#nextId();
    subscription.openCount += 1;
    this.#asked.set(subscription.askedAs, subscription);
    let room = selectors.reduce((left, { length }) => left - length, this.#room);
    const [positions, others]: [Record<string, Position>, string[]] = [{}, []];
    for (const [topic, place] of places) {
      if ((room -= topic.length + PLACE_LENGTH) > 0) positions[topic] = place;
      else others.push(topic);
    }
    this.#commands.push({
      type: "subscribe",
      id: subscription.askedAs,
      subscription: this.#hasIds ? id : undefined,
      topics: selectors,
      // A topic without a position came into being meanwhile: all of it is news.
      from: wasLive ? "all" : isPosition(options.from) ? undefined : options.from,
      positions: Object.keys(positions).length > 0 ? positions : undefined,
      conflation: options.conflation,
      interval_ms: options.intervalMs,
      priority: options.priority,
      filter: options.filter,
      delta: isWithoutDeltas ? undefined : options.delta,
      time: options.time,
      principal: options.principal,
      name: options.name,
    });
    return others;
  }

  /** Asks, by name and under an id of their own, for some of those topics whose places had no room before: they join the same readings. */
  #sendMore(subscription: Subscription): void {
    const { unnamed, tracker } = subscription;
    this.#forgetNamed(subscription);
    if (unnamed.length === 0) return;
    let room = this.#room;
    const count = unnamed.findIndex(({ length }) => (room -= 2 * length + PLACE_LENGTH) < 0);
    const named = (subscription.named = unnamed.splice(0, Math.max(1, Math.min(count < 0 ? unnamed.length : count, this.#namesMax))));
    subscription.namedId = this.#lastIndex += 1;
    this.#ids.set(subscription.namedId, subscription);
    this.#send(subscription, subscription.namedId, named, named.map((topic) => [topic, tracker.position(topic)!]));
  }

  #handleSubscribed(event: Event & { type: "subscribed" }): void {
    const subscription = this.#answered(event.id);
    if (subscription) {
      [subscription.wasLive, subscription.refusals] = [true, 0];
      this.#enter(subscription, "live");
    }
    event.topics.forEach((topic) => this.#handleTopic(topic));
    if (subscription?.namedId === 0) this.#sendMore(subscription);
  }

  /** Of those in several messages, it is complete when all of them are. */
  #handleComplete(id: number): void {
    const subscription = this.#ids.get(id);
    if (subscription?.state !== "live") return;
    subscription.openCount -= 1;
    if (id === subscription.namedId) this.#sendMore(subscription);
    if (subscription.openCount === 0) this.#tell(subscription, { type: "complete" });
  }

  #handleRefused(event: Event & { type: "refused" }, now: number): void {
    const subscription = this.#answered(event.id);
    if (subscription === undefined) return;
    if (event.code === TOO_MANY && subscription.namedId > 0 && subscription.named.length > 1) {
      // There is room for fewer.
      this.#namesMax = subscription.named.length >> 1;
      subscription.openCount -= 1;
      subscription.unnamed.unshift(...subscription.named);
      return this.#sendMore(subscription);
    }
    const error = new TidegateError(event.code, event.error);
    if (error.advice !== "retry-now" && error.advice !== "retry-later") return this.#end(subscription, error);
    subscription.dueAt = now + pauseMs(subscription.refusals, error, this.#pauses, this.#random);
    subscription.refusals += 1;
    this.#postponed.add(subscription);
    this.#leave(subscription);
    this.#enter(subscription, "waiting", error);
  }

  /** The subscription that was asked for with this id, unless it ended, or was asked for again, since. */
  #answered(id: number | undefined): Subscription | undefined {
    const subscription = this.#asked.get(id!);
    this.#asked.delete(id!);
    return subscription && subscription.askedAs === id && subscription.state !== "ended" ? subscription : undefined;
  }

  /** Without an id it is the server that ended it, because the reader was too far behind. */
  #handleUnsubscribed({ id, subscription, selectors }: Event & { type: "unsubscribed" }): void {
    if (id !== undefined) return;
    const text =
      `cannot keep the subscription to ${selectors.join(", ")}: its reader is too slow; ` +
      'read faster, or use the conflation "lagging"';
    const error = new TidegateError(4102, text);
    const all = subscription === undefined ? [...this.#all.values()] : [this.#ids.get(subscription)];
    for (const each of all) {
      const left = each?.selectors.filter((selector) => !selectors.includes(selector)) ?? [];
      if (each === undefined || left.length === each.selectors.length) continue;
      if (left.length === 0) {
        this.#end(each, error);
        continue;
      }
      each.selectors = left;
      for (const reading of each.readings) if (!isReadBy(each, reading.topic)) this.#part(each, reading);
      // It goes on with what is left; whoever cares is told what is not.
      this.#notices.push({ of: each.index, state: each.state, error });
    }
  }

  /** Takes who is told what comes under a number, and where those begin of whom that is new. */
  #handleTopic(wire: WireTopic): void {
    const { topic, epoch, start, recovered } = wire;
    const key = this.#keyOf(wire);
    const last = this.#readings.get(key);
    const isSame = last?.topic === topic;
    if (!isSame || last.epoch !== epoch) this.#payloads.forget(key);
    const reading: Reading = { key, topic, epoch, readers: new Set() };
    this.#readings.set(key, reading);
    last?.readers.forEach((reader) => reader.readings.delete(last));
    // Whoever was told it before goes on: a description may be for those alone that it lists.
    for (const reader of new Set([...(isSame ? last.readers : []), ...this.#readersOf(wire)])) {
      const isNew = !isSame || !last.readers.has(reader);
      // It is described for another: of the place that this one gave, or will give by name, it would say whether it is recovered.
      if (isNew && recovered === undefined && reader.tracker.isBefore(topic, epoch, start)) continue;
      // What is under way beyond where it begins comes again.
      if (isNew) this.#payloads.restart(key, start);
      reading.readers.add(reader);
      reader.readings.add(reading);
      reader.tracker.handleTopic(wire, isNew).forEach((told) => this.#tell(reader, told));
    }
    if (reading.readers.size === 0) this.#readings.delete(key);
  }

  #keyOf({ number, topic }: { readonly number?: number; readonly topic: string }): ReadingKey {
    return this.#hasIds ? number! : topic;
  }

  #readersOf({ topic, subscriptions }: WireTopic): Set<Subscription> {
    const listed = this.#hasIds ? (subscriptions ?? []).map((id) => this.#ids.get(id)) : [...this.#all.values()].filter((each) => isReadBy(each, topic));
    return new Set(listed.filter((each) => each?.state === "live") as Subscription[]);
  }

  /** Takes what may have to wait, or be put together, before it is told. */
  #handleArriving(event: Arriving): void {
    const key = this.#keyOf(event);
    const reading = this.#readings.get(key);
    if (reading === undefined) return;
    if (event.type === "gap" && event.epoch !== reading.epoch) {
      // Nothing of the old numbering is a base of what comes, or holds it up.
      this.#payloads.forget(key);
      reading.epoch = event.epoch;
    }
    for (const whole of this.#payloads.take(key, event)) {
      if (whole === undefined) this.#repair(reading);
      else for (const { tracker, index } of reading.readers) {
        const told = whole.type === "gap" ? tracker.handleGap(whole) : tracker.handlePublication(whole);
        if (told) this.#notices.push({ of: index, told });
      }
    }
  }

  /** Asks again for what could not be put together, without deltas: the values come whole. */
  #repair({ readers }: Reading): void {
    for (const reader of [...readers]) {
      reader.isWithoutDeltas = true;
      this.#subscribe(reader);
    }
  }
}

function isReadBy({ selectors }: Subscription, topic: string): boolean {
  return selectors.some((selector) => selects(selector, topic));
}

function isPosition(from: From | undefined): from is Position {
  return typeof from === "object" && "epoch" in from;
}

/** The places that its options give. */
export function ownPositions(selectors: readonly string[], { from, positions }: ReadOptions): Positions {
  if (!isPosition(from)) return positions ?? {};
  const [topic] = selectors;
  if (topic === undefined || selectors.length > 1 || isPattern(topic)) {
    throw new TypeError("cannot start several topics from one position: give `positions`, by topic");
  }
  return { ...positions, [topic]: from };
}
