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
import type { Command, Conflation, Event, From, Position, Positions, WireTopic } from "./protocol.js";
import { Readers } from "./readers.js";
import { isPattern, selects } from "./selector.js";
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
  /** A durable subscriber's name: the server remembers what was acknowledged under it. */
  readonly name?: string;
}

/** Names a subscription of one client. */
export type SubscriptionIndex = number;

/** What came of an event, a command or time, and for which subscription. */
export type Notice =
  | { readonly of: SubscriptionIndex; readonly told: Notification | { readonly type: "lag"; readonly ms: number } }
  | { readonly of: SubscriptionIndex; readonly state: SubscriptionState; readonly error?: TidegateError };

interface Subscription {
  readonly index: SubscriptionIndex;
  selectors: readonly string[];
  readonly options: ReadOptions;
  readonly tracker: Tracker;
  /** How it is read: what the server keeps for all that overlap, as the last of them says. */
  readonly manner: string;
  state: SubscriptionState;
  /** It was live once: what comes next must join on to what was read. */
  wasLive: boolean;
  /** The command whose answer counts. */
  askedAs: number;
  /** Topics that are asked for by name, because their places had no room in the message before; and those of the next ones. */
  named: readonly string[];
  unnamed: string[];
  /** A delta could not be applied: it is read without, from then on. */
  isWithoutDeltas: boolean;
  /** How often it was put off, and until when. */
  refusals: number;
  dueAt: number | undefined;
}

/** How much of a message that the server takes may be selectors and places, in characters: each has up to three bytes, and some quotes. */
const ROOM_SHARE = 1 / 8;

