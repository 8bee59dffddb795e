/**
 * The connection as a state machine: nodes, tokens, greeting, silence, pauses. Pure: it is fed with what
 * happened and when, and drained of what to do. It knows neither sockets nor timers, nor which transport
 * carries the text.
 */

import type { Pauses } from "./backoff.js";
import { pauseMs } from "./backoff.js";
import { adviceOf, LocalCode, TidegateError } from "./errors.js";
import type { FallbackPolicy } from "./fallback.js";
import type { Command, Event } from "./protocol.js";
import { FEATURES } from "./protocol.js";
import type { CloseReason } from "./transport.js";

/**
 * What a connection is at.
 *
 * `idle`: not started, or closed by its user. `authorizing`: a token is awaited. `opening`: the transport is.
 * `greeting`: `hello` was sent. `connected`. `waiting`: for the next attempt. `stopped`: the server's code
 * says that trying again as it is would be useless.
 */
export type ConnectionState =
  | "idle"
  | "authorizing"
  | "opening"
  | "greeting"
  | "connected"
  | "waiting"
  | "stopped";

/** Codes that say nothing against the node: the session over plain HTTP ended, or its response went on long enough. */
const NO_SESSION = 4002;
const ROLLED = 4003;

/** Codes that no other token cures: the page's origin is not let in, or the server does not go by that name. */
const FINAL: readonly number[] = [4302, 4304];

/** What there is to do. A `serial` comes back with the answer, so that late answers are recognised. */
export type ConnectionAction =
  | { readonly do: "fetchToken"; readonly serial: number; readonly refused: TidegateError | undefined }
  | { readonly do: "open"; readonly serial: number; readonly url: string; readonly transport: number }
  | { readonly do: "send"; readonly command: Command }
  | { readonly do: "close" }
  | { readonly do: "tell"; readonly state: ConnectionState; readonly error?: TidegateError; readonly retryInMs?: number };

/** Bounds of a connection, in milliseconds. */
export interface ConnectionTimes extends Pauses {
  /** How long opening and greeting may take. Default 10,000. */
  readonly openMs: number;
  /** The same, while there is another transport to try. Default 5,000. */
  readonly fallbackMs: number;
  /** How long after falling back a better transport is looked at; then less and less often. Default 30,000. */
  readonly checkMs: number;
  /** How long the token provider may take. Default 30,000. */
  readonly tokenMs: number;
  /** Silence after which the server is pinged. Default 25,000. */
  readonly silenceMs: number;
  /** How long the answer to that may take. Default 10,000. */
  readonly answerMs: number;
  /** How long a connection must have stood for the pauses to start again from the shortest. Default 5,000. */
  readonly stableMs: number;
}

/** The defaults. */
export const defaultTimes: ConnectionTimes = {
  firstMs: 250,
  lastMs: 30_000,
  openMs: 10_000,
  fallbackMs: 5_000,
  checkMs: 30_000,
  tokenMs: 30_000,
  silenceMs: 25_000,
  answerMs: 10_000,
  stableMs: 5_000,
};

/** What a connection is made of. */
export interface ConnectionOptions {
  /** The nodes, the preferred one first. */
  readonly urls: readonly string[];
  /** The transports to travel with, the best one first, and where the client is on them. */
  readonly transports: readonly { readonly isDoubtful?: boolean }[];
  readonly fallback: FallbackPolicy;
  /** Whether there is somebody to ask for tokens. */
  readonly hasTokens: boolean;
  /** The token, if it is known from the start and there is nobody to ask for another. */
  readonly token?: string | undefined;
  /** The client's own name, for the server's logs. */
  readonly name?: string | undefined;
  /** What the server may send at most. */
  readonly bytesPerSecond?: number | undefined;
  readonly messagesPerSecond?: number | undefined;
  readonly times: ConnectionTimes;
  /** A number in [0, 1). */
  readonly random: () => number;
  /** The next command's id. */
  readonly nextId: () => number;
}

