// The package as it is installed: both module systems, and nothing in it that does not belong there.
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);
const cwd = new URL("..", import.meta.url).pathname;
const names = "Client,LocalCode,TidegateError,adviceOf";

test.each([
  ["import", "module", 'import * as all from "@tidegate/client"; console.log(Object.keys(all).sort().join())'],
  ["require", "commonjs", 'console.log(Object.keys(require("@tidegate/client")).sort().join())'],
])("it can be used with %s", async (_, type, code) => {
  const { stdout } = await run(process.execPath, [`--input-type=${type}`, "-e", code], { cwd });
  expect(stdout.trim()).toBe(names);
});

test.each([
  ["http", "sse.open"],
  ["json-patch", "jsonPatch.apply"],
  ["publisher", "Publisher"],
  ["react", "useTopic"],
  ["requests", "Services"],
  ["svelte", "topicStore"],
  ["vcdiff", "vcdiff.apply"],
])("so can the entry for %s", async (entry, name) => {
  const code = `console.log(typeof require("@tidegate/client/${entry}").${name})`;
  expect((await run(process.execPath, ["-e", code], { cwd })).stdout.trim()).toBe("function");
});

test("it has no dependencies, and holds only what is built", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json"], { cwd });
  const [packed] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const strangers = packed.files.map(({ path }) => path).filter((path) => !/^(dist\/|README|LICENSE|package\.json)/.test(path));
  expect(strangers).toEqual([]);
  const manifest = JSON.parse((await run("node", ["-p", 'JSON.stringify(require("./package.json"))'], { cwd })).stdout);
  expect(manifest.dependencies).toBe(undefined);
});

test("its types show nothing of how the client and its parts work together", async () => {
  const dist = new URL("../dist/", import.meta.url);
  const types = readdirSync(dist).filter((name) => /\.d\.c?ts$/.test(name));
  const text = types.map((name) => readFileSync(new URL(name, dist), "utf8")).join("\n");
  expect(text).toContain("declare class Publisher");
  const inner = ["handleNotice", "interrupt", "attach", "overflow", "isBehind", "handleConnected", "handleDisconnect", "push", "untaken", "isIdle", "firstThrough", "whyNot", "httpTransport"];
  expect(inner.filter((name) => new RegExp(`\\b${name}\\b[(:]`).test(text))).toEqual([]);
  expect(text).not.toMatch(/interface (Part|Seat|SubscriptionOwner)\b/);
});
