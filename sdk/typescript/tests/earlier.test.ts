// An SDK that is older than the server: the client of a788572 (with JSON patches; as one file, as the server's page had it)
// passes the scenarios of its own time. What the server has learnt since changes nothing for who does not ask for it.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import type { Client } from "../src/index.js";
import type { DeltaDecoder } from "../src/deltas.js";
import type { Scenario } from "./conformance.js";
import { run } from "./conformance.js";

const file = (name: string) => new URL(`earlier/${name}`, import.meta.url);
const scenarios = Object.entries(JSON.parse(readFileSync(file("scenarios.json"), "utf8")) as Record<string, Scenario>);
// A name that nobody looks at: it has no types.
const { Client: EarlierClient, jsonPatch } = (await import(file("tidegate.js").href)) as {
  Client: typeof Client;
  jsonPatch: DeltaDecoder;
};
const earlier = { Client: EarlierClient, deltas: [jsonPatch] };

test("there are its scenarios", () => expect(scenarios.length).toBeGreaterThanOrEqual(45));

test.concurrent.each(scenarios)("%s", async (_, scenario) => {
  await run(scenario, "websocket", earlier);
});

test.concurrent.each(scenarios.filter(([name]) => /pattern|resume|pieces$|twice/.test(name)))("%s, polled", async (_, scenario) => {
  await run(scenario, "poll", earlier);
});
