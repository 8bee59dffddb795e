// Compares what a reader was told, from the first publication on, with what the server keeps.

/** What the server keeps of the topics that `selector` selects, by topic: epoch, head, value, publications. */
export async function keptBy(http, selector) {
  const ask = async (path) => {
    const answer = await fetch(http + path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const { topics } = await ask(`/v1/topics?selector=${encodeURIComponent(selector)}&limit=1000`);
  const kept = new Map();
  for (const { topic, epoch, sequence: head } of topics) {
    const publications = [];
    for (let after = 0; after < head; after = publications.at(-1).sequence) {
      const page = await ask(`/v1/history/${topic}?after=${after}&limit=1000`);
      publications.push(...page.publications);
      if (page.publications.length === 0) throw new Error(`the history of ${topic} ends at ${after}, before ${head}`);
    }
    const value = await ask(`/v1/topics/${topic}`);
    kept.set(topic, { epoch, head, value, publications });
  }
  return kept;
}

/**
 * What is wrong with what a reader was told: nothing if all of these are 0. Each told is a publication (`topic`, `epoch`,
 * `sequence`, `data`) or a gap (`topic`, `epoch`, `to`, `reason`), in the order of its arrival.
 *
 * `holes` are sequences that were passed over without a gap, `repeats` those told again or out of order, `wrong` payloads other
 * than the kept one and epochs that changed without a gap, `lacking` what is kept and was not told at the end.
 */
export function compare(told, kept) {
  const faults = { holes: 0, repeats: 0, wrong: 0, lacking: 0 };
  const places = new Map([...kept].map(([topic, { epoch }]) => [topic, { epoch: undefined, sequence: 0, keptEpoch: epoch }]));
  const payloads = new Map();
  for (const [topic, { epoch, publications }] of kept) {
    for (const { sequence, data } of publications) payloads.set(`${topic} ${epoch} ${sequence}`, JSON.stringify(data));
  }
  for (const { type, topic, epoch, sequence, to, data } of told) {
    const place = places.get(topic);
    if (place === undefined) {
      faults.wrong += 1;
      continue;
    }
    if (type === "gap") {
      Object.assign(place, { epoch, sequence: to });
      continue;
    }
    place.epoch ??= epoch;
    if (place.epoch !== epoch) {
      faults.wrong += 1;
      Object.assign(place, { epoch, sequence: sequence - 1 });
    }
    if (sequence <= place.sequence) faults.repeats += 1;
    else faults.holes += sequence - place.sequence - 1;
    place.sequence = Math.max(place.sequence, sequence);
    if (epoch === place.keptEpoch && payloads.get(`${topic} ${epoch} ${sequence}`) !== JSON.stringify(data)) faults.wrong += 1;
    place.data = data;
  }
  for (const [topic, { epoch, head, value }] of kept) {
    const place = places.get(topic);
    if (place.epoch !== epoch) faults.lacking += head;
    else faults.lacking += head - place.sequence;
    if (place.sequence === head && JSON.stringify(place.data) !== JSON.stringify(value.data)) faults.wrong += 1;
  }
  return faults;
}

/** The gaps that were told, in words. */
export const gapsOf = (told) => told.filter(({ type }) => type === "gap").map(({ topic, reason }) => `${topic}: ${reason}`);
