// What the page costs its reader: `TIDEGATE=…/tidegate node page.measure.js [ROUNDS [PUBLICATIONS A SECOND]...]`.
//
// A publisher in a process of its own moves 100 symbols; Chromium tells how long its main thread was busy, and how
// many frames it drew. Also: how long the first price takes on an empty cache. Prints what docs/perf/page.md needs: commit,
// machine, and the median of the rounds with the least and the most. A round of a rate takes 35 s.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

import { momentOf, settingOf, spread } from "./measured.js";
import { startServer } from "../support/server.js";

const SYMBOLS = Array.from({ length: 100 }, (_, index) => `S${String(index).padStart(2, "0")}`);
const SECONDS = 10;
const SIZES = [["desktop, 1440 × 900", { viewport: { width: 1440, height: 900 } }],
  ["phone, 390 × 844 at 2", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true }]];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const numberIn = (text) => Number(text.replaceAll(",", ""));

// Publishes for ever, in batches of what is due.
async function publish(http, rate) {
  const prices = SYMBOLS.map((_, index) => 100 + 20 * index);
  const began = performance.now();
  for (let sent = 0; ; await pause(5)) {
    const due = Math.min(1_000, Math.floor(((performance.now() - began) * rate) / 1_000) - sent);
    if (due <= 0) continue;
    const publications = Array.from({ length: due }, (_, count) => {
      const index = (sent + count) % SYMBOLS.length;
      prices[index] *= 1 + (Math.random() - 0.5) / 1_000;
      const [symbol, price] = [SYMBOLS[index], Math.round(prices[index] * 100) / 100];
      const change = Math.round((prices[index] / (100 + 20 * index) - 1) * 10_000) / 100;
      return { topic: `markets/ftse/${symbol}`, data: { symbol, price, change_percent: change, volume: sent, time_ms: Date.now() } };
    });
    sent += due;
    const answer = await fetch(`${http}/v1/publish`, { method: "POST", body: JSON.stringify({ publications }) });
    if (!answer.ok) throw new Error(await answer.text());
  }
}

async function measureReading(page) {
  const tools = await page.context().newCDPSession(page);
  await tools.send("Performance.enable");
  const metrics = async () => {
    const { metrics } = await tools.send("Performance.getMetrics");
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  };
  const counted = async () => Number((await page.textContent("#proof-text")).match(/^[\d,]+/)?.[0].replaceAll(",", "") ?? 0);
  await pause(4_000);
  await page.evaluate(() => {
    globalThis.frames_ms = [];
    let last = performance.now();
    const next = (now) => {
      globalThis.frames_ms.push(now - last);
      last = now;
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  const [first, firstCount, began] = [await metrics(), await counted(), performance.now()];
  await pause(SECONDS * 1_000);
  const [last, lastCount, ended] = [await metrics(), await counted(), performance.now()];
  const frames = (await page.evaluate(() => globalThis.frames_ms)).slice(2).sort((one, other) => one - other);
  const [seconds, updates] = [(ended - began) / 1_000, lastCount - firstCount];
  const per1000 = (name) => Number(((1e6 * (last[name] - first[name])) / updates).toFixed(2));
  return {
    updatesPerSecond: Math.round(updates / seconds),
    framesPerSecond: Number((frames.length / seconds).toFixed(1)),
    frameMsP99: Number(frames[Math.floor(frames.length * 0.99)].toFixed(1)),
    mainThreadMsPer1000: { all: per1000("TaskDuration"), script: per1000("ScriptDuration"), layout: per1000("LayoutDuration"), style: per1000("RecalcStyleDuration") },
    mainThreadBusyPercent: Math.round((100 * (last.TaskDuration - first.TaskDuration)) / seconds),
    latencyMs: numberIn(await page.textContent("#figure-latency")),
    screenMs: numberIn(await page.textContent("#figure-screen")),
    proof: await page.getAttribute("#proof", "data-state"),
  };
}

/** One round at one rate, on each screen: what was measured, by the screen's name. */
async function measureRound(browser, rate) {
  const server = await startServer();
  const publisher = spawn(process.execPath, [fileURLToPath(import.meta.url), "publish", server.http, String(rate)], { stdio: "inherit" });
  await pause(1_000);
  const measured = {};
  for (const [name, options] of SIZES) {
    const page = await (await browser.newContext(options)).newPage();
    await page.goto(`${server.http}/demo`);
    await page.waitForFunction(() => document.getElementById("figure-first").textContent !== "–");
    const firstPriceMs = numberIn(await page.textContent("#figure-first"));
    measured[name] = { firstPriceMs, ...(await measureReading(page)) };
    // Each round as it is, beside the table.
    console.error(rate, name, JSON.stringify(measured[name]));
    await page.context().close();
  }
  publisher.kill();
  await server.stop();
  return measured;
}

const COLUMNS = [
  ["updates a second", (each) => each.updatesPerSecond],
  ["frames a second", (each) => each.framesPerSecond],
  ["frame p99, ms", (each) => each.frameMsP99],
  ["main thread, ms for 1,000 updates", (each) => each.mainThreadMsPer1000.all],
  ["of it script", (each) => each.mainThreadMsPer1000.script],
  ["layout", (each) => each.mainThreadMsPer1000.layout],
  ["style", (each) => each.mainThreadMsPer1000.style],
  ["main thread busy, %", (each) => each.mainThreadBusyPercent],
  ["publisher to page, median ms", (each) => each.latencyMs],
  ["page to screen, median ms", (each) => each.screenMs],
];

async function measure(rounds, rates) {
  const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  console.log(settingOf({ browser, rounds, others: [`each reads for ${SECONDS} s`, momentOf("begun")] }));
  const all = [];
  // Round after round, so that what changes meanwhile changes all rates.
  for (let round = 0; round < rounds; round += 1) {
    for (const rate of rates) all.push({ rate, measured: await measureRound(browser, rate) });
  }
  await browser.close();
  console.log(`| | ${COLUMNS.map(([title]) => title).join(" | ")} |\n| ${COLUMNS.map(() => "--- | ").join("")}--- |`);
  for (const rate of rates) {
    const ofRate = all.filter((each) => each.rate === rate);
    for (const [name] of SIZES) {
      const cells = COLUMNS.map(([, valueOf]) => spread(ofRate.map(({ measured }) => valueOf(measured[name]))));
      console.log(`| ${name} | ${cells.join(" | ")} |`);
    }
  }
  const measured = all.flatMap((each) => Object.values(each.measured));
  console.log(`\n- the first price, ms: ${spread(measured.map(({ firstPriceMs }) => firstPriceMs))}, of ${measured.length}`);
  const states = [...new Set(measured.map(({ proof }) => proof))].join(", ");
  console.log(`- what the page says of what it was told: ${states}`);
  console.log(`- ${momentOf("ended")}`);
}

const [verb, ...others] = process.argv.slice(2);
if (verb === "publish") await publish(others[0], Number(others[1]));
else await measure(Number(verb ?? 5), others.length > 0 ? others.map(Number) : [10_000, 1_000]);
