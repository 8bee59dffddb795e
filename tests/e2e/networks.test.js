// Any browser, any network: the SDK in a real page, behind real proxies, on networks that break.
//
// Each run reads from the first publication on while somebody publishes, and ends with a comparison of all that the page was
// told with what the server keeps. The runs make the table of docs/perf/networks.md: target/e2e/networks.md.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { EventSource } from "eventsource";
import { chromium } from "playwright-core";

import { compare, gapsOf, keptBy } from "./checker.js";
import { momentOf, settingOf } from "./measured.js";
import { Cable, nginxVersion, openNginx, openProxy } from "../support/proxy.js";
import { launch, startServer, until } from "../support/server.js";

const TRANSPORTS = ["websocket", "sse", "poll"];
// How long a connection lives behind the proxy that cuts: `CUT_MS=30000` makes it one of those that are really met.
const CUT_MS = Number(process.env.CUT_MS ?? 2_000);
const BUFFERING = "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;";
const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const local = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const report = new URL("../../target/e2e/", import.meta.url).pathname;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Pages come from an origin of their own, so that any proxy can stand between them and the server.
const served = {
  "/": ["text/html", '<!doctype html><title>reader</title><link rel="icon" href="data:,"><script type="module" src="/reader.js"></script>'],
  "/reader.js": ["text/javascript", local("networks.page.js")],
  "/tidegate.js": ["text/javascript", local("../../crates/admin/src/page/vendor/tidegate.js")],
};
const pages = createServer((request, answer) => {
  const [type, body] = served[request.url] ?? ["text/plain", ""];
  answer.writeHead(body ? 200 : 404, { "content-type": type }).end(body);
});
const config = () => `
[engine]
shards = 2
[store]
path = "{folder}/store"
[access]
origins = ["${origin}"]
[[topics]]
selector = "kept/#"
ack = "disk"
history_count = 100000
[[topics]]
selector = "memory/#"
history_count = 100000
`;
const launched = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
/** A line of the table for each run, in the order of their ends. */
const rows = [];
let origin, server, browser, nginx, nginxBuffering, tabs;

before(async () => {
  mkdirSync(report, { recursive: true });
  pages.listen(0, "127.0.0.1");
  await once(pages, "listening");
  origin = `http://127.0.0.1:${pages.address().port}`;
  server = await startServer({ config: config() });
  nginx = await openNginx(server.port);
  nginxBuffering = await openNginx(server.port, BUFFERING);
  browser = await chromium.launch({ executablePath, args: launched });
  tabs = await openTabs();
});
after(async () => {
  const setting = browser && settingOf({ browser, others: [`nginx ${nginxVersion()}`, momentOf("ended")] });
  await tabs?.browser().close();
  tabs?.child.kill();
  await browser?.close();
  nginx?.close();
  nginxBuffering?.close();
  await server?.stop();
  pages.close();
  writeFileSync(`${report}networks.md`, `${setting}\n${table()}`);
});

/** A browser as people have it: in the one above every page is told that it has the focus, and none is ever hidden. */
async function openTabs() {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-tabs-"));
  const options = ["--headless=new", "--remote-debugging-port=0", `--user-data-dir=${folder}`, ...launched];
  const child = launch(executablePath, options, ["ignore", "ignore", "pipe"]);
  let log = "";
  child.stderr.on("data", (bytes) => (log += bytes));
  const [, address] = await until(() => /DevTools listening on (\S+)/.exec(log));
  const [context] = (await chromium.connectOverCDP(address, { noDefaults: true })).contexts();
  return Object.assign(context, { child });
}

function table() {
  const columns = ["reader", "between", "fault", "ends over", "told", "holes", "repeated", "wrong", "lacking", "gaps", "resumed", "longest silence, ms"];
  const line = (cells) => `| ${cells.join(" | ")} |\n`;
  const cells = (row) => columns.map((column) => row[column] ?? "–");
  const order = ({ between, fault, reader }) => `${fault} ${between} ${reader}`;
  const sorted = rows.toSorted((one, other) => order(one).localeCompare(order(other)));
  return line(columns) + line(columns.map(() => "---")) + sorted.map((row) => line(cells(row))).join("");
}

