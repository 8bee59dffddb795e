/**
 * What one subscription knows of the topics it reads: positions, gaps, what is a repetition. Pure.
 *
 * The semantics are those of the Rust SDK's tracker: a gap is the authority, a new epoch starts over, what was
 * taken before and comes again is dropped by its sequence.
 */

import type { Event, From, GapReason, Headers, PayloadKind, Position, Positions, WireTopic } from "./protocol.js";
import { decodeExtras, decodePayload } from "./protocol.js";

/** A publication as a subscriber gets it. */
export interface Publication<T = unknown> {
  readonly type: "publication";
  readonly topic: string;
  readonly epoch: string;
  readonly sequence: number;
  /** The sequence before it in the topic; 0 if there was none, or nobody knows. */
  readonly previous: number;
  readonly headers: Headers;
  /** When it was published, in milliseconds since 1970, if `time` was asked for. */
  readonly timeMs?: number;
  /** Who published it, if `principal` was asked for and the topic's policy has it recorded. */
  readonly principal?: string;
  /** What the payload is: JSON as a value, text as a string, bytes as a `Uint8Array`. */
  readonly kind: PayloadKind;
  readonly data: T;
  /** Whether it is the value that the topic had when the subscription began. */
  readonly isSnapshot: boolean;
}

/** Publications that cannot be had any more. */
export interface Gap {
  readonly type: "gap";
  readonly topic: string;
  readonly epoch: string;
  /** The first one; absent if the numbering began anew. */
  readonly from?: number;
  /** The last one: what follows begins after it. */
  readonly to: number;
  readonly reason: GapReason;
}

/** A topic is read on from where it was left. */
export interface Resumed {
  readonly type: "resumed";
  readonly topic: string;
  /** Whether all that was missed follows. If not, a gap comes first. */
  readonly recovered: boolean;
  /** How many were published meanwhile, as far as the server kept count. */
  readonly missed: number;
}

/** Where reading of a topic starts, or goes on. It is for `positions` only. */
export interface Placed extends Position {
  readonly type: "placed";
  readonly topic: string;
}

/** What an event means for the reader. */
export type Notification = Publication | Gap | Resumed | Placed;

interface Place {
  epoch: string;
  sequence: number;
  /** The newest sequence when reading began: up to here it is the snapshot, if one was asked for. */
  head: number;
  wantsSnapshot: boolean;
  /** It has to be told that reading goes on. */
  isResuming: boolean;
}

/** Follows the positions of one subscription's topics, across connections. */
export class Tracker {
  readonly #places = new Map<string, Place>();
  #wantsSnapshots: boolean;

  /** `positions` are places from which to resume. */
  constructor(from: From = "snapshot", positions: Positions = {}) {
    this.#wantsSnapshots = from === "snapshot";
    for (const [topic, { epoch, sequence }] of Object.entries(positions)) this.#set(topic, epoch, sequence, 0, false, true);
  }

  /** Where it is in `topic`. */
  position(topic: string): Position | undefined {
    const place = this.#places.get(topic);
    return place && { epoch: place.epoch, sequence: place.sequence };
  }

  /** Where it is in each topic. */
  positions(): [string, Position][] {
    return [...this.#places].map(([topic, { epoch, sequence }]) => [topic, { epoch, sequence }]);
  }

  /** Whether it has a place in `topic`, of this numbering and before `start`. */
  isBefore(topic: string, epoch: string, start: number): boolean {
    const place = this.#places.get(topic);
    return place?.epoch === epoch && place.sequence < start;
  }

  /** Notes that the connection is gone: every topic has to be resumed. */
  handleDisconnect(): void {
    // What comes into being meanwhile is news.
    this.#wantsSnapshots = false;
    for (const place of this.#places.values()) [place.isResuming, place.wantsSnapshot] = [true, false];
  }

  /** Takes the description of a topic; if `isNew`, the place where it begins to be told, or goes on. */
  handleTopic({ topic, epoch, head, start, recovered }: WireTopic, isNew: boolean): Notification[] {
    const place = this.#places.get(topic);
    if (place === undefined) {
      // Where nothing is to come but news, the first of it is no snapshot.
      this.#set(topic, epoch, start, head, this.#wantsSnapshots && start < head);
      return [{ type: "placed", topic, epoch, sequence: start }];
    }
    const told: Notification[] = [];
    const isLost = isNew && recovered === false;
    // A server that lost what it once told starts anew as well, whatever it calls its epoch.
    const isAnew = place.epoch !== epoch || (isLost && head < place.sequence);
    if (place.isResuming) {
      place.isResuming = false;
      const missed = Math.max(0, head - (isAnew ? 0 : place.sequence));
      told.push({ type: "resumed", topic, recovered: !isAnew && !isLost, missed });
    }
    const { sequence } = place;
    if (isAnew) {
      this.#set(topic, epoch, start, head);
      told.push({ type: "gap", topic, epoch, to: start, reason: "epoch" });
    } else if (isNew) {
      place.head = Math.max(place.head, head);
      // If something is lost before it, a gap says so.
      if (isLost || start <= sequence) return [...told, { type: "placed", topic, epoch, sequence }];
      // Not from where it was asked for.
      place.sequence = start;
      told.push({ type: "gap", topic, epoch, from: sequence + 1, to: start, reason: "history" });
    }
    return told;
  }

  /** Takes a gap. It moves the position, also after `recovered` was true. */
  handleGap({ topic, epoch, from = 0, to, reason }: Event & { type: "gap" }): Notification | undefined {
    const place = this.#places.get(topic)!;
    if (place.epoch !== epoch) {
      this.#set(topic, epoch, to, 0);
      return { type: "gap", topic, epoch, to, reason };
    }
    if (to <= place.sequence) return undefined;
    const first = Math.max(from, place.sequence + 1);
    place.sequence = to;
    return { type: "gap", topic, epoch, from: first, to, reason };
  }

  /** Takes a publication. One that was taken before means nothing. */
  handlePublication(wire: Event & { type: "publication" }): Notification | undefined {
    const { topic, sequence } = wire;
    const place = this.#places.get(topic)!;
    if (sequence <= place.sequence) return undefined;
    place.sequence = sequence;
    const isSnapshot = place.wantsSnapshot && sequence <= place.head;
    place.wantsSnapshot = false;
    return { type: "publication", topic, epoch: place.epoch, sequence, ...decodeExtras(wire, sequence), ...decodePayload(wire), isSnapshot };
  }

  #set(topic: string, epoch: string, sequence: number, head: number, wantsSnapshot = false, isResuming = false): void {
    this.#places.set(topic, { epoch, sequence, head, wantsSnapshot, isResuming });
  }
}
