import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    // Two at a time: each of the integration tests runs servers of its own beside it.
    maxWorkers: 2,
  },
});