/** Publishes to each topic, every `everyMs`, until it is stopped; what is not acknowledged is sent again under the same key. */
function publishTo(to, topics, everyMs = 25) {
  let isOver = false;
  const acknowledged = [];
  const publishAll = async () => {
    for (let n = 1; !isOver; n += 1) {
      const publications = topics.map((topic) => ({ topic, data: { n, text: "x".repeat(n % 200) }, key: `${topic}-${n}` }));
      const body = JSON.stringify({ publications });
      const answer = await until(() => isOver || fetch(`${to.http}/v1/publish`, { method: "POST", body }).catch(() => null), 60_000);
      if (answer === true) return;
      const { results } = await answer.json();
      for (const result of results) assert.ok(result.sequence, JSON.stringify(result));
      acknowledged.push(...results.map((result) => ({ ...result, n })));
      await pause(everyMs);
    }
  };
  const done = publishAll();
  done.catch(() => {});
  return {
    acknowledged,
    stop: () => {
      isOver = true;
      return done;
    },
  };
}

let runCount = 0;
/** Topics of a run of its own, and the selector for both. */
function topicsOf(kind) {
  const selector = `${kind}/run-${(runCount += 1)}/+`;
  return { selector, topics: ["a", "b"].map((name) => selector.replace("+", name)) };
}

/** A page that reads, in a profile of its own: nothing is cached or remembered. */
async function openReader(reading, context) {
  const page = await (context ?? (await browser.newContext())).newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.goto(`${origin}/#${encodeURIComponent(JSON.stringify(reading))}`);
  return page;
}

const glance = (page) => page.evaluate(() => ({ ...globalThis.reader, transport: globalThis.reader.transport, told: [] }));
const seen = (page) => page.evaluate(() => ({ ...globalThis.reader, transport: globalThis.reader.transport }));
const ENOUGH = 60;
const toldCount = (page) => page.evaluate(() => globalThis.reader.told.length);

/** It is told `more` than now. */
async function goesOn(page, more = 20, patience = 60_000) {
  const first = await toldCount(page);
  await until(async () => (await toldCount(page)) >= first + more, patience).catch(async (error) => {
    throw new Error(`${error.message}\n${JSON.stringify((await glance(page)).states)}`);
  });
}

/** Whether the page has the newest publication of each topic. */
async function hasAll(page, kept) {
  const heads = [...kept].map(([topic, { epoch, head }]) => [topic, epoch, head]);
  return page.evaluate((wanted) => wanted.every(([topic, epoch, head]) => {
    const last = globalThis.reader.told.findLast((told) => told.topic === topic);
    return last?.epoch === epoch && (last.sequence ?? last.to) >= head;
  }), heads);
}

/** What the page was told, compared with what the server keeps; what it has not got after `patience` is lacking. */
async function check(page, from, selector, isPart, patience = 60_000) {
  const kept = await keptBy(from.http, selector);
  await until(() => hasAll(page, kept), patience).catch(() => {});
  const { told: all, ...others } = await seen(page);
  const told = isPart ? all.filter(({ topic }) => kept.has(topic)) : all;
  return { ...others, told, kept, faults: compare(told, kept), gaps: gapsOf(told) };
}

function note(reader, between, fault, { faults, gaps, told, transport, resumedCount, openCount, silenceMs }) {
  const { holes, repeats: repeated, wrong, lacking } = faults;
  const resumed = openCount === undefined || openCount === 0 ? resumedCount : openCount - 1;
  const reasons = [...new Set(gaps.map((gap) => gap.split(": ")[1]))].join(", ");
  rows.push({
    reader, between, fault, "ends over": transport, told: told.length, holes, repeated, wrong, lacking,
    gaps: gaps.length ? `${gaps.length} (${reasons})` : 0, resumed, "longest silence, ms": silenceMs,
  });
}

/** Opens a page that reads behind `port`, and waits until it does, over the transport `over`; `end` compares. */
async function begin(t, { reader = "the ladder", between, port, over, context, from = server, publisher, ...reading }) {
  const own = topicsOf("kept");
  const isBare = reading.via === "EventSource";
  const selectors = reading.selector ?? (isBare ? own.topics[0] : own.selector);
  publisher ??= publishTo(from, isBare ? own.topics.slice(0, 1) : own.topics);
  t.after(() => publisher.stop());
  const page = await openReader({ url: `ws://127.0.0.1:${port}`, ...reading, selector: selectors }, context);
  t.after(() => (context ? page : page.context()).close());
  /** Compares what was told of what `selector` selects, and notes it for the table. */
  const end = async (what, selector, isNoted = !reading.forgets) => {
    await publisher.stop();
    const checked = await check(page, from, selector ?? selectors, selector !== undefined);
    if (isNoted) note(reader, between, what, checked);
    assert.deepEqual(page.problems, []);
    assert.deepEqual(checked.errors, []);
    return checked;
  };
  await until(async () => (await glance(page)).transport === over, 60_000).catch(async () => {
    const { transports, states } = await glance(page);
    assert.fail(`it does not come to ${over}: ${transports}; ${states.join("; ")}`);
  });
  await goesOn(page);
  return { page, end };
}

