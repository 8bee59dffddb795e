// What each reader must have been told: the slowest correct answer, from what was published and what may be skipped.

/** What somebody published. */
export interface Kept {
  readonly payload: string;
  /** When it was sent, at the earliest. */
  readonly at: number;
  /** Whether filters accept it. */
  readonly isAccepted: boolean;
}

/** What a reader was told, and when. */
export type Notification =
  | { readonly type: "publication"; topic: string; epoch: string; sequence: number; payload: string; at: number }
  | { readonly type: "gap"; topic: string; epoch: string; from?: number | undefined; to: number; reason: string; at: number };

/** From when to when something of a client skipped publications: filters those that they do not accept, conflation any. */
export interface Skipping {
  readonly from: number;
  to: number;
  readonly isFilter: boolean;
}

interface Place {
  epoch: string;
  sequence: number;
}

function isOnDisk(topic: string): boolean {
  return topic.startsWith("disk/");
}

/** All that was published, by topic and epoch. */
export class Truth {
  readonly #topics = new Map<string, Map<string, Map<number, Kept>>>();
  /** The epoch in which a topic was published last. */
  readonly newest = new Map<string, Place>();
  /** Payloads of which nobody knows whether they were kept. */
  readonly doubtful = new Map<string, { at: number; isAccepted: boolean }>();
  /** What was sent before that and is not on disk is not there any more. */
  #lostAt = 0;

  /** Notes that the server was killed, and has not started again. */
  handleKilled(at: number): void {
    this.#lostAt = at;
    for (const topic of this.topics) if (!isOnDisk(topic)) this.newest.delete(topic);
  }

  add(topic: string, epoch: string, sequence: number, kept: Kept): void {
    const known = this.of(topic, epoch).get(sequence);
    if (known && known.payload !== kept.payload) throw new Error(`${topic} ${epoch} ${sequence} is two: ${known.payload}, ${kept.payload}`);
    this.of(topic, epoch).set(sequence, known ?? kept);
    // Of what nobody answered, a reader may tell long after it was lost.
    if (!isOnDisk(topic) && kept.at < this.#lostAt) return;
    const newest = this.newest.get(topic);
    if (newest?.epoch !== epoch || newest.sequence < sequence) this.newest.set(topic, { epoch, sequence });
  }

  of(topic: string, epoch: string): Map<number, Kept> {
    const epochs = this.#topics.get(topic) ?? new Map<string, Map<number, Kept>>();
    this.#topics.set(topic, epochs);
    const kept = epochs.get(epoch) ?? new Map<number, Kept>();
    epochs.set(epoch, kept);
    return kept;
  }

  get topics(): IterableIterator<string> {
    return this.#topics.keys();
  }
}

/** What one reader was told, checked against the truth. */
export class Twin {
  readonly faults: string[] = [];
  readonly #places: Map<string, Place>;
  readonly #pending: Notification[] = [];
  /** The newest that it was told of each topic, not yet checked. */
  readonly last = new Map<string, Place>();
  /** Gaps by reason. */
  readonly gaps = new Map<string, number>();

  /** `places` are where it goes on. `isFromStart` says that it is told everything of topics that are not there. */
  constructor(
    readonly name: string,
    readonly truth: Truth,
    readonly skippings: readonly Skipping[],
    readonly isFromStart: boolean,
    places: ReadonlyMap<string, Place> = new Map(),
  ) {
    this.#places = new Map([...places].map(([topic, place]) => [topic, { ...place }]));
  }

  handle(told: Notification): void {
    this.#pending.push(told);
    this.last.set(told.topic, { epoch: told.epoch, sequence: told.type === "gap" ? told.to : told.sequence });
  }

  /** Checks what was told since; all publications must be known by now. */
  check(): number {
    const { length } = this.#pending;
    for (const told of this.#pending.splice(0)) {
      if (told.type === "publication") this.#checkPublication(told);
      else this.#checkGap(told);
    }
    return length;
  }

  /** What it lacks of a topic, up to the newest. */
  lacks(topic: string, now: number): string | undefined {
    const newest = this.truth.newest.get(topic);
    const place = this.#places.get(topic);
    if (newest === undefined || (place === undefined && !this.isFromStart)) return undefined;
    if (place && place.epoch !== newest.epoch) return `${topic} is at ${place.epoch}, the newest is ${newest.epoch}:${newest.sequence}`;
    for (let sequence = (place?.sequence ?? 0) + 1; sequence <= newest.sequence; sequence += 1) {
      if (!this.#maySkip(topic, newest.epoch, sequence, now)) return `${topic} is at ${place?.sequence}, ${sequence} of ${newest.sequence} is lacking`;
    }
    return undefined;
  }

  #checkPublication({ topic, epoch, sequence, payload, at }: Notification & { type: "publication" }): void {
    const kept = this.truth.of(topic, epoch).get(sequence);
    const doubtful = this.truth.doubtful.get(payload);
    if (kept === undefined && doubtful) this.truth.add(topic, epoch, sequence, { payload, ...doubtful });
    else if (kept?.payload !== payload) this.#fault(`${topic} ${epoch}:${sequence} is damaged: ${payload.slice(0, 80)}, not ${kept?.payload.slice(0, 80)}`);
    const place = this.#places.get(topic) ?? { epoch, sequence: this.isFromStart ? 0 : sequence - 1 };
    if (place.epoch !== epoch) this.#fault(`${topic} changed from ${place.epoch} to ${epoch} without a gap`);
    else if (sequence <= place.sequence) this.#fault(`${topic} ${sequence} is told again after ${place.sequence}`);
    else this.#checkSkipped(topic, epoch, place.sequence + 1, sequence - 1, at);
    this.#places.set(topic, { epoch, sequence });
  }

  #checkGap({ topic, epoch, from, to, reason, at }: Notification & { type: "gap" }): void {
    this.gaps.set(reason, (this.gaps.get(reason) ?? 0) + 1);
    const place = this.#places.get(topic);
    if (place?.epoch === epoch) {
      if (to <= place.sequence) this.#fault(`${topic} has a gap to ${to} after ${place.sequence}`);
      if (from !== undefined) this.#checkSkipped(topic, epoch, place.sequence + 1, from - 1, at);
    }
    if (isOnDisk(topic)) this.#fault(`${topic} keeps everything and has a gap ${from}..${to} ${reason}, after ${place?.epoch}:${place?.sequence} (now ${epoch})`);
    this.#places.set(topic, { epoch, sequence: to });
  }

  #checkSkipped(topic: string, epoch: string, from: number, to: number, at: number): void {
    for (let sequence = from; sequence <= to; sequence += 1) {
      if (!this.#maySkip(topic, epoch, sequence, at)) this.#fault(`${topic} ${epoch}:${sequence} is lost without a gap (${from}..${to})`);
    }
  }

  #maySkip(topic: string, epoch: string, sequence: number, at: number): boolean {
    // Of what nobody was answered, and nobody told, there is nothing to be known.
    const kept = this.truth.of(topic, epoch).get(sequence) ?? { at: 0, isAccepted: false };
    return this.skippings.some((each) => each.to >= kept.at && each.from <= at && !(each.isFilter && kept.isAccepted));
  }

  #fault(text: string): void {
    this.faults.push(`${this.name}: ${text}`);
  }
}
