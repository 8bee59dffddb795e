// Any mixture of deltas, pieces, overlapping subscriptions and breaks: each subscription is told every publication of its
// topics from where it began, once, in order, as it was published. Against the real server; a failure names its seed.
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Publication, ReadOptions } from "../src/index.js";
import { vcdiff } from "../src/vcdiff.js";
import { jsonPatch } from "../src/patch.js";
import { clientOf } from "./helpers.js";
import { Proxy } from "./proxy.js";
import { Server } from "./server.js";

let server: Server;
beforeAll(async () => {
  server = await Server.start('[limits]\nfragment_bytes = 512\n[[topics]]\nselector = "#"\nhistory_count = 10000\nhistory_bytes = 100000000\n');
});
afterAll(() => server.remove());

/** Numbers in [0, 1) that are the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test.each(Array.from({ length: 12 }, (_, seed) => seed + 1))("seed %i", async (seed) => {
  const random = randomOf(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const topics = ["x", "y", "z"].map((name) => `mixture/${seed}/${name}`);
  const published = new Map<string, unknown[]>(topics.map((topic) => [topic, []]));
  const proxy = await Proxy.open(server.port);
  const client = clientOf(proxy.url, { deltas: [jsonPatch, vcdiff] });
  const readers: { told: Publication[]; ready(): Promise<void>; end(): void }[] = [];
  const problems: unknown[] = [];

  const publish = async (topic: string, count: number) => {
    const publications = Array.from({ length: count }, () => {
      const before = published.get(topic)!;
      const fill = random() < 0.3 ? "L".repeat(500 + Math.floor(random() * 6_000)) : "s".repeat(200);
      const data = { number: before.length + 1, fill, list: [random(), null, "é"] };
      before.push(data);
      return { topic, data };
    });
    await server.publish({ publications });
  };
  const subscribe = () => {
    const told: Publication[] = [];
    const options: ReadOptions = { from: pick(["all", "snapshot", "now"]), delta: pick([undefined, "json-patch", "vcdiff"]) };
    const subscription = client.subscribe(pick([...topics, `mixture/${seed}/+`]), options);
    const take = (publication: Publication) => told.push(publication);
    subscription.on("snapshot", take);
    subscription.on("update", take);
    subscription.on("gap", (gap) => problems.push(gap));
    subscription.on("error", (error) => problems.push(error));
    const end = () => {
      subscription.unsubscribe();
      readers.splice(readers.indexOf(reader), 1);
    };
    const reader = { told, ready: () => subscription.ready(), end };
    readers.push(reader);
  };

  subscribe();
  for (let step = 0; step < 60; step += 1) {
    const chance = random();
    if (chance < 0.6) await publish(pick(topics), 1 + Math.floor(random() * 6));
    else if (chance < 0.75 && readers.length < 6) {
      subscribe();
      // One that overlaps with another whose answer is awaited is another matter: nobody knows yet where that one is.
      await Promise.all(readers.map((reader) => reader.ready()));
    } else if (chance < 0.85 && readers.length > 1) pick(readers).end();
    else if (chance < 0.9) {
      proxy.cut();
      proxy.mend();
      client.nudge();
    } else await client.ping();
  }
  // So that each is told at least this of every topic.
  await Promise.all(readers.map((reader) => reader.ready()));
  for (const topic of topics) await publish(topic, 1);
  const isDone = ({ told }: { told: Publication[] }) => {
    const read = new Set(told.map(({ topic }) => topic));
    return read.size > 0 && [...read].every((topic) => told.some((one) => one.topic === topic && one.sequence === published.get(topic)!.length));
  };
  const until = performance.now() + 10_000;
  while (!readers.every(isDone) && performance.now() < until) {
    await client.ping();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  for (const { told } of readers) {
    for (const topic of new Set(told.map((one) => one.topic))) {
      const mine = told.filter((one) => one.topic === topic);
      const first = mine[0]!.sequence;
      expect(mine.map(({ sequence }) => sequence)).toEqual(mine.map((_, index) => first + index));
      expect(mine.map(({ data }) => data)).toEqual(published.get(topic)!.slice(first - 1));
    }
    expect(told.length).toBeGreaterThan(0);
  }
  expect(problems).toEqual([]);
  client.close();
  proxy.close();
});