/** One run: reads while `fault` does its work, then compares. */
async function run(t, { what = "none", fault = () => {}, isNoted, ...given }) {
  const { page, end } = await begin(t, given);
  await fault(page);
  // Enough for the comparison to mean something.
  await goesOn(page, ENOUGH);
  return end(what, undefined, isNoted);
}

/** That it ended with exactly what the server has. */
function assertClean({ faults, gaps, told }) {
  assert.deepEqual(faults, { holes: 0, repeats: 0, wrong: 0, lacking: 0 });
  assert.deepEqual(gaps, []);
  assert.ok(told.length >= ENOUGH, `${told.length} told`);
}

async function runClean(t, given) {
  const checked = await run(t, given);
  assertClean(checked);
  return checked;
}

/** A cable that goes with its test. */
async function cableTo(t, port, options) {
  const cable = await Cable.to(port, options);
  t.after(() => cable.close());
  return cable;
}

const only = (transport, times) => ({ options: { transports: [transport], ...times }, over: transport });

// Each of these mostly waits. For the table alone they are run one after the other: `SUITES_AT_ONCE=1`.
describe("beside each other", { concurrency: Number(process.env.SUITES_AT_ONCE ?? 4) }, () => {
  describe("proxies", { concurrency: 5 }, proxies);
  describe("clients that we did not write", { concurrency: 4 }, clientsOfOthers);
  describe("a server that is killed under its pages", killed);
  describe("the check turns red", { concurrency: 4 }, redChecks);
});

function proxies() {
  test("nothing in the way: WebSocket", async (t) => {
    const { transports } = await runClean(t, { between: "nothing", port: server.port, over: "websocket" });
    assert.deepEqual(transports, ["websocket"]);
  });

  for (const upgrade of ["refuse", "swallow"]) {
    test(`a proxy that ${upgrade}s WebSockets: SSE`, async (t) => {
      const proxy = await openProxy(server.port, { upgrade });
      const between = upgrade === "refuse" ? "a proxy that refuses `Upgrade`" : "a proxy that opens WebSockets and swallows frames";
      t.after(() => proxy.close());
      await runClean(t, { between, port: proxy.port, over: "sse" });
      assert.ok(proxy.upgradeCount > 0, "a WebSocket was tried");
    });
  }

  test("nginx as it comes: SSE", async (t) => {
    await runClean(t, { between: "nginx, a bare `proxy_pass`", port: nginx.port, over: "sse" });
  });

  test("nginx that buffers whatever it is told: polling", async (t) => {
    await runClean(t, { between: "nginx that buffers", port: nginxBuffering.port, over: "poll" });
  });

  for (const transport of TRANSPORTS) {
    test(`a proxy that cuts every connection: ${transport} resumes`, async (t) => {
      const cable = await cableTo(t, server.port, { cutAfterMs: CUT_MS });
      const { resumedCount } = await runClean(t, {
        reader: transport, between: `a proxy that cuts after ${CUT_MS / 1_000} s`, what: "4 cuts or more", port: cable.port, ...only(transport),
        fault: () => until(() => cable.cutCount >= 4, 20 * CUT_MS),
      });
      // A poll that is cut is asked for again: the session stays.
      if (transport !== "poll") assert.ok(resumedCount >= 4, `${resumedCount} topics were resumed`);
    });
  }

  test("a proxy that cuts what has stood long enough: it stays with WebSocket", async (t) => {
    const cable = await cableTo(t, server.port, { cutAfterMs: 6_000 });
    const fault = () => until(() => cable.cutCount >= 2, 60_000);
    const { transports } = await runClean(t, { between: "a proxy that cuts after 6 s", what: "2 cuts", fault, port: cable.port, over: "websocket" });
    assert.deepEqual(transports, ["websocket"]);
  });

  for (const [name, target, over] of [["nginx that buffers", () => nginxBuffering, "poll"], ["nginx, a bare `proxy_pass`", () => nginx, "sse"]]) {
    test(`${name}, and every connection is cut`, async (t) => {
      const cable = await cableTo(t, target().port, { cutAfterMs: 2_000 });
      const fault = () => until(() => cable.cutCount >= 6, 60_000);
      await runClean(t, { between: `${name}, and a cut after 2 s`, what: "6 cuts or more", fault, port: cable.port, over });
    });
  }
}

