/**
 * Commands that are answered once: publish, history, acknowledge, ping. Pure.
 *
 * Each waits for a connection, is sent, and then either answered or caught by a break. What a break means depends
 * on the command: asking again does no harm to a `history`, and none to a `publish` with an idempotency key as
 * long as the server remembers it. Of a publish without a key nobody can tell whether it was kept,
 * of a request without one whether it was carried out.
 */

import { LocalCode, TidegateError } from "./errors.js";
import type { Event } from "./protocol.js";

/** What becomes of a request whose connection breaks before the answer. */
export type AfterBreak = "ask-again" | "ask-again-while-remembered" | "fail";

/** A command that was made into text, so that nobody can change it while it waits. */
export interface Asked {
  readonly id: number;
  readonly text: string;
  readonly afterBreak: AfterBreak;
  /** What the server must have for it. */
  readonly feature?: string | undefined;
}

/** Bounds of requests. */
export interface RequestBounds {
  /** Requests that may wait for a connection. Default 1,000. */
  readonly queueMax: number;
  /** How long after it was first sent a keyed publish is sent again. Default 240,000: the server forgets keys. */
  readonly resendMs: number;
}

/** The answer to a request, or why there is none. */
export type Outcome = { readonly id: number } & (
  | { readonly event: Event; readonly error?: undefined }
  | { readonly error: TidegateError; readonly event?: undefined }
);

interface Request extends Asked {
  isSent: boolean;
  firstSentAt: number | undefined;
}

/** All requests of one client. */
export class Requests {
  readonly #waiting = new Map<number, Request>();
  readonly #answered: Outcome[] = [];
  readonly #bounds: RequestBounds;
  #unsent: Request[] = [];
  #isConnected = false;

  constructor(bounds: RequestBounds) {
    this.#bounds = bounds;
  }

  /** Whether no answer is awaited that a break would cost. */
  get isIdle(): boolean {
    return ![...this.#waiting.values()].some(({ isSent, afterBreak }) => isSent && afterBreak !== "ask-again");
  }

  /** Adds a request. Its outcome comes out of `pollOutcome`. */
  add(asked: Asked): void {
    if (!this.#isConnected && this.#unsent.length >= this.#bounds.queueMax) {
      const text = `cannot take another command: ${this.#unsent.length} wait for a connection; wait for it, or raise queueMax`;
      this.#answered.push({ id: asked.id, error: new TidegateError(LocalCode.QueueFull, text) });
      return;
    }
    const request = { ...asked, isSent: false, firstSentAt: undefined };
    this.#waiting.set(asked.id, request);
    this.#unsent.push(request);
  }

  /** Forgets a request: nobody waits for its answer any more. What was sent already may still be done. */
  remove(id: number): void {
    const request = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (request && !request.isSent) this.#unsent = this.#unsent.filter((unsent) => unsent !== request);
  }

  /** Notes that commands can be sent. */
  handleConnected(): void {
    this.#isConnected = true;
  }

  /** Notes that the connection is gone, and decides about what it left unanswered. */
  handleDisconnect(now: number): void {
    this.#isConnected = false;
    const again: Request[] = [];
    for (const request of this.#waiting.values()) {
      if (!request.isSent) continue;
      const failed = this.#failure(request, now);
      if (failed === undefined) {
        request.isSent = false;
        again.push(request);
      } else {
        this.#waiting.delete(request.id);
        this.#answered.push({ id: request.id, error: failed });
      }
    }
    // In the order in which they were asked for: those that were sent came first.
    this.#unsent = [...again, ...this.#unsent];
  }

  /** Fails everything, because there will be no connection. */
  handleStop(error: TidegateError): void {
    for (const [id, { afterBreak, firstSentAt }] of this.#waiting) {
      const isDoubtful = afterBreak !== "ask-again" && firstSentAt !== undefined;
      this.#answered.push({ id, error: isDoubtful ? unanswered(error.message, afterBreak) : error });
    }
    this.#waiting.clear();
    this.#unsent = [];
    this.#isConnected = false;
  }

  /** Gives up on a request that has no answer within `ms` milliseconds. */
  handleLate(id: number, ms: number): void {
    const request = this.#waiting.get(id);
    if (request === undefined) return;
    this.remove(id);
    const why = `there was no answer within ${ms} ms`;
    this.#answered.push({ id, error: request.firstSentAt === undefined ? notSent(ms) : unanswered(why, request.afterBreak) });
  }

  /** Takes an event; answers whether it was the answer to a request. */
  handleEvent(event: Event): boolean {
    const { id } = event;
    if (id === undefined || !this.#waiting.has(id)) return false;
    // One of several answers: the last one is another event.
    if (!("more" in event && event.more)) this.#waiting.delete(id);
    const outcome: Outcome =
      event.type === "refused" ? { id, error: new TidegateError(event.code, event.error) } : { id, event };
    this.#answered.push(outcome);
    return true;
  }

  /** The next command to send, while there is a connection. */
  pollAsked(now: number): Asked | undefined {
    const request = this.#isConnected ? this.#unsent.shift() : undefined;
    if (request === undefined) return undefined;
    request.isSent = true;
    request.firstSentAt ??= now;
    return request;
  }

  /** The next outcome. */
  pollOutcome(): Outcome | undefined {
    return this.#answered.shift();
  }

  #failure({ afterBreak, firstSentAt }: Request, now: number): TidegateError | undefined {
    if (afterBreak === "ask-again") return undefined;
    const isRemembered = now - (firstSentAt ?? now) < this.#bounds.resendMs;
    if (afterBreak === "ask-again-while-remembered" && isRemembered) return undefined;
    return unanswered("the connection broke before the answer", afterBreak);
  }
}

function notSent(ms: number): TidegateError {
  const text = `this was not carried out: there was no connection to send it over within ${ms} ms; try again, or wait longer`;
  return new TidegateError(LocalCode.NotSent, text);
}

function unanswered(why: string, afterBreak: AfterBreak): TidegateError {
  const how =
    afterBreak === "fail"
      ? "give it an idempotency key (`key`), then it is sent again by itself"
      : "send it again with the same key, if the server still remembers that";
  const text = `this may or may not have been carried out: ${why}; ${how}`;
  return new TidegateError(LocalCode.Unanswered, text);
}
