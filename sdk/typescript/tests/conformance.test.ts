// Runs the scenarios that all SDKs share; sdk/conformance/README.md describes them.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

import { knownVerbs, run } from "./conformance.js";
import type { Scenario } from "./conformance.js";

const directory = new URL("../../conformance/scenarios/", import.meta.url);
const files = readdirSync(directory).filter((file) => file.endsWith(".json"));
const scenarios = files.map((file) => {
  const scenario = JSON.parse(readFileSync(new URL(file, directory), "utf8")) as Scenario;
  return [file.replace(".json", ""), scenario] as const;
});

test("there are scenarios", () => {
  expect(scenarios.length).toBeGreaterThanOrEqual(15);
});

test("the README describes every verb, and there is none that no scenario uses", () => {
  const readme = readFileSync(new URL("../README.md", directory), "utf8");
  const used = new Set(scenarios.flatMap(([, { steps }]) => steps.map((step) => step.do)));
  expect([...used].sort()).toEqual(knownVerbs());
  for (const verb of used) expect(readme).toContain(`| \`${verb}\` |`);
});

describe.each(["websocket", "sse", "poll"] as const)("over %s", (transport) => {
  // A script is played over WebSocket only.
  const played = scenarios.filter(([, { script }]) => transport === "websocket" || script === undefined);
  test.each(played)("%s", { concurrent: false }, async (_, scenario) => {
    await run(scenario, transport);
  });
});
