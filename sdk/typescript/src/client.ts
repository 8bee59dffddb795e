/** The client: puts the state machines, a transport, a clock and the user's handlers together. */

import { watchPage } from "./browser.js";
import type { ConnectionAction, ConnectionState, ConnectionTimes } from "./connection.js";
import { Connection, defaultTimes } from "./connection.js";
import type { OnOptions } from "./emitter.js";
import { Emitter, throwLater } from "./emitter.js";
import { LocalCode, TidegateError } from "./errors.js";
import { FallbackPolicy } from "./fallback.js";
import type {
  Abortable,
  ClientEvents,
  ClientOptions,
  HistoryOptions,
  HistoryPage,
  HistoryRange,
  Kept,
  Logger,
  Published,
  PublishOptions,
  TokenProvider,
} from "./options.js";
import type { Command, Event, PayloadKind, Positions } from "./protocol.js";
import { decodeExtras, decodeMessage, decodePayload, encodeHeaders, encodePayload, featureOf } from "./protocol.js";
import type { AfterBreak, Asked, Outcome } from "./requests.js";
import { Requests } from "./requests.js";
import type { Lag } from "./subscription.js";
import { Subscription } from "./subscription.js";
import type { ReadOptions, SubscriptionIndex } from "./subscriptions.js";
import { ownPositions, Subscriptions } from "./subscriptions.js";
import type { AnyTopics, PayloadOf } from "./topics.js";
import { remember, remembered } from "./memory.js";
import type { CloseReason, OpenTransport, Transport, TransportKind } from "./transport.js";
import { byDefault } from "./transports.js";

/** A command on its way. */
type Sendable = Pick<Asked, "text" | "feature">;

/** The name of a transport of its user's own. */
const OWN = "own";

/** A transport that can be opened in this runtime. */
type Usable = Pick<TransportKind, "name" | "isDoubtful"> & { readonly begin: OpenTransport };

/** @internal A part of a client that is an entry of its own. */
export interface Part {
  /** Whether leaving the connection for a better one costs nothing now. */
  readonly isIdle: boolean;
  handleConnected(messageBytesMax: number): void;
  handleDisconnect(now: number): void;
  /** Takes an event; answers whether it was for this part. */
  handleEvent(event: Event): boolean;
}

/** @internal What such a part asks of its client. */
export interface Seat {
  /** Sends a command and awaits its answer; `more` is told those before the last. */
  ask(command: object, afterBreak: AfterBreak, signal?: AbortSignal, more?: (event: Event) => void): Promise<Event>;
  /** Sends a command that has no answer, if there is a connection. */
  tell(command: object): void;
  readonly report: (error: unknown) => void;
}

/** How much may come, in characters, while a loop does not keep up and the transport cannot be held up. */
const KEPT_LENGTH_MAX = 1 << 26;

/** The longest time that a timer takes. */
const TIMER_MAX_MS = 2 ** 31 - 1;

interface Waiting<Answer> {
  /** Takes an answer before the last. */
  more?: ((answer: Answer) => void) | undefined;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

/** A client of one server, or of the nodes of one. It connects at its first use, and again whenever it has to. */
export class Client<Topics extends object = AnyTopics> {
  readonly #transports: readonly Usable[];
  readonly #fallback: FallbackPolicy;
  readonly #times: ConnectionTimes;
  readonly #provider: TokenProvider | undefined;
  readonly #connection: Connection;
  readonly #subscriptions: Subscriptions;
  readonly #requests: Requests;
  // An `error` handler that throws is not asked to handle that.
  readonly #emitter = new Emitter<ClientEvents>((error, name) => (name === "error" ? throwLater : this.#report)(error));
  readonly #handles = new Map<SubscriptionIndex, Subscription>();
  readonly #waiting = new Map<number, Waiting<Event>>();
  readonly #awaitingReady = new Set<Waiting<void>>();
  readonly #lags: Lag[] = [];
  readonly #publishMs: number;
  /** What is told that the first connection failed, until it was, or there is one. */
  #logger: Logger | false;
  readonly #parts: Part[] = [];
  #transport: Transport | undefined;
  /** Which one is in use, which was told last, and whether a better one was found. */
  #using: Usable | undefined;
  #toldTransport: string | undefined;
  #isChecking = false;
  #wantsChange = false;
  /** The connection's name for the transport. */
  #serial = 0;
  #url = "";
  readonly #origin: string;
  #tokenWanted: AbortController | undefined;
  #stopped: TidegateError | undefined;
  #unwatch: (() => void) | undefined;
  #timer: { readonly at: number; readonly id: ReturnType<typeof setTimeout> } | undefined;
  #wasConnected = false;
  #messageBytesMax = Infinity;
  /** Those whose loops do not keep up; how much came since there are any; whether nothing is read until they do. */
  readonly #behind = new Set<Subscription>();
  #keptLength = 0;
  #isHeld = false;
  #features: readonly string[] | undefined;
  #isDriving = false;
  #lastId = 0;