// How long the page is without its network, or stands still.
const AWAY_MS = 3_000;

describe("what happens to a page", { concurrency: 6 }, () => {
  for (const transport of TRANSPORTS) {
    const broken = async (t, what, fault, times) => {
      const cable = await cableTo(t, server.port);
      return runClean(t, {
        reader: transport, between: "nothing", what, port: cable.port, ...only(transport, times),
        fault: (page) => fault(page, cable),
      });
    };

    test(`offline, and online again: ${transport}`, async (t) => {
      const { silenceMs } = await broken(t, `offline for ${AWAY_MS / 1_000} s`, async (page, cable) => {
        cable.hold();
        await page.context().setOffline(true);
        assert.equal(await page.evaluate(() => navigator.onLine), false);
        await until(() => page.evaluate((url) => fetch(url, { mode: "no-cors" }).then(() => false, () => true), server.http));
        await pause(AWAY_MS);
        cable.release();
        await page.context().setOffline(false);
      });
      assert.ok(silenceMs >= AWAY_MS - 200, `nothing came for ${silenceMs} ms`);
    });

    // A silent connection is found by an answer that does not come, as are those that the browser keeps for its next requests.
    test(`another network: ${transport}`, async (t) => {
      const { silenceMs, resumedCount } = await broken(t, `another network (\`answerMs\`, \`openMs\` ${AWAY_MS / 1_000} s)`, async (page, cable) => {
        await page.context().setOffline(true);
        assert.ok(cable.lose() > 0, "something was connected");
        await pause(AWAY_MS);
        await page.context().setOffline(false);
      }, { answerMs: AWAY_MS, openMs: AWAY_MS });
      assert.ok(silenceMs >= AWAY_MS - 200, `nothing came for ${silenceMs} ms`);
      assert.ok(resumedCount >= 2, `${resumedCount} topics were resumed`);
    });
  }

  test("behind another tab, and frozen there, over each transport", async (t) => {
    const readings = await Promise.all(TRANSPORTS.map((transport) => begin(t, {
      reader: transport, between: "nothing", port: server.port, ...only(transport), context: tabs,
    })));
    const front = await tabs.newPage();
    await front.bringToFront();
    for (const { page } of readings) await until(() => page.evaluate(() => document.visibilityState === "hidden"));
    await Promise.all(readings.map(({ page }) => goesOn(page, 100)));
    await setState(readings, "frozen");
    await pause(AWAY_MS);
    await setState(readings, "active");
    // Each is looked at in turn.
    for (const { page } of readings) {
      await page.bringToFront();
      await until(() => page.evaluate(() => document.visibilityState === "visible"));
    }
    await front.close();
    await Promise.all(readings.map(({ page }) => goesOn(page)));
    for (const { end } of readings) {
      const checked = await end(`behind another tab, frozen there for ${AWAY_MS / 1_000} s`);
      assertClean(checked);
      assert.ok(checked.silenceMs >= AWAY_MS - 500, `it stood still for ${checked.silenceMs} ms`);
      assertWentOn(checked);
    }
  });
});

async function setState(readings, state) {
  await Promise.all(readings.map(async ({ page }) => {
    page.tools ??= await tabs.newCDPSession(page);
    await page.tools.send("Page.setWebLifecycleState", { state });
  }));
}

/** That a page which was frozen went on by itself, and not because an answer was given up (`answerMs`). */
function assertWentOn({ thawedMs }) {
  assert.ok(thawedMs > 0 && thawedMs < 10_000, `it went on after ${thawedMs} ms`);
}

// Not beside the tabs above, because only one tab is before the others. Chromium gives nothing more of an answer that had just begun when the page was
// frozen. It takes some freezes to meet one: of 100, about 7.
describe("pages that are frozen again and again", () => {
  test("behind another tab: poll", async (t) => {
    const [count, frozenMs] = [10, 100];
    const shared = { reader: "poll", between: "nothing", port: server.port, ...only("poll"), context: tabs };
    const readings = await Promise.all(Array.from({ length: 4 }, () => begin(t, shared)));
    const front = await tabs.newPage();
    await front.bringToFront();
    for (const { page } of readings) await until(() => page.evaluate(() => document.visibilityState === "hidden"));
    for (let round = 0; round < count; round += 1) {
      await setState(readings, "frozen");
      await pause(frozenMs);
      await setState(readings, "active");
      await Promise.all(readings.map(({ page }) => goesOn(page, 5)));
    }
    await front.close();
    for (const { end } of readings) {
      const checked = await end(`frozen behind another tab, ${count} times`);
      assertClean(checked);
      assertWentOn(checked);
    }
  });
});

