/**
 * What one subscription knows of the topics it reads: positions, gaps, what is a repetition. Pure.
 *
 * The semantics are those of the Rust SDK's tracker: a gap is the authority, a new epoch starts over, what was
 * taken before and comes again is dropped by its sequence.
 */

import type { Event, From, GapReason, PayloadKind, Position, Positions, WireTopic } from "./protocol.js";
import { decodePayload } from "./protocol.js";

/** A publication as a subscriber gets it. */
export interface Publication<T = unknown> {
  readonly type: "publication";
  readonly topic: string;
  readonly epoch: string;
  readonly sequence: number;
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
  /** Gaps up to here are of no interest: the subscription joined another that had read so far. */
  quietThrough: number;
  /** It has to be told that reading goes on. */
  isResuming: boolean;
  /** The server said where it reads on. Until then what comes belongs to another reading, and may lie far ahead. */
  isDescribed: boolean;
}

/** Follows the positions of one subscription's topics, across connections. */
export class Tracker {
  readonly #places = new Map<string, Place>();
  #wantsSnapshots: boolean;
  #wantsAll: boolean;

  /** `positions` are places from which to resume. */
  constructor(from: From = "snapshot", positions: Positions = {}) {
    [this.#wantsSnapshots, this.#wantsAll] = [from === "snapshot", from === "all"];
    for (const [topic, { epoch, sequence }] of Object.entries(positions)) {
      this.#places.set(topic, placeAt(epoch, sequence, 0, { isResuming: true }));
    }
  }

  /** Where it is in `topic`. */
  position(topic: string): Position | undefined {
    const place = this.#places.get(topic);
    return place && { epoch: place.epoch, sequence: place.sequence };
  }

  /** The topics of which it has a position. */
  topics(): IterableIterator<string> {
    return this.#places.keys();
  }

  /** Notes that the server is asked for everything, from the places that are known. */
  handleAsked(): void {
    this.#places.forEach((place) => (place.isDescribed = false));
  }

  /** Whether reading `topic` has begun, or goes on, since it was asked for. */
  reads(topic: string): boolean {
    return this.#places.get(topic)?.isDescribed === true;
  }

  /** Notes that the connection is gone: every topic has to be resumed. */
  handleDisconnect(): void {
    // What comes into being meanwhile is news.
    [this.#wantsSnapshots, this.#wantsAll] = [false, true];
    for (const place of this.#places.values()) {
      place.isResuming = true;
      place.wantsSnapshot = false;
    }
  }

  /** Joins a reader that is at `position` in `topic`: what that one has no interest in is no gap here. */
  join(topic: string, position: Position, start: number): void {
    const { epoch, sequence } = position;
    this.#places.set(topic, placeAt(epoch, start, sequence, { wantsSnapshot: this.#wantsSnapshots, quietThrough: sequence }));
  }

  /**
   * Takes the place where the server starts to read a topic. `isUnfinished` says that pieces are still to come of
   * something before that place: it moves nothing then.
   */
  handleTopic(wire: WireTopic, isUnfinished: boolean): Notification[] {
    const { topic, epoch, head, start, recovered } = wire;
    const place = this.#places.get(topic);
    if (place === undefined) {
      // Where nothing is to come but news, the first of it is no snapshot, even if the topic is described again before.
      const wantsSnapshot = this.#wantsSnapshots && start < head;
      // If it is resumed for another, and not whole, a gap says what is not there.
      const sequence = this.#wantsAll && recovered === false ? 0 : start;
      this.#places.set(topic, placeAt(epoch, sequence, head, { wantsSnapshot, isDescribed: true }));
      return [{ type: "placed", topic, epoch, sequence }];
    }
    const told: Notification[] = [];
    place.isDescribed = true;
    // A server that lost what it once told starts anew as well, whatever it calls its epoch.
    const isAnew = place.epoch !== epoch || (recovered === false && head < place.sequence);
    if (place.isResuming) {
      place.isResuming = false;
      const missed = Math.max(0, head - (isAnew ? 0 : place.sequence));
      told.push({ type: "resumed", topic, recovered: !isAnew && recovered !== false, missed });
    }
    if (isAnew) {
      this.#places.set(topic, placeAt(epoch, start, head, { isDescribed: true }));
      told.push({ type: "gap", topic, epoch, to: start, reason: "epoch" });
    } else {
      place.head = Math.max(place.head, head);
      // If something is lost before it, a gap says so.
      if (!isUnfinished && recovered !== false) place.sequence = Math.max(place.sequence, start);
      told.push({ type: "placed", topic, epoch, sequence: place.sequence });
    }
    return told;
  }

  /** Takes a gap. It moves the position, also after `recovered` was true. */
  handleGap(wire: Event & { type: "gap" }): Notification[] {
    const { topic, epoch, to, reason } = wire;
    const place = this.#places.get(topic);
    if (!place?.isDescribed) return [];
    const isSameLife = place.epoch === epoch;
    if (isSameLife && to <= place.sequence) return [];
    const from = isSameLife ? Math.max(wire.from ?? 0, place.sequence + 1) : undefined;
    if (isSameLife) place.sequence = to;
    else this.#places.set(topic, placeAt(epoch, to, 0, { isDescribed: true }));
    if (isSameLife && to <= place.quietThrough) return [];
    return [{ type: "gap", topic, epoch, ...(from !== undefined && { from }), to, reason }];
  }

  /** Takes a publication. One that was taken before means nothing. */
  handlePublication(wire: Event & { type: "publication" }): Notification[] {
    const place = this.#places.get(wire.topic);
    if (!place?.isDescribed || wire.sequence <= place.sequence) return [];
    place.sequence = wire.sequence;
    const isSnapshot = place.wantsSnapshot && wire.sequence <= place.head;
    place.wantsSnapshot = false;
    const { topic, sequence } = wire;
    const { kind, data } = decodePayload(wire);
    return [{ type: "publication", topic, epoch: place.epoch, sequence, kind, data, isSnapshot }];
  }
}

/** A place that wants nothing but news, unless `more` says so. */
function placeAt(epoch: string, sequence: number, head: number, more?: Partial<Place>): Place {
  return { epoch, sequence, head, wantsSnapshot: false, quietThrough: 0, isResuming: false, isDescribed: false, ...more };
}