  /**
   * A client of the server at `url`, such as `ws://localhost:8470`; of several nodes, the preferred one first.
   *
   * Throws if an address is none, or if there is nothing here to travel with.
   */
  constructor(url: string | readonly string[], options: ClientOptions = {}) {
    const urls = typeof url === "string" ? [url] : [...url];
    if (urls.length === 0) throw new TypeError("cannot connect: there is no address; give at least one");
    urls.forEach((each) => new URL(each));
    const { token, deltas, transport, queueMax = 1_000, resendMs = 240_000 } = options;
    ({ publishMs: this.#publishMs = 10_000, logger: this.#logger = console } = options);
    const times = { ...defaultTimes };
    for (const key of Object.keys(times) as (keyof ConnectionTimes)[]) times[key] = options[key] ?? times[key];
    const nextId = () => (this.#lastId += 1);
    const random = Math.random;
    this.#transports = transport ? [{ name: OWN, begin: transport }] : usable(options);
    this.#origin = urls[0]!;
    const known = this.#transports.findIndex(({ name }) => name === remembered(this.#origin));
    const fallback = new FallbackPolicy(this.#transports.length, Math.max(0, known), times.checkMs);
    this.#fallback = fallback;
    this.#times = times;
    this.#provider = typeof token === "function" ? token : undefined;
    this.#connection = new Connection({
      ...options,
      urls,
      transports: this.#transports,
      fallback,
      hasTokens: this.#provider !== undefined,
      token: typeof token === "string" ? token : undefined,
      times,
      random,
      nextId,
    });
    this.#subscriptions = new Subscriptions(nextId, times, random, deltas);
    this.#requests = new Requests({ queueMax, resendMs });
  }

  /** What the connection is at. */
  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** The transport in use: "websocket", "sse" or "poll"; `undefined` while there is no connection. */
  get transport(): string | undefined {
    return this.state === "connected" ? this.#using?.name : undefined;
  }

  /** Adds a handler; the function that it answers takes it away. */
  on<Name extends keyof ClientEvents>(
    name: Name,
    handler: (event: ClientEvents[Name]) => void,
    options?: OnOptions,
  ): () => void {
    return this.#emitter.on(name, handler, options);
  }

  /** Connects. Only needed after `close`, or after the client stopped: the first use of a new client connects too. */
  connect(): void {
    this.#stopped = undefined;
    this.#unwatch ??= watchPage({
      handleVisible: () => this.nudge(),
      handleNetwork: () => {
        this.#fallback.handleNetwork(now());
        this.nudge();
      },
    });
    this.#connection.start(now());
    this.#drive();
  }

