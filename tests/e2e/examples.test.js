// The examples as they stand, against real servers: pages in headless Chromium, one start for all of them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { after, afterEach, before, test } from "node:test";

import { closePages, desktop, openAt, shots, startBrowser, textOf } from "./browser.js";
import { freePort, launch, publish, startServer, until } from "../support/server.js";

const folder = (path) => new URL(`../../${path}`, import.meta.url).pathname;
const examples = readdirSync(folder("examples")).filter((name) => name !== "devices" && statSync(folder(`examples/${name}`)).isDirectory());
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
let demo, store, browser;
const running = [];

before(async () => {
  [demo, store, browser] = [
    await startServer({ verb: "demo" }),
    await startServer({ config: readFileSync(folder("examples/python-worker/tidegate.toml"), "utf8").replace('"data"', '"{folder}/data"') }),
    await startBrowser(),
  ];
});
afterEach(async () => {
  await closePages(browser);
  await Promise.all(running.splice(0).map((stop) => stop()));
});
after(async () => {
  await browser?.close();
  await Promise.all([demo?.stop(), store?.stop()]);
});

// Installs what the lock file says, and the SDK as it is now; quick where that was done before.
function install(name) {
  const at = folder(`examples/${name}`);
  const installed = `${at}/node_modules/.installed`;
  const time = (file) => statSync(file).mtimeMs;
  if (existsSync(installed) && [`${at}/package-lock.json`, folder("sdk/typescript/dist/index.js")].every((file) => time(file) <= time(installed))) return at;
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--silent", "--prefer-offline"], { cwd: at });
  writeFileSync(installed, "");
  return at;
}