/** The state machine. */
export class Connection {
  readonly #options: ConnectionOptions;
  #state: ConnectionState = "idle";
  #serial = 0;
  #node = 0;
  #attempt = 0;
  #token: string | undefined;
  #needsToken: boolean;
  #refused: TidegateError | undefined;
  /** The id of the `hello` or `ping` whose answer is awaited. */
  #askedAs: number | undefined;
  /** When the current state has lasted long enough: the attempt, the pause, the silence. */
  #dueAt: number | undefined;
  #connectedAt = 0;
  /** It got through, as far as the fallback was told. */
  #isWorking = false;
  #isDoubtful = false;
  #actions: ConnectionAction[] = [];

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#needsToken = options.hasTokens;
    this.#token = options.token;
  }

  /** What it is at. */
  get state(): ConnectionState {
    return this.#state;
  }

  /** Starts, or starts again after it stopped. Nothing happens while it is going on. */
  start(now: number): void {
    if (this.#state !== "idle" && this.#state !== "stopped") return;
    this.#attempt = 0;
    this.#needsToken = this.#options.hasTokens;
    this.#begin(now);
  }

  /** Ends it for good, until somebody starts it again. */
  stop(): void {
    if (this.#state === "idle") return;
    this.#leave();
    this.#enter("idle");
  }

  /** Tries now: ends a pause; asks for a token again; asks a server that seems to be there for a sign of life. */
  nudge(now: number): void {
    if (this.#state === "waiting" || this.#state === "authorizing") this.#begin(now);
    else if (this.#state === "connected" && this.#askedAs === undefined) this.#ping(now);
  }

  /** Takes the token that was asked for. */
  handleToken(serial: number, token: string | undefined, now: number): void {
    if (!this.#isAt(serial, "authorizing")) return;
    this.#token = token;
    this.#needsToken = false;
    this.#open(now);
  }

  /** Notes that there was no token to be had. An error with a code is obeyed like the server's. */
  handleTokenFailed(serial: number, error: TidegateError, now: number): void {
    if (!this.#isAt(serial, "authorizing")) return;
    if (error.advice === "change-first" || error.advice === "authenticate-first") this.#giveUp(error);
    else this.#retry(error, 0, now);
  }

  /** Notes that the transport is open. */
  handleOpen(serial: number, now: number): void {
    if (!this.#isAt(serial, "opening")) return;
    const command = this.hello();
    this.#askedAs = command.id;
    this.#enter("greeting");
    this.#dueAt = now + this.#openMs();
    this.#actions.push({ do: "send", command });
  }

  /** The command that begins a session. */
  hello(): Command {
    const { name, bytesPerSecond, messagesPerSecond, nextId } = this.#options;
    return {
      type: "hello",
      id: nextId(),
      batch: true,
      fragments: true,
      features: FEATURES,
      token: this.#token,
      client: name,
      bytes_per_second: bytesPerSecond,
      messages_per_second: messagesPerSecond,
    };
  }

  /** Leaves a connection that stands for the transport that the fallback is at now. */
  change(now: number): void {
    if (this.#state !== "connected") return;
    this.#leave();
    this.#open(now);
  }

  /** Notes that the transport is closed, with the server's code if it gave one. */
  handleClose(serial: number, reason: CloseReason, now: number): void {
    if (!this.isCurrent(serial)) return;
    const isOurs = adviceOf(reason.code ?? 0) !== "local";
    const code = isOurs ? reason.code! : LocalCode.Unreachable;
    this.#handleBreak(new TidegateError(code, reason.text), reason.retryAfterMs ?? 0, now);
  }

  /** Whether what the transport with this serial tells still matters. */
  isCurrent(serial: number): boolean {
    return serial === this.#serial && this.#isOnline();
  }

  /** Notes that the server was heard. */
  handleHeard(serial: number, now: number): void {
    if (!this.#isAt(serial, "connected")) return;
    this.#handleWorking(now);
    const { silenceMs, answerMs } = this.#options.times;
    this.#dueAt = now + (this.#askedAs === undefined ? silenceMs : answerMs);
  }

  /** Takes an event; answers whether it was for the connection itself. */
  handleEvent(event: Event, now: number): boolean {
    const isAnswer = event.id !== undefined && event.id === this.#askedAs;
    if (event.type === "closing") {
      const error = new TidegateError(event.code, event.error);
      this.#handleBreak(error, event.retry_after_ms ?? 0, now);
      return true;
    }
    if (!isAnswer) return false;
    this.#askedAs = undefined;
    if (event.type === "refused") {
      this.#handleBreak(new TidegateError(event.code, event.error), 0, now);
    } else if (event.type === "welcome") {
      this.#connectedAt = now;
      this.#refused = undefined;
      this.#enter("connected");
      this.#dueAt = now + this.#options.times.silenceMs;
      if (this.#isDoubtful) this.#ping(now, Math.min(this.#options.times.answerMs, this.#openMs()));
      else this.#handleWorking(now);
    } else {
      this.#dueAt = now + this.#options.times.silenceMs;
    }
    return true;
  }

  /** When it has to be woken, if nothing happens before. */
  get wakeAt(): number | undefined {
    return this.#dueAt;
  }

  /** Does what is due. */
  handleWake(now: number): void {
    if (this.#dueAt === undefined || now < this.#dueAt) return;
    if (this.#state === "waiting") return this.#begin(now);
    if (this.#state === "connected" && this.#askedAs === undefined) return this.#ping(now);
    if (this.#state === "authorizing") {
      const text = "cannot get a token: there is none in time; check what the `token` option calls, or raise `tokenMs`";
      return this.handleTokenFailed(this.#serial, new TidegateError(LocalCode.Unreachable, text), now);
    }
    const text = `cannot reach ${this.#url()}: it did not answer in time; check that it is up, and the network`;
    this.#handleBreak(new TidegateError(LocalCode.Unreachable, text), 0, now);
  }

  /** What to do next. */
  pollAction(): ConnectionAction | undefined {
    return this.#actions.shift();
  }

  #isAt(serial: number, state: ConnectionState): boolean {
    return serial === this.#serial && this.#state === state;
  }

  #isOnline(): boolean {
    return ["opening", "greeting", "connected"].includes(this.#state);
  }

  #url(): string {
    return this.#options.urls[this.#node]!;
  }

  /** How long opening and greeting may take. */
  #openMs(): number {
    const { openMs, fallbackMs } = this.#options.times;
    return this.#options.fallback.hasNext ? Math.min(openMs, fallbackMs) : openMs;
  }

  #handleWorking(now: number): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    this.#options.fallback.handleWorking(now);
  }

  #enter(state: ConnectionState, why?: { readonly error: TidegateError; readonly retryInMs?: number }): void {
    this.#state = state;
    this.#dueAt = undefined;
    this.#actions.push({ do: "tell", state, ...why });
  }

  /** Lets go of what is under way: answers to it come too late. */
  #leave(): void {
    if (this.#isOnline()) this.#actions.push({ do: "close" });
    this.#serial += 1;
    this.#askedAs = undefined;
  }

  #begin(now: number): void {
    if (!this.#needsToken) return this.#open(now);
    this.#serial += 1;
    this.#enter("authorizing");
    this.#dueAt = now + this.#options.times.tokenMs;
    this.#actions.push({ do: "fetchToken", serial: this.#serial, refused: this.#refused });
  }

  #open(now: number): void {
    const { fallback, transports } = this.#options;
    this.#serial += 1;
    this.#isWorking = false;
    this.#isDoubtful = transports[fallback.current]?.isDoubtful ?? false;
    this.#enter("opening");
    this.#dueAt = now + this.#openMs();
    this.#actions.push({ do: "open", serial: this.#serial, url: this.#url(), transport: fallback.current });
  }

  #ping(now: number, answerMs: number = this.#options.times.answerMs): void {
    this.#askedAs = this.#options.nextId();
    this.#dueAt = now + answerMs;
    this.#actions.push({ do: "send", command: { type: "ping", id: this.#askedAs } });
  }

  #handleBreak(error: TidegateError, retryAfterMs: number, now: number): void {
    if (!this.#isOnline()) return;
    const isRolled = error.code === ROLLED;
    const isStable = this.#state === "connected" && now - this.#connectedAt >= this.#options.times.stableMs;
    if (isStable || isRolled) this.#attempt = 0;
    const hasNext = error.advice === "local" && this.#leaveTransport(!isStable);
    this.#leave();
    if (error.advice === "change-first" || FINAL.includes(error.code)) return this.#giveUp(error);
    if (error.advice === "authenticate-first") {
      if (!this.#options.hasTokens) return this.#giveUp(error);
      this.#needsToken = true;
      this.#refused = error;
    } else if (!isRolled && error.code !== NO_SESSION) {
      // Another token would be refused by this node just as by the next one; everything else may be the node.
      this.#node = (this.#node + 1) % this.#options.urls.length;
    }
    if (hasNext) this.#wait(error, retryAfterMs, now);
    else this.#retry(error, retryAfterMs, now);
  }

  /** Tells the fallback of a break without a word from the server; answers whether there is another transport to try now. */
  #leaveTransport(isEarly: boolean): boolean {
    const { fallback, urls } = this.#options;
    return this.#isWorking ? fallback.handleBreak(isEarly) : fallback.handleUnopened(urls.length);
  }

  #retry(error: TidegateError, retryAfterMs: number, now: number): void {
    const { times, urls, random } = this.#options;
    // A pause grows when all nodes were tried.
    const round = Math.floor(this.#attempt / urls.length);
    const ending = { code: error.code, retryAfterMs };
    const pause = pauseMs(round, ending, times, random);
    this.#attempt += 1;
    this.#wait(error, pause, now);
  }

  #wait(error: TidegateError, retryInMs: number, now: number): void {
    this.#enter("waiting", { error, retryInMs });
    this.#dueAt = now + retryInMs;
  }

  #giveUp(error: TidegateError): void {
    this.#serial += 1;
    this.#refused = error;
    this.#enter("stopped", { error });
  }
}