  /** Resolves when there is a connection; rejects when the client gave up or was closed. */
  async ready({ signal }: Abortable = {}): Promise<void> {
    signal?.throwIfAborted();
    this.#begin();
    if (this.#connection.state === "connected") return;
    await abortable<void>(signal, (waiting) => {
      this.#awaitingReady.add(waiting);
      return () => this.#awaitingReady.delete(waiting);
    });
  }

  /** Tries to connect now, instead of after a pause; or finds out whether the connection still works. */
  nudge(): void {
    this.#connection.nudge(now());
    this.#drive();
  }

  /** Ends everything: subscriptions, commands that wait, the connection. */
  close(): void {
    const error = new TidegateError(LocalCode.Closed, "cannot go on: the client was closed; call `connect` first");
    this.#stopped = error;
    this.#connection.stop();
    this.#subscriptions.removeAll();
    this.#handles.forEach((handle) => handle.end());
    this.#failWaiting(error);
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#drive();
  }

  /**
   * Reads what a selector selects, or several of them, now and after every break.
   *
   * Handlers that are added at once miss nothing. Each subscription has its own options and place, also where they
   * overlap. When `signal` is aborted, the subscription ends.
   */
  subscribe<Selector extends string>(
    selectors: Selector | readonly Selector[],
    options: ReadOptions & Abortable = {},
  ): Subscription<PayloadOf<Topics, Selector>> {
    const { signal, ...read } = options;
    const list = typeof selectors === "string" ? [selectors] : [...new Set(selectors)];
    signal?.throwIfAborted();
    // One that the server stopped may be started again: then it is asked for.
    if (this.#connection.state !== "stopped") this.#begin();
    const index = this.#subscriptions.add(list, read);
    const unsubscribe = () => {
      this.#subscriptions.remove(index);
      // Notification directly: what waits to be told must not be any more.
      this.#handles.get(index)?.end();
      this.#handles.delete(index);
      this.#drive();
    };
    const handle = new Subscription<PayloadOf<Topics, Selector>>(list, ownPositions(list, read), {
      stopped: () => (this.#connection.state === "stopped" ? this.#stopped : undefined),
      unsubscribe,
      handleCaughtUp: () => {
        this.#behind.delete(handle as unknown as Subscription);
        this.#drive();
      },
      report: this.#report,
    });
    this.#handles.set(index, handle as unknown as Subscription);
    signal?.addEventListener("abort", unsubscribe);
    handle.on("state", ({ state }) => {
      if (state === "ended") signal?.removeEventListener("abort", unsubscribe);
    });
    // Later, so that whoever subscribes can add handlers first.
    queueMicrotask(() => this.#drive());
    return handle;
  }

  /**
   * Publishes, and tells where it was kept. While there is no connection it waits for one.
   *
   * Rejects with the server's refusal, or when the time is up: 4906, it was never sent; 4900, it was, and may have been kept.
   */
  async publish<Topic extends string>(
    topic: Topic,
    data: PayloadOf<Topics, Topic>,
    { key, expect, kind, headers, signal, timeoutMs = this.#publishMs }: PublishOptions = {},
  ): Promise<Published> {
    const command = { type: "publish", topic, key, expect, headers: encodeHeaders(headers), ...encodePayload(data, kind) };
    const afterBreak = key === undefined ? "fail" : "ask-again-while-remembered";
    const answer = await this.#ask(command, afterBreak, signal, undefined, timeoutMs);
    const { epoch, sequence, level } = answer as Event & { type: "published" };
    return { topic, epoch, sequence, level };
  }

  /** A page of what is kept of one topic. */
  async history<Topic extends string>(
    topic: Topic,
    { signal, ...page }: HistoryOptions = {},
  ): Promise<HistoryPage<PayloadOf<Topics, Topic>>> {
    const command = { type: "history", topic, ...page };
    const answer = (await this.#ask(command, "ask-again", signal)) as Event & { type: "history" };
    const { epoch, head, start } = answer;
    const publications = answer.publications.map(({ sequence, time_ms, ...wire }) => ({
      sequence,
      ...decodeExtras(wire, sequence),
      timeMs: time_ms,
      ...(decodePayload(wire) as { kind: PayloadKind; data: PayloadOf<Topics, Topic> }),
    }));
    return { topic, epoch, head, start, publications };
  }

  /**
   * Reads what is kept of one topic in a `for await` loop, oldest first, up to the newest that there is when it begins. A page is
   * fetched when the one before was read. What retention has removed meanwhile is a hole in the sequences.
   */
  async *readHistory<Topic extends string>(
    topic: Topic,
    { after, since, pageSize: limit, signal }: HistoryRange = {},
  ): AsyncGenerator<Kept<PayloadOf<Topics, Topic>>, void, undefined> {
    let page = await this.history(topic, { after, since, limit, signal });
    const { epoch, head } = page;
    while (page.publications.length > 0) {
      yield* page.publications;
      const { sequence } = page.publications.at(-1)!;
      if (sequence >= head) return;
      page = await this.history(topic, { after: sequence, limit, signal });
      if (page.epoch !== epoch) {
        const text = `cannot read on in the history of ${topic}: its numbering began anew; read it again`;
        throw new TidegateError(LocalCode.Renumbered, text);
      }
    }
  }

  /** Tells the server how far the durable subscriber `name` came; resolves once that is on disk. */
  async acknowledge(name: string, positions: Positions, { signal }: Abortable = {}): Promise<void> {
    await this.#ask({ type: "acknowledge", name, positions }, "ask-again", signal);
  }

  /** Asks the server for a sign of life; answers how long it took, in milliseconds. */
  async ping({ signal }: Abortable = {}): Promise<number> {
    const askedAt = now();
    await this.#ask({ type: "ping" }, "ask-again", signal);
    return now() - askedAt;
  }

  /** @internal */
  attach(part: Part): Seat {
    this.#parts.push(part);
    return {
      ask: (...asked) => this.#ask(...asked),
      tell: (command) => {
        if (this.state !== "connected") return;
        this.#sendOrRefuse({ text: JSON.stringify(command) });
        this.#drive();
      },
      report: this.#report,
    };
  }

  /** Starts at the first use; after an end only `connect` does. */
  #begin(): void {
    if (this.#stopped) throw this.#stopped;
    if (this.#connection.state === "idle") this.connect();
  }

  async #ask(
    command: object,
    afterBreak: AfterBreak,
    signal?: AbortSignal,
    more?: (event: Event) => void,
    timeoutMs = Infinity,
  ): Promise<Event> {
    signal?.throwIfAborted();
    this.#begin();
    const id = (this.#lastId += 1);
    const text = JSON.stringify({ id, ...command });
    this.#requests.add({ id, text, afterBreak, feature: featureOf(command) });
    const answer = abortable<Event>(signal, (waiting) => {
      this.#waiting.set(id, { more, ...waiting });
      return () => {
        this.#requests.remove(id);
        this.#waiting.delete(id);
      };
    });
    this.#drive();
    if (!(timeoutMs <= TIMER_MAX_MS)) return answer;
    const giveUp = () => {
      this.#requests.handleLate(id, timeoutMs);
      this.#drive();
    };
    const timer = setTimeout(giveUp, timeoutMs);
    return answer.finally(() => clearTimeout(timer));
  }

  /** Does all that there is to do. Handlers may call anything: what they cause is done here too, afterwards. */
  #drive(): void {
    if (this.#isDriving) return;
    this.#isDriving = true;
    try {
      while (this.#step());
    } finally {
      this.#isDriving = false;
    }
    this.#hold();
    this.#setTimer();
  }

  /** Reads no more while somebody is behind; but who waits for an answer may wait for it before reading on. */
  #hold(): void {
    if (this.#behind.size === 0) this.#keptLength = 0;
    const isHeld = this.#behind.size > 0 && this.#waiting.size === 0 && this.state === "connected";
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    this.#transport?.hold?.(isHeld);
  }

  #step(): boolean {
    const action = this.#connection.pollAction();
    if (action) return (this.#perform(action), true);
    if (this.#connection.state === "connected") {
      const command = this.#subscriptions.pollCommand();
      const asked = command ? this.#asked(command) : this.#wantsChange ? undefined : this.#requests.pollAsked(now());
      if (asked) return (this.#sendOrRefuse(asked), true);
      if (this.#wantsChange && [this.#requests, ...this.#parts].every(({ isIdle }) => isIdle)) return (this.#change(), true);
    }
    const notice = this.#subscriptions.pollNotice();
    if (notice) {
      const handle = this.#handles.get(notice.of);
      handle?.handleNotice(notice);
      if (handle?.isBehind) this.#behind.add(handle);
      if ("state" in notice && notice.state === "ended") this.#handles.delete(notice.of);
      return true;
    }
    const lag = this.#lags.shift();
    if (lag) return (this.#emitter.emit("lag", lag), true);
    const outcome = this.#requests.pollOutcome();
    if (outcome) this.#settle(outcome);
    return outcome !== undefined;
  }

  #perform(action: ConnectionAction): void {
    switch (action.do) {
      case "fetchToken":
        void this.#fetchToken(action.serial, action.refused);
        break;
      case "open":
        this.#openTransport(action.serial, action.url, this.#transports[action.transport]!);
        break;
      case "send":
        this.#send(JSON.stringify(action.command));
        break;
      case "close":
        this.#transport?.close();
        this.#transport = undefined;
        break;
      case "tell":
        this.#handleState(action);
    }
  }

  #lacks(feature: string | undefined): boolean {
    return feature !== undefined && this.#features?.includes(feature) === false;
  }

  #asked(command: Command): Sendable {
    // Without deltas all is told whole.
    const sent = this.#lacks("deltas") ? { ...command, delta: undefined } : command;
    return { text: JSON.stringify(sent), feature: featureOf(command) };
  }

  /** Sends a command, unless the server would close the connection for its size, or cannot carry it out. */
  #sendOrRefuse({ text, feature }: Sendable): void {
    const max = this.#messageBytesMax;
    // A character has at most three bytes: mostly there is nothing to count.
    const bytes = text.length * 3 > max ? new TextEncoder().encode(text).length : 0;
    const lacks = this.#lacks(feature);
    if (bytes <= max && !lacks) return this.#send(text);
    const { id } = JSON.parse(text) as { id?: number };
    const why = lacks
      ? `the server has no ${feature}; use one that has`
      : `it has ${bytes} bytes, and the server takes ${max}; send less, or raise its message_bytes_max`;
    this.#handleEvent({ type: "refused", id, code: lacks ? 4236 : 4206, error: `cannot send this: ${why}` });
  }

  #send(text: string): void {
    try {
      this.#transport?.send(text);
    } catch (error) {
      this.#connection.handleClose(this.#serial, { text: `cannot send: ${error}` }, now());
    }
  }

  #openTransport(serial: number, url: string, using: Usable): void {
    const connection = this.#connection;
    this.#serial = serial;
    this.#url = url;
    this.#using = using;
    this.#wantsChange = this.#isHeld = false;
    const take = (input: () => void) => {
      input();
      this.#drive();
    };
    try {
      this.#transport = using.begin(url, {
        handleOpen: () => take(() => connection.handleOpen(serial, now())),
        handleText: (text) => take(() => this.#handleText(serial, text)),
        handleClose: (reason) => {
          const isSaid = this.state === "connected" || (reason.code ?? 0) >= 4_000 || using.name === OWN;
          if (isSaid || !connection.isCurrent(serial)) take(() => connection.handleClose(serial, reason, now()));
          else void this.#askWhy(url, reason).then((why) => take(() => connection.handleClose(serial, why, now())));
        },
      });
    } catch (error) {
      connection.handleClose(serial, { text: `cannot open ${url}: ${error}` }, now());
    }
  }

  /** Why a node does not open a connection, in its own words if it has any: a failed handshake tells nothing. */
  async #askWhy(url: string, reason: CloseReason): Promise<CloseReason> {
    const aborter = new AbortController();
    this.#transport = { send: () => {}, close: () => aborter.abort() };
    try {
      const { whyNot } = await import("./later.js");
      return (await whyNot(url, aborter.signal)) ?? reason;
    } catch {
      return reason;
    }
  }

  #handleText(serial: number, text: string): void {
    const connection = this.#connection;
    if (!connection.isCurrent(serial)) return;
    connection.handleHeard(serial, now());
    if (this.#behind.size > 0 && (this.#keptLength += text.length) > KEPT_LENGTH_MAX) {
      this.#behind.forEach((handle) => handle.overflow());
    }
    try {
      for (const event of decodeMessage(text, this.#subscriptions.sources)) {
        if (!connection.isCurrent(serial)) return;
        this.#handleEvent(event);
      }
    } catch (error) {
      const why = `cannot read what the server sent: ${error}; check that the address is a Tidegate server's`;
      connection.handleClose(serial, { text: why }, now());
    }
  }

  #handleEvent(event: Event): void {
    if (event.type === "welcome") {
      this.#messageBytesMax = event.limits?.message_bytes_max ?? Infinity;
      this.#features = event.features;
    }
    if (this.#connection.handleEvent(event, now()) || this.#requests.handleEvent(event)) return;
    if (this.#parts.some((part) => part.handleEvent(event))) return;
    this.#subscriptions.handleEvent(event, now());
    if (event.type === "lag") this.#lags.push({ ms: event.ms });
  }

  async #fetchToken(serial: number, refused: TidegateError | undefined): Promise<void> {
    this.#tokenWanted?.abort();
    const { signal } = (this.#tokenWanted = new AbortController());
    try {
      const token = await this.#provider?.({ refused, signal });
      this.#connection.handleToken(serial, token, now());
    } catch (cause) {
      const text = `cannot get a token: ${cause}; check what the \`token\` option calls`;
      const error = cause instanceof TidegateError ? cause : new TidegateError(LocalCode.Unreachable, text, { cause });
      this.#connection.handleTokenFailed(serial, error, now());
    }
    this.#drive();
  }

  #handleState({ do: _, ...told }: ConnectionAction & { do: "tell" }): void {
    const { state, error } = told;
    if (state === "connected") {
      this.#handleTransport(this.#using!.name);
      this.#subscriptions.handleConnected(this.#messageBytesMax, this.#features?.includes("ids") === true);
      [this.#requests, ...this.#parts].forEach((part) => part.handleConnected(this.#messageBytesMax));
      this.#awaitingReady.forEach((waiting) => waiting.resolve(undefined));
      this.#awaitingReady.clear();
    } else if (this.#wasConnected) {
      [this.#subscriptions, this.#requests, ...this.#parts].forEach((part) => part.handleDisconnect(now()));
    }
    this.#wasConnected = state === "connected";
    this.#warn(told);
    if (state === "idle" || state === "stopped") this.#tokenWanted?.abort();
    const wasAwaited = state === "stopped" && this.#giveUp(error!);
    this.#emitter.emit("state", told);
    if (state === "stopped" && !wasAwaited) this.#report(error);
  }

  /** Says once that the first connection failed, unless another attempt begins at once. */
  #warn({ state, error, retryInMs }: ClientEvents["state"]): void {
    const isStopped = state === "stopped";
    const isOver = isStopped || (error !== undefined && retryInMs! > 0);
    if (isOver && this.#logger) {
      const next = isStopped ? "it is not tried again" : "it is tried again until there is a connection";
      this.#logger.warn(`Tidegate: no connection to ${this.#url || this.#origin}: ${error!.message} (${error!.code}); ${next}`);
    }
    if (isOver || state === "connected") this.#logger = false;
  }

  #handleTransport(transport: string): void {
    if (this.#transports.length > 1) remember(this.#origin, transport);
    if (transport === this.#toldTransport) return;
    this.#toldTransport = transport;
    this.#emitter.emit("transport", { transport });
  }

  /** Looks whether a better transport gets through by now, beside the one in use. */
  async #check(): Promise<void> {
    if (this.#isChecking || this.state !== "connected") return;
    this.#isChecking = true;
    const [url, using] = [this.#url, this.#using!];
    const better = this.#transports.slice(0, this.#transports.indexOf(using));
    let found: number | undefined;
    try {
      // Who falls back has loaded this already, unless its transports were given.
      const { firstThrough } = await import("./later.js");
      found = await firstThrough(better, url, () => this.#connection.hello(), this.#times.fallbackMs);
    } catch (cause) {
      const text = `cannot look for a better transport: ${cause}; check that all files of the SDK are served`;
      this.#report(new TidegateError(LocalCode.Unreachable, text, { cause }));
    }
    this.#isChecking = false;
    // Meanwhile it may have gone elsewhere by itself.
    const isStill = this.state === "connected" && this.#using === using;
    this.#fallback.handleChecked(isStill ? found : undefined, now());
    this.#wantsChange = isStill && found !== undefined;
    this.#drive();
  }

  /** Goes over to the better transport: subscriptions go on where they are, and no answer is awaited. */
  #change(): void {
    this.#wantsChange = false;
    this.#connection.change(now());
  }

  /** Ends all waiting, because there will be no connection; answers whether anybody waited. */
  #giveUp(error: TidegateError): boolean {
    if (this.#connection.state === "stopped") this.#stopped = error;
    const wereRead = [...this.#handles.values()].map((handle) => handle.interrupt(error));
    return this.#failWaiting(error) || wereRead.includes(true);
  }

  #failWaiting(error: TidegateError): boolean {
    const waiting = [...this.#awaitingReady];
    this.#awaitingReady.clear();
    waiting.forEach((each) => each.reject(error));
    this.#requests.handleStop(error);
    return waiting.length + this.#waiting.size > 0;
  }

  #settle(outcome: Outcome): void {
    const waiting = this.#waiting.get(outcome.id);
    if (outcome.event && "more" in outcome.event && outcome.event.more) return waiting?.more?.(outcome.event);
    this.#waiting.delete(outcome.id);
    if (outcome.error) waiting?.reject(outcome.error);
    else waiting?.resolve(outcome.event);
  }

  /** Tells what nobody else takes care of. Without an `error` handler it is thrown, so that it is seen. */
  readonly #report = (error: unknown): void => {
    if (this.#emitter.has("error")) this.#emitter.emit("error", error);
    else throwLater(error);
  };

  #setTimer(): void {
    const checkAt = this.state === "connected" && !this.#isChecking ? this.#fallback.checkAt : undefined;
    const at = Math.min(...[this.#connection.wakeAt, this.#subscriptions.wakeAt, checkAt].map((each) => each ?? Infinity));
    // One that fires too early only looks again: cheaper than a new one for every message.
    if (at < Infinity && this.#timer && this.#timer.at <= at) return;
    clearTimeout(this.#timer?.id);
    const wake = () => {
      this.#timer = undefined;
      // Who does not listen does not say that nothing was said.
      if (this.#isHeld) this.#connection.handleHeard(this.#serial, now());
      this.#connection.handleWake(now());
      this.#subscriptions.handleWake(now());
      if ((this.#fallback.checkAt ?? Infinity) <= now()) void this.#check();
      this.#drive();
    };
    this.#timer = at < Infinity ? { at, id: setTimeout(wake, Math.max(0, at - now())) } : undefined;
  }
}

/** The transports that a client is to use, as far as this runtime has what they need. */
function usable({ transports = byDefault, WebSocket }: ClientOptions): readonly Usable[] {
  const found = transports.flatMap((each) => {
    const kind = typeof each === "string" ? byDefault.find(({ name }) => name === each) : each;
    const begin = kind?.open({ WebSocket });
    return begin ? [{ ...kind!, begin }] : [];
  });
  if (found.length > 0) return found;
  const text = 'cannot connect: this runtime has no WebSocket; pass `ws` as the option `WebSocket`, or allow "sse"';
  throw new TidegateError(LocalCode.Misused, text);
}

/** Waits for what `begin` begins, or until `signal` is aborted: then the function that it answered ends it. */
async function abortable<T>(signal: AbortSignal | undefined, begin: (waiting: Waiting<T>) => () => void): Promise<T> {
  let abort = () => {};
  try {
    return await new Promise<T>((resolve, reject) => {
      const end = begin({ resolve, reject });
      abort = () => {
        end();
        reject(signal!.reason);
      };
      signal?.addEventListener("abort", abort);
    });
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

/** A clock that never goes back, in milliseconds. */
function now(): number {
  return performance.now();
}
