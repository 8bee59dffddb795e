// Headless Chromium for the tests of pages: one start, and what goes for every page.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const shots = new URL("../../target/e2e/", import.meta.url).pathname;
export const desktop = { width: 1440, height: 900 };
export const phone = { width: 375, height: 812 };

export async function startBrowser() {
  mkdirSync(shots, { recursive: true });
  return chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

// A page that closes its socket while the server sends is told so by the browser: nothing is wrong then.
const harmless = /Data frame received after close/;

// Opens a page; `problems` has what went wrong in it, requests to other origins among them.
export async function openAt(browser, url, { viewport = desktop, ...options } = {}) {
  const page = await browser.newPage({ viewport, ...options });
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !harmless.test(message.text())) page.problems.push(`${message.text()} ${message.location().url}`);
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) page.problems.push(`asked for ${request.url()}`);
  });
  await page.goto(url);
  return page;
}

export const closePages = (browser) => Promise.all(browser.contexts().map((context) => context.close()));
export const textOf = (page, id) => page.locator(id).textContent();
export const number = async (page, selector) => Number((await textOf(page, selector)).replace(/[^\d.]/g, ""));
export const opacityOf = (page, selector) => page.locator(selector).first().evaluate((element) => Number(getComputedStyle(element).opacity));
export const isConnected = (page) => page.waitForSelector('body[data-connected="true"]');

// What the banner says while there is no connection.
export const OUT = /^Disconnected since \d\d:\d\d:\d\d, trying (again in \d+ s|now)$/;

// Fingers find everything, nothing scrolls sideways, and axe finds nothing serious.
export async function checkForEverybody(page, viewport) {
  const small = await page.locator("button, select, textarea, input, .choice label, a.quiet, nav a").evaluateAll((found) =>
    found.filter((each) => each.checkVisibility()).map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
      .filter(([, { width, height }]) => width < 44 || height < 44).map(([html, { width, height }]) => [html, width, height]));
  assert.deepEqual(small, []);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= viewport.width, `no sideways scrolling: ${width}`);
  // The policy of the page lets nobody put a script into it: axe comes in without it.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html + node.failureSummary)]), []);
}