const reconnects = (count) => (page) => until(async () => (await glance(page)).openCount > count, 60_000);

function clientsOfOthers() {
  test("EventSource in Chromium resumes by its last id", async (t) => {
    const cable = await cableTo(t, server.port, { cutAfterMs: 2_000 });
    await runClean(t, {
      reader: "EventSource, Chromium", between: "a proxy that cuts after 2 s", what: "3 cuts or more", via: "EventSource", port: cable.port,
      over: "EventSource", fault: reconnects(3),
    });
  });

  test("EventSource in Chromium behind nginx resumes by its last id", async (t) => {
    const cable = await cableTo(t, nginx.port, { cutAfterMs: 2_000 });
    await runClean(t, {
      reader: "EventSource, Chromium", between: "nginx, a bare `proxy_pass`, and a cut after 2 s", what: "2 cuts or more", via: "EventSource",
      port: cable.port, over: "EventSource", fault: reconnects(2),
    });
  });

  test("npm's eventsource resumes by its last id", async (t) => {
    const cable = await cableTo(t, server.port, { cutAfterMs: 2_000 });
    const { checked, reading } = await readInNode(t, cable.port);
    note("npm eventsource, node", "a proxy that cuts after 2 s", "3 cuts or more", { ...reading, ...checked });
    assertClean({ ...reading, ...checked });
  });
}

/** Reads with npm's `eventsource` until it was cut three times; what it was told, compared. */
async function readInNode(t, port) {
  const [topic] = topicsOf("kept").topics;
  const publisher = publishTo(server, [topic]);
  const source = new EventSource(`http://127.0.0.1:${port}/v1/sse?topic=${topic}&from=all`);
  t.after(async () => {
    source.close();
    await publisher.stop();
  });
  const reading = { told: [], openCount: 0, silenceMs: 0, transport: "EventSource" };
  let heardAt;
  const hear = (told) => {
    const now = performance.now();
    reading.silenceMs = Math.max(reading.silenceMs, Math.round(now - (heardAt ?? now)));
    heardAt = now;
    reading.told.push(told);
  };
  source.onopen = () => (reading.openCount += 1);
  let epoch;
  source.addEventListener("subscribed", ({ data }) => ({ epoch } = JSON.parse(data).topics[0]));
  source.onmessage = ({ data }) => hear({ ...JSON.parse(data), epoch });
  source.addEventListener("gap", ({ data }) => hear(JSON.parse(data)));
  await until(() => reading.openCount > 3 && reading.told.length >= ENOUGH, 60_000);
  await publisher.stop();
  const kept = await keptBy(server.http, topic);
  await until(() => reading.told.at(-1)?.sequence === kept.get(topic).head, 60_000).catch(() => {});
  return { reading, checked: { faults: compare(reading.told, kept), gaps: gapsOf(reading.told) } };
}

function killed() {
  test("kept topics lose nothing, those in memory tell that they began anew", async (t) => {
    const own = await startServer({ config: config() });
    t.after(() => own.kill());
    const kept = topicsOf("kept");
    const memory = topicsOf("memory");
    const publisher = publishTo(own, [...kept.topics, ...memory.topics]);
    const shared = { between: "nothing", port: own.port, from: own, publisher };
    const readings = await Promise.all([
      ...TRANSPORTS.map((transport) => begin(t, { ...shared, reader: transport, ...only(transport), selector: [kept.selector, memory.selector] })),
      begin(t, { ...shared, reader: "EventSource, Chromium", via: "EventSource", over: "EventSource", selector: kept.topics[0] }),
      begin(t, { ...shared, ...only("poll"), selector: kept.selector, forgets: true }),
    ]);
    for (let count = 0; count < 2; count += 1) {
      await own.kill();
      await pause(500);
      await own.start();
      await Promise.all(readings.map(({ page }) => goesOn(page, 50)));
    }
    await publisher.stop();
    const [forgetful, bare] = [readings.pop(), readings.pop()];
    const what = "2 × kill -9, durable topics";
    for (const { end } of readings) {
      assertClean(await end(what, kept.selector));
      const { faults, gaps, told } = await end("2 × kill -9, topics in memory", memory.selector);
      assert.deepEqual(faults, { holes: 0, repeats: 0, wrong: 0, lacking: 0 });
      assert.deepEqual(gaps.sort(), memory.topics.flatMap((topic) => Array(2).fill(`${topic}: epoch`)).sort());
      // What was published since is there from its first.
      assert.ok(told.every(({ type, to }) => type !== "gap" || to === 0));
      assert.ok(told.length > 60);
    }
    assertClean(await bare.end(what));
    const { faults } = await forgetful.end(what);
    assert.ok(faults.holes > 0, "a poll that comes back without its positions has holes");
    checkAcknowledged(publisher.acknowledged, await keptBy(own.http, kept.selector));
  });
}

