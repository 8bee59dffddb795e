// What a page has to load. Measured as a bundler would make it: minified, tree-shaken, gzipped.
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";

import { bundle } from "./bundle.js";

async function gzippedBytes(code: string, isSplit = false): Promise<number> {
  return gzipSync(await bundle(code, { minify: true, isSplit })).length;
}

// Why it is not 12: docs/decisions/0031, 0038, 0046 and 0068.
test("the whole main entry is at most 13.45 kB; with what it loads when it is needed, 15.25", async () => {
  expect(await gzippedBytes('export * from "@tidegate/client";', true)).toBeLessThanOrEqual(13_450);
  expect(await gzippedBytes('export * from "@tidegate/client";')).toBeLessThanOrEqual(15_250);
});

test("the transports over plain HTTP alone are at most 2 kB", async () => {
  expect(await gzippedBytes('export * from "@tidegate/client/http";')).toBeLessThanOrEqual(2_000);
});

test("a page that only looks at codes does not load the client", async () => {
  expect(await gzippedBytes('export { adviceOf } from "@tidegate/client";')).toBeLessThanOrEqual(400);
});

test("the decoders of deltas are small, and not in the main entry", async () => {
  expect(await gzippedBytes('export * from "@tidegate/client/vcdiff";')).toBeLessThanOrEqual(1_800);
  expect(await bundle('export * from "@tidegate/client";')).not.toContain("it is not a VCDIFF");
  expect(await gzippedBytes('export * from "@tidegate/client/json-patch";')).toBeLessThanOrEqual(1_000);
});

test("requests are small beside the client, which they do not contain", async () => {
  expect(await gzippedBytes('export * from "@tidegate/client/requests";')).toBeLessThanOrEqual(3_000);
});

test("the hook and the store are small beside the client, which they do not contain", async () => {
  const entries = ['export * from "@tidegate/client/react";', 'export * from "@tidegate/client/svelte";'];
  for (const entry of entries) expect(await gzippedBytes(entry)).toBeLessThanOrEqual(1_000);
});
