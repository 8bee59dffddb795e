// What the page costs its reader: `node page.measure.js [PUBLICATIONS A SECOND]`, with the program in TIDEGATE.
//
// A publisher in a process of its own moves 100 symbols; Chromium tells how long its main thread was busy, and how
// many frames it drew. Also: how long the first price takes on an empty cache.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

import { startServer } from "./server.js";

const SYMBOLS = Array.from({ length: 100 }, (_, index) => `S${String(index).padStart(2, "0")}`);
const SECONDS = 10;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

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
    latencyMs: Number(await page.textContent("#figure-latency")),
    proof: await page.getAttribute("#proof", "data-state"),
  };
}

async function measure(rate) {
  const server = await startServer();
  const publisher = spawn(process.execPath, [fileURLToPath(import.meta.url), "publish", server.http, String(rate)], { stdio: "inherit" });
  const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  await pause(1_000);
  const sizes = [["desktop", { viewport: { width: 1440, height: 900 } }],
    ["phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true }]];
  for (const [name, options] of sizes) {
    const page = await (await browser.newContext(options)).newPage();
    await page.goto(server.http);
    await page.waitForFunction(() => document.getElementById("figure-first").textContent !== "–");
    const firstPriceMs = Number(await page.textContent("#figure-first"));
    console.log(name, JSON.stringify({ firstPriceMs, ...(await measureReading(page)) }));
    await page.context().close();
  }
  await browser.close();
  publisher.kill();
  await server.stop();
}

const [verb, http, rate] = process.argv.slice(2);
if (verb === "publish") await publish(http, Number(rate));
else await measure(Number(verb ?? 10_000));