/** Everything that was acknowledged is kept where it was said to be. */
function checkAcknowledged(acknowledged, kept) {
  let count = 0;
  for (const { topic, epoch, sequence, n } of acknowledged) {
    const found = kept.get(topic);
    if (!found) continue;
    count += 1;
    assert.equal(found.epoch, epoch);
    assert.equal(found.publications[sequence - 1]?.data.n, n, `${topic} ${sequence}`);
  }
  assert.ok(count > 100, `${count} were acknowledged`);
}

// The check is worth something only if it can fail.
function redChecks() {
  const value = { sequence: 3, data: "c" };
  const publications = [{ sequence: 1, data: "a" }, { sequence: 2, data: "b" }, value];
  const kept = new Map([["t", { epoch: "e", head: 3, value, publications }]]);
  const [a, b, c] = publications.map((each) => ({ type: "publication", topic: "t", epoch: "e", ...each }));
  const gap = { type: "gap", topic: "t", epoch: "e", from: 2, to: 2, reason: "history" };
  const green = { holes: 0, repeats: 0, wrong: 0, lacking: 0 };
  for (const [name, told, faults] of [
    ["all of it", [a, b, c], green],
    ["a gap that was told", [a, gap, c], green],
    ["a new epoch that was told", [{ ...c, epoch: "d", sequence: 1 }, { ...gap, to: 0 }, a, b, c], green],
    ["a hole", [a, c], { ...green, holes: 1 }],
    ["a hole at the beginning", [c], { ...green, holes: 2 }],
    ["a repetition", [a, b, b, c], { ...green, repeats: 1 }],
    ["another order", [a, c, b], { ...green, holes: 1, repeats: 1, wrong: 1 }],
    ["another payload", [a, { ...b, data: "?" }, c], { ...green, wrong: 1 }],
    ["an end that is missing", [a, b], { ...green, lacking: 1 }],
    ["nothing", [], { ...green, lacking: 3 }],
    ["a new epoch that nobody told", [{ ...a, epoch: "d" }, a, b, c], { ...green, wrong: 1 }],
    ["a topic that nobody asked for", [a, b, c, { ...a, topic: "u" }], { ...green, wrong: 1 }],
  ]) {
    test(`told ${name}`, () => assert.deepEqual(compare(told, kept), faults));
  }

  for (const transport of ["websocket", "sse"]) {
    test(`a client that comes back without its positions: ${transport}`, async (t) => {
      const cable = await cableTo(t, server.port, { cutAfterMs: 2_000 });
      const fault = () => until(() => cable.cutCount >= 2, 60_000);
      const { faults } = await run(t, { port: cable.port, ...only(transport), fault, forgets: true });
      assert.ok(faults.holes > 0, JSON.stringify(faults));
    });
  }

  for (const transport of ["sse", "poll"]) {
    test(`a proxy that loses one publication: ${transport}`, async (t) => {
      const proxy = await openProxy(server.port, { lose: '"sequence":30,' });
      t.after(() => proxy.close());
      const { faults } = await run(t, { port: proxy.port, ...only(transport), isNoted: false });
      assert.ok(proxy.hasLost);
      assert.deepEqual(faults, { holes: 1, repeats: 0, wrong: 0, lacking: 0 });
    });
  }

  test("an EventSource whose last id is taken away", async (t) => {
    const proxy = await openProxy(server.port, { without: "last-event-id" });
    t.after(() => proxy.close());
    const cable = await cableTo(t, proxy.port, { cutAfterMs: 2_000 });
    const { faults } = await run(t, { via: "EventSource", over: "EventSource", port: cable.port, fault: reconnects(1), isNoted: false });
    assert.ok(faults.repeats > 0, JSON.stringify(faults));
  });
}
