#!/usr/bin/env node
// Makes the copy of this SDK that the server's page uses: the client, its transports and JSON patches as one minified file of
// `dist`, which has to be built before. With --check it only says whether that copy is the one that `dist` makes.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const copy = path("../../crates/admin/src/page/vendor/tidegate.js");
const { name, version, license } = JSON.parse(readFileSync(path("package.json"), "utf8"));
const banner = `/* ${name} ${version}, ${license}. Made of sdk/typescript by its vendor.mjs: do not edit. */`;

const entry = "page";
const wanted = ["index", "json-patch"].map((each) => `export * from ${JSON.stringify(path(`dist/${each}.js`))};`).join("\n");
const bundle = await rolldown({
  input: entry,
  plugins: [
    {
      name: entry,
      resolveId: (id) => (id === entry ? id : undefined),
      load: (id) => (id === entry ? wanted : undefined),
    },
  ],
});
const { output } = await bundle.generate({ format: "esm", minify: true, sourcemap: false, codeSplitting: false });
await bundle.close();
if (output.length !== 1) throw new Error(`cannot make one file of dist: it became ${output.length}`);
const text = `${banner}\n${output[0].code.trimEnd()}\n`;

if (!process.argv.includes("--check")) {
  writeFileSync(copy, text);
} else if (readFileSync(copy, "utf8") !== text) {
  console.error("the page's copy of the SDK is not what `dist` makes: build, then run `node vendor.mjs`, and commit it");
  process.exit(1);
}
