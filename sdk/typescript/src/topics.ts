/**
 * Types of payloads by topic.
 *
 * ```ts
 * interface Topics {
 *   "status": { isUp: boolean };
 *   [price: `prices/${string}`]: { bid: number };
 * }
 * const client = new Client<Topics>("ws://localhost:8470");
 * ```
 */

/** Topics of which nothing is known. Their payloads are `any`, so that an untyped client needs no casts. */
export type AnyTopics = Record<string, any>;

/** What is published to a topic, or to the topics that a selector selects, of these types. */
export type PayloadOf<Topics, Selector extends string> = Selector extends keyof Topics ? Topics[Selector] : unknown;
