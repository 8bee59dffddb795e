// Every example of the README is type-checked and run. Those of React and Svelte run in browser.test.ts.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { promisify } from "node:util";
import ts from "typescript";
import { afterAll, beforeAll, expect, test } from "vitest";

import { directory, examples, prints, whole, write } from "./readme.js";
import { Server } from "./server.js";

const config = `
[store]
path = "{store}"
[[topics]]
selector = "orders/#"
ack = "disk"
[[access.tokens]]
token = "fresh"
name = "reader"
subscribe = ["#"]
`;
const blocks = examples("ts").map((example) => [example.trim().split("\n").at(-1)!.slice(0, 60), example] as const);
const tokens = createServer((_, answer) => answer.end("fresh"));
let server: Server;

beforeAll(async () => {
  server = await Server.start(config);
  tokens.listen(0, "127.0.0.1");
  await once(tokens, "listening");
  write(files());
});
afterAll(async () => {
  tokens.close();
  await server.remove();
});

function files(): Record<string, string> {
  const { port } = tokens.address() as { port: number };
  const compilerOptions = {
    paths: {
      "@tidegate/client": ["../src/index.ts"],
      "@tidegate/client/requests": ["../src/services.ts"],
      "@tidegate/client/*": ["../src/*.ts"] },
    jsx: "react-jsx",
    isolatedDeclarations: false,
    declaration: false,
    // Examples show things that they do not use.
    noUnusedLocals: false,
    noUnusedParameters: false,
  };
  const made: Record<string, string> = {
    "tsconfig.json": JSON.stringify({ extends: "../tsconfig.json", compilerOptions, include: ["*.ts", "*.tsx"] }),
  };
  examples("tsx").forEach((example, index) => (made[`${index}.tsx`] = example));
  for (const [index, [, example]] of blocks.entries()) {
    made[`${index}.ts`] = whole(example);
    const local = whole(example)
      .replaceAll(/(ws|http):\/\/localhost:8470/g, `$1://127.0.0.1:${server.port}`)
      .replaceAll("http://localhost:8471", `http://127.0.0.1:${port}`);
    const ended = `${local}\n${local.includes("new Publisher") ? "" : "await client.ping();"}\nconsole.log("done");\n`;
    made[`${index}.mjs`] = ts.transpile(ended, { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 });
  }
  return made;
}

/** Runs a module until it has printed all of `lines`, or ends; answers what it printed. */
async function printed(file: string, lines: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, ["--experimental-websocket", "--no-warnings", file]);
  let out = "";
  const hear = (bytes: Buffer) => {
    out += String(bytes);
    if (lines.every((line) => out.includes(line))) child.kill();
  };
  child.stdout.on("data", hear);
  child.stderr.on("data", hear);
  await once(child, "close");
  return out;
}

test("they are there, and in each language", () => {
  expect(blocks.length).toBeGreaterThanOrEqual(9);
  expect(examples("tsx").length + examples("svelte").length).toBe(2);
});

test("they are well typed", async () => {
  const tsc = new URL("../node_modules/typescript/bin/tsc", import.meta.url).pathname;
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, "-p", directory]).catch((error) => error);
  expect(stdout).toBe("");
});

// One after the other: some of them speak of the same topics.
test.each(blocks.map(([name], index) => [name, index] as const))("…%s", async (_, index) => {
  const lines = [...prints(blocks[index]![1]), "done"];
  const out = await printed(`${directory}${index}.mjs`, lines);
  for (const line of lines) expect(out).toContain(`${line}\n`);
});
