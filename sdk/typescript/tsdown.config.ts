import { defineConfig } from "tsdown";

export default defineConfig({
  entry: {
    index: "src/index.ts",
    http: "src/http-transports.ts",
    "json-patch": "src/patch.ts",
    publisher: "src/publisher.ts",
    react: "src/react.ts",
    requests: "src/services.ts",
    svelte: "src/svelte.ts",
    vcdiff: "src/vcdiff.ts",
  },
  format: ["esm", "cjs"],
  platform: "neutral",
  target: "es2022",
  fixedExtension: false,
  dts: true,
  sourcemap: true,
});