// Serves the files of a folder, as `python3 -m http.server` does.
async function serve(root) {
  const server = createServer((request, response) => {
    const path = join(root, normalize(new URL(request.url, "http://localhost").pathname).replace(/\/$/, "/index.html"));
    if (!existsSync(path)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": types[extname(path)] ?? "text/plain" }).end(readFileSync(path));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  running.push(() => server.close());
  return `http://localhost:${server.address().port}`;
}

// Starts a program; `said` has what it printed.
function start(command, options, { cwd, env }) {
  const child = launch(command, options, ["ignore", "pipe", "inherit"], { cwd, env: { ...process.env, ...env } });
  const program = { said: "", end: () => new Promise((resolve) => (child.once("exit", resolve), child.kill("SIGTERM"))) };
  child.stdout.on("data", (text) => (program.said += text));
  running.push(() => child.exitCode === null && child.signalCode === null && program.end());
  return program;
}

const shoot = (page, name) => page.screenshot({ path: `${shots}example-${name}.png` });
const open = async (url) => {
  const page = await openAt(browser, url, { viewport: { width: 600, height: 400 } });
  // Examples have a server elsewhere.
  page.check = () => assert.deepEqual(page.problems.filter((each) => !each.startsWith("asked for ")), []);
  return page;
};

test("each example has at most 60 lines, three commands, and versions that are pinned", () => {
  assert.deepEqual(examples, ["eventsource", "job-progress", "node-backend", "presence-dots", "python-worker", "vite-react"]);
  for (const name of examples) {
    const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", `examples/${name}`], { cwd: folder(""), encoding: "utf8" }).trim().split("\n");
    const read = (file) => readFileSync(folder(file), "utf8");
    const code = files.filter((file) => /\.(html|mjs|tsx?|css|py)$/.test(file)).flatMap((file) => read(file).split("\n"))
      .filter((line) => line.trim() !== "" && !/^\s*(\/\/|#|\/?\*)/.test(line));
    assert.ok(code.length > 10 && code.length <= 60, `${name}: ${code.length} lines`);
    const commands = read(`examples/${name}/README.md`).split("\n").filter((line) => line.startsWith("    "));
    assert.equal(commands.length, 3, `${name}: ${commands}`);
    if (files.includes(`examples/${name}/package.json`)) assert.ok(files.includes(`examples/${name}/package-lock.json`), name);
    for (const line of files.filter((file) => file.endsWith("requirements.txt")).flatMap((file) => read(file).trim().split("\n"))) {
      assert.match(line, /^(#.*|[\w-]+==[\d.]+|\.\.\/\.\.\/sdk\/python)$/, name);
    }
  }
});

test("eventsource: one price, live, and it goes on after a break", async () => {
  const own = await startServer({ config: '[access]\norigins = ["loopback"]\n' });
  running.push(() => own.stop());
  await publish(own, { topic: "markets/ftse/VOD", data: { price: 101.5 } });
  const page = await open(`${await serve(folder("examples/eventsource"))}/?server=${own.http}`);
  await until(async () => (await textOf(page, "#price")) === "101.50");
  await shoot(page, "eventsource");
  page.check();
  await own.kill();
  await until(async () => (await textOf(page, "#state")) === "disconnected, trying again");
  await own.start();
  await publish(own, { topic: "markets/ftse/VOD", data: { price: 99 } });
  await until(async () => (await textOf(page, "#price")) === "99.00", 30_000);
  assert.equal(await textOf(page, "#gap"), "the server restarted");
});

test("vite-react: a table of prices that change, built and typed", async () => {
  const at = install("vite-react");
  const out = mkdtempSync(join(tmpdir(), "tidegate-vite-"));
  execFileSync("npx", ["--no-install", "tsc", "--noEmit"], { cwd: at });
  execFileSync("npx", ["--no-install", "vite", "build", "--outDir", out, "--emptyOutDir", "--logLevel", "warn"], { cwd: at, env: { ...process.env, VITE_TIDEGATE: demo.http } });
  const page = await open(await serve(out));
  await until(async () => (await textOf(page, "caption").catch(() => "")) === "100 symbols, live", 30_000);
  const prices = () => page.locator("tbody td:nth-child(2)").allTextContents();
  const first = await prices();
  await until(async () => (await prices()).join() !== first.join());
  await shoot(page, "vite-react");
  page.check();
});

test("node-backend and python-worker: each order is handled once, also those of a time when nobody worked", async () => {
  const at = install("node-backend");
  const port = await freePort();
  const backend = start(process.execPath, ["server.mjs"], { cwd: at, env: { TIDEGATE_URL: store.http, PORT: String(port) } });
  await until(() => backend.said.includes("/orders"));
  const order = async (body) => {
    const answer = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST", body });
    return { status: answer.status, ...(await answer.json()) };
  };
  const work = () => start(folder("tests/e2e/.venv/bin/python"), ["worker.py"], {
    cwd: folder("examples/python-worker"), env: { TIDEGATE_URL: store.ws.replace("/v1/ws", ""), PYTHONPATH: folder("sdk/python/src") },
  });
  const worker = work();
  const { status, kept, sequence } = await order('{"item":"tea","count":2}');
  assert.deepEqual([status, kept, sequence], [201, "disk", 1]);
  await until(() => worker.said.includes("done: 2 tea"));
  // Where the next one is begun, this one was acknowledged: whoever comes later does not do it again.
  await order('{"item":"bread","count":3}');
  await until(() => worker.said.includes("done: 3 bread"));
  await worker.end();
  assert.match(worker.said, /stopped/);
  assert.equal((await order('{"item":"milk","count":1}')).status, 201);
  assert.equal((await order("{bad")).status, 400);
  const next = work();
  await until(() => next.said.includes("done: 1 milk"));
  assert.ok(!next.said.includes("tea"), next.said);
});

test("job-progress: a page that comes later, or again, is right at once", async () => {
  const port = await freePort();
  const backend = start(process.execPath, ["server.mjs"], { cwd: folder("examples/job-progress"), env: { TIDEGATE_URL: demo.http, PORT: String(port) } });
  await until(() => backend.said.includes("jobs:"));
  const page = await open(`http://localhost:${port}/`);
  await page.locator("#start").click();
  const percent = async (of) => Number((await textOf(of, "#step")).match(/^\d+/)?.[0] ?? -1);
  await until(async () => (await percent(page)) >= 10);
  const later = await open(page.url());
  await until(async () => (await percent(later)) >= 10);
  await shoot(later, "job-progress");
  await until(async () => (await textOf(page, "#step")) === "100 %: done", 30_000);
  await until(async () => (await textOf(later, "#step")) === "100 %: done");
  const again = await open(page.url());
  await until(async () => (await textOf(again, "#step")) === "100 %: done");
  assert.equal(await page.locator("#progress").evaluate((bar) => bar.value), 100);
  page.check();
});

test("presence-dots: everybody sees everybody's mouse, and who leaves is gone", async () => {
  const url = `${await serve(install("presence-dots"))}/?server=${demo.http}`;
  const [one, other] = [await open(url), await open(url)];
  for (const page of [one, other]) await until(async () => /here$/.test(await textOf(page, "#count")));
  await one.mouse.move(100, 100);
  await other.mouse.move(300, 200);
  for (const page of [one, other]) await until(async () => (await textOf(page, "#count")) === "2 here");
  for (let step = 0; step <= 20; step += 1) await one.mouse.move(100 + 10 * step, 100);
  // The last position arrives, whatever was left out before.
  const places = () => other.locator("i").evaluateAll((dots) => dots.map((dot) => dot.style.translate).sort());
  await until(async () => JSON.stringify(await places()) === JSON.stringify(["300px 100px", "300px 200px"]));
  await shoot(other, "presence-dots");
  one.check();
  await one.close({ runBeforeUnload: false });
  await until(async () => (await textOf(other, "#count")) === "1 here", 30_000);
});