/** What a place has beside the name of its topic, in characters. */
const PLACE_LENGTH = 64;

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
  #held = new Readers<Subscription>();
  /** Those that the server put off. */
  readonly #postponed = new Set<Subscription>();
  /** Those for whose sake deltas may come. */
  readonly #withDeltas = new Set<Subscription>();
  /** The newest numbering of each topic that the server told of. */
  readonly #epochs = new Map<string, string>();
  /** How many are read in each manner. */
  readonly #manners = new Map<string, number>();
  readonly #payloads: Payloads;
  readonly #deltas: readonly DeltaDecoder[];
  readonly #commands: Command[] = [];
  readonly #notices: Notice[] = [];
  readonly #nextId: () => number;
  readonly #pauses: Pauses;
  readonly #random: () => number;
  #isConnected = false;
  #room = Infinity;
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
    this.#checkDelta(options.delta);
    const index = this.#nextIndex++;
    const subscription: Subscription = {
      index,
      selectors: [...selectors],
      options,
      tracker: new Tracker(options.from, ownPositions(selectors, options)),
      manner: JSON.stringify({ ...options, from: 0, positions: 0 }),
      state: "waiting",
      wasLive: false,
      askedAs: 0,
      named: [],
      unnamed: [],
      isWithoutDeltas: false,
      refusals: 0,
      dueAt: undefined,
    };
    this.#all.set(index, subscription);
    this.#count(subscription, 1);
    this.#readers.add(subscription);
    if (this.#isConnected) this.#ask(subscription);
    return index;
  }

  /**
   * Ends one. What others still read stays subscribed. The server reads all that overlap as the last of them said: if
   * others are to be read in another manner, they are asked for again; apart, if nothing joins them any more.
   */
  remove(index: SubscriptionIndex): void {
    const ended = this.#all.get(index);
    if (ended === undefined) return;
    const wasAsked = isAsked(ended);
    const group = wasAsked && this.#manners.size > 1 ? this.#group([ended]) : new Set<Subscription>();
    group.delete(ended);
    this.#end(ended);
    if (!wasAsked) return;
    const others = [...this.#group(group)];
    const isChange = others.some(({ manner }) => manner !== ended.manner);
    const isSplit = isChange && this.#group([others[0]!]).size < others.length;
    const selectors = [ended, ...(isSplit ? others : [])].flatMap((each) => [...each.selectors, ...each.named]);
    this.#unsubscribe(selectors.filter((selector) => isSplit || !this.#readers.with(selector)));
    if (!isChange) return;
    inOrder(others).forEach((each) => this.#askAgain(each));
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

  /** Asks for everything, each from where it was left, in messages of at most so many bytes. */
  handleConnected(messageBytesMax: number = Infinity): void {
    this.#isConnected = true;
    this.#room = messageBytesMax * ROOM_SHARE;
    this.#all.forEach((subscription) => this.#ask(subscription));
  }

  /** Notes that the connection is gone: everything has to be asked for again. */
  handleDisconnect(): void {
    this.#isConnected = false;
    this.#commands.length = 0;
    this.#asked.clear();
    [this.#settling, this.#unsettled, this.#open].forEach((all) => all.clear());
    [this.#unplaced, this.#returning, this.#held] = [new Readers(), new Readers(), new Readers()];
    this.#postponed.clear();
    this.#payloads.handleDisconnect();
    for (const subscription of this.#all.values()) {
      if (subscription.wasLive) subscription.tracker.handleDisconnect();
      [subscription.dueAt, subscription.refusals, subscription.named] = [undefined, 0, []];
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
  pollNotice(): Notice | undefined {
    return this.#notices.shift();
  }

  #enter(subscription: Subscription, state: SubscriptionState, error?: TidegateError): void {
    if (subscription.state === state) return;
    subscription.state = state;
    this.#notices.push({ of: subscription.index, state, ...(error && { error }) });
  }

  #end(subscription: Subscription, error?: TidegateError): void {
    this.#all.delete(subscription.index);
    this.#count(subscription, -1);
    this.#readers.remove(subscription);
    this.#forgetUnread(subscription.selectors);
    this.#postponed.delete(subscription);
    this.#held.remove(subscription);
    this.#readDeltas(subscription, false);
    this.#enter(subscription, "ended", error);
    this.#place(subscription);
  }

  #count({ manner }: Subscription, more: number): void {
    const count = (this.#manners.get(manner) ?? 0) + more;
    if (count > 0) this.#manners.set(manner, count);
    else this.#manners.delete(manner);
  }

  /** All that the server reads together with these: they overlap, or overlap with what does. */
  #group(these: Iterable<Subscription>): Set<Subscription> {
    const group = new Set(these);
    // What is added meanwhile is come to as well.
    for (const { selectors } of group) {
      for (const selector of selectors) this.#readers.of(selector).forEach((other) => isAsked(other) && group.add(other));
    }
    return group;
  }

  #unsubscribe(topics: readonly string[]): void {
    if (topics.length > 0) this.#commands.push({ type: "unsubscribe", id: this.#nextId(), topics: [...new Set(topics)] });
  }

  /** Lets go of what came, or was under way, for selectors that had a reader. */
  #forgetUnread(selectors: readonly string[]): void {
    if (selectors.some(isPattern)) this.#payloads.forgetUnless((topic) => this.#readers.of(topic).size > 0);
    else selectors.forEach((topic) => this.#readers.of(topic).size > 0 || this.#payloads.forget(topic));
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
    this.#held.remove(subscription);
    this.#postponed.delete(subscription);
    const others = subscription.wasLive ? [this.#unplaced] : [this.#unplaced, this.#returning];
    const isHeld = subscription.selectors.some((selector) => others.some((readers) => readers.of(selector).size > 0));
    if (!isHeld) return this.#subscribe(subscription);
    this.#held.add(subscription);
    this.#settle();
  }

  /** Asks for one that is read already. While that has to wait, what comes would seem to follow what was lost, or is read as another said. */
  #askAgain(subscription: Subscription): void {
    this.#enter(subscription, "asked");
    this.#ask(subscription);
  }

  /** Notes that it is known where a subscription is, and asks for what waited for that. */
  #place(subscription: Subscription): void {
    if (!this.#open.delete(subscription)) return;
    this.#unsettled.delete(subscription);
    this.#unplaced.remove(subscription);
    this.#returning.remove(subscription);
    const freed = new Set(subscription.selectors.flatMap((selector) => [...this.#held.of(selector)]));
    inOrder([...freed]).forEach((held) => this.#ask(held));
  }

  #subscribe(subscription: Subscription): void {
    const { selectors, options, wasLive } = subscription;
    const places = this.#placesFor(subscription);
    subscription.tracker.handleAsked();
    this.#readDeltas(subscription, options.delta !== undefined && !subscription.isWithoutDeltas);
    const isPlaced = selectors.every((selector) => places.has(selector) || this.#isCovered(selector, subscription));
    [subscription.named, subscription.unnamed] = [[], this.#send(subscription, selectors, places)];
    const isOpen = !isPlaced || subscription.unnamed.length > 0;
    if (isOpen) this.#open.add(subscription);
    if (isOpen) (wasLive ? this.#returning : this.#unplaced).add(subscription);
    this.#enter(subscription, "asked");
  }

  /** Sends the command, with as many places as there is room for; answers the topics of the others. */
  #send(subscription: Subscription, selectors: readonly string[], places: ReadonlyMap<string, Position>): string[] {
    const { options, wasLive, isWithoutDeltas } = subscription;
    const id = (subscription.askedAs = this.#nextId());
    this.#asked.set(id, subscription);
    let room = selectors.reduce((left, { length }) => left - length, this.#room);
    const fits = ([topic]: [string, Position]) => (room -= topic.length + PLACE_LENGTH) > 0;
    const positions = Object.fromEntries([...places].filter(fits));
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
      delta: isWithoutDeltas ? undefined : options.delta,
      name: options.name,
    });
    return [...places.keys()].filter((topic) => !Object.hasOwn(positions, topic));
  }

  /** Asks, by name, for some of those topics whose places had no room before; answers whether there were any. */
  #sendMore(subscription: Subscription): boolean {
    const { named, unnamed } = subscription;
    this.#unsubscribe(named.filter((topic) => !this.#readers.with(topic)));
    let room = this.#room;
    const count = unnamed.findIndex(({ length }) => (room -= 2 * length + PLACE_LENGTH) < 0);
    subscription.named = unnamed.splice(0, count < 0 ? unnamed.length : Math.max(1, count));
    const places = subscription.named.map((topic) => [topic, this.#placeFor(subscription, topic)!] as const);
    if (places.length > 0) this.#send(subscription, subscription.named, new Map(places));
    return places.length > 0;
  }

  /** Whether another has the same pattern, and knows where it is in all of its topics. */
  #isCovered(selector: string, subscription: Subscription): boolean {
    for (const other of this.#readers.with(selector) ?? []) {
      if (isPattern(selector) && other !== subscription && other.state === "live" && !this.#open.has(other)) return true;
    }
    return false;
  }

  /** The earliest place that anybody needs of each topic that `subscription` reads. */
  #placesFor(subscription: Subscription): Map<string, Position> {
    const topics = new Set(subscription.tracker.topics());
    for (const selector of subscription.selectors) {
      if (!isPattern(selector)) topics.add(selector);
      else
        for (const { tracker } of this.#readers.of(selector)) {
          for (const topic of tracker.topics()) if (selects(selector, topic)) topics.add(topic);
        }
    }
    const places = new Map<string, Position>();
    for (const topic of topics) {
      const place = this.#placeFor(subscription, topic);
      if (place !== undefined) places.set(topic, place);
    }
    return places;
  }

  #placeFor(subscription: Subscription, topic: string): Position | undefined {
    let place = subscription.tracker.position(topic);
    let isAllWanted = false;
    for (const other of this.#readers.of(topic)) {
      if (other === subscription || !(other.wasLive || other.state === "asked")) continue;
      const theirs = other.tracker.position(topic);
      // What the server has on its way to that one begins at the beginning.
      isAllWanted ||= theirs === undefined && (other.wasLive || other.options.from === "all");
      if (theirs === undefined) continue;
      place ??= this.#join(subscription, topic, theirs);
      if (place === undefined) continue;
      // Beside a place of the newest numbering one of an older means nothing: asking for that would lose what is between.
      const isEarlier = place.epoch === theirs.epoch ? theirs.sequence < place.sequence : theirs.epoch === this.#epochs.get(topic);
      if (isEarlier) place = theirs;
    }
    return place && isAllWanted ? { ...place, sequence: 0 } : place;
  }

  /** Where a new subscription starts in a topic of which another has read up to `theirs`. */
  #join({ options, wasLive, tracker }: Subscription, topic: string, theirs: Position): Position | undefined {
    const from = options.from ?? "snapshot";
    // The server starts from the oldest that there is, or from where the name left off.
    if (wasLive || options.name !== undefined) return undefined;
    const back = from === "now" ? 0 : from === "snapshot" ? 1 : typeof from === "object" && "last" in from ? from.last : undefined;
    if (back === undefined) return undefined;
    const sequence = Math.max(0, theirs.sequence - back);
    tracker.join(topic, theirs, sequence);
    return { epoch: theirs.epoch, sequence };
  }

  #handleSubscribed(event: Event & { type: "subscribed" }): void {
    const subscription = this.#answered(event.id);
    if (subscription) {
      [subscription.wasLive, subscription.refusals] = [true, 0];
      this.#enter(subscription, "live");
    }
    // Others who read these are told of it nowhere else.
    event.topics.forEach((topic) => this.#handleTopic(topic));
    if (subscription) this.#goOn(subscription);
  }

  /** Goes on with what is left to ask for, or to wait for. */
  #goOn(subscription: Subscription): void {
    if (this.#sendMore(subscription)) return;
    if (!subscription.selectors.some(isPattern)) return this.#place(subscription);
    if (this.#open.has(subscription)) this.#unsettled.add(subscription);
    if (this.#held.hasAny) this.#settle();
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
    // Without their places these topics are read from their beginning: it is more, but nothing else.
    if (subscription.named.length > 0) return ((subscription.named = []), this.#goOn(subscription));
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
    const subscription = this.#asked.get(id!);
    this.#asked.delete(id!);
    return subscription && subscription.askedAs === id && isAsked(subscription) ? subscription : undefined;
  }

  /** Without an id it is the server that ended it, because the reader was too far behind. */
  #handleUnsubscribed(event: Event & { type: "unsubscribed" }): void {
    if (event.id !== undefined) return;
    const text =
      `cannot keep the subscription to ${event.selectors.join(", ")}: its reader is too slow; ` +
      'read faster, or use the conflation "lagging"';
    const error = new TidegateError(4102, text);
    const ended = new Set(event.selectors.flatMap((selector) => [...(this.#readers.with(selector) ?? [])]));
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
        this.#notices.push({ of: subscription.index, state: subscription.state, error });
      }
    }
  }

  #handleLag(topic: string | undefined, ms: number): void {
    const lagging = topic === undefined ? [...this.#all.values()] : this.#readers.of(topic);
    for (const { index, state } of lagging) {
      if (state === "live") this.#notices.push({ of: index, told: { type: "lag", ms } });
    }
  }

  /** Takes the place where a topic is read from. */
  #handleTopic(topic: WireTopic): void {
    const readers = [...this.#readers.of(topic.topic)].filter(({ state }) => state === "live");
    this.#handleEpoch(topic);
    // Who begins here is told everything from here on, and nothing of what another reading left under way.
    if (!readers.every(({ tracker }) => tracker.reads(topic.topic))) this.#payloads.restart(topic.topic, topic.start);
    inOrder(readers.filter((reader) => this.#isOvertaken(reader, topic))).forEach((reader) => this.#askAgain(reader));
    this.#tell(topic.topic, (tracker) => tracker.handleTopic(topic, this.#payloads.awaits(topic.topic)));
  }

  /**
   * Whether a topic is read from beyond where a reader is, because who was asked for later knew of no place there. What is
   * under way in pieces counts as told: only who was asked for later has it told from beyond that.
   */
  #isOvertaken(reader: Subscription, { topic, epoch, start, recovered }: WireTopic): boolean {
    if (recovered === false) return false;
    const place = reader.tracker.position(topic);
    const isLater = [...this.#readers.of(topic)].some(({ askedAs }) => askedAs > reader.askedAs);
    // Who knew all topics that there were has nothing of those that came since.
    if (place === undefined) return start > 0 && isLater && !this.#open.has(reader);
    const isBefore = reader.tracker.reads(topic) && place.epoch === epoch && place.sequence < start;
    return isBefore && (isLater || !this.#payloads.awaits(topic));
  }

  /** A numbering that began anew: nothing that came of the old one is a base of what comes, or holds it up. */
  #handleEpoch({ topic, epoch }: { readonly topic: string; readonly epoch: string }): void {
    this.#epochs.set(topic, epoch);
    const isAnew = [...this.#readers.of(topic)].some(({ tracker }) => (tracker.position(topic)?.epoch ?? epoch) !== epoch);
    if (isAnew) this.#payloads.forget(topic);
  }

  /** Takes what may have to wait, or be put together, before it is told. */
  #handleArriving(event: Arriving): void {
    if (this.#readers.of(event.topic).size === 0) return this.#payloads.forget(event.topic);
    for (const whole of this.#payloads.take(event)) {
      if (whole.type === "broken") this.#repair(whole.topic);
      else if (whole.type === "gap") this.#tell(whole.topic, (tracker) => tracker.handleGap(whole));
      else this.#tell(whole.topic, (tracker) => tracker.handlePublication(whole));
    }
  }

  /** Asks again for what could not be put together, without deltas: the values come whole. */
  #repair(topic: string): void {
    for (const reader of inOrder([...this.#readers.of(topic)])) {
      if (reader.state !== "live") continue;
      reader.isWithoutDeltas = true;
      this.#askAgain(reader);
    }
  }

  #tell(topic: string, take: (tracker: Tracker) => Notification[]): void {
    for (const reader of this.#readers.of(topic)) {
      // Until it is answered, what comes is meant for others.
      if (reader.state === "live") this.#push(reader, take(reader.tracker));
    }
  }

  #push(subscription: Subscription, told: Notification[]): void {
    for (const one of told) this.#notices.push({ of: subscription.index, told: one });
  }
}

/** Whether the server has been told of it. */
function isAsked({ state }: Subscription): boolean {
  return state === "asked" || state === "live";
}

/** The newest last: its options are those that go. */
function inOrder(subscriptions: Subscription[]): Subscription[] {
  return subscriptions.sort((one, other) => one.index - other.index);
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
