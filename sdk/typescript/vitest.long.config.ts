// What takes minutes: `make test-long`.
import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["tests/**/*.long.ts"], disableConsoleIntercept: true } });
