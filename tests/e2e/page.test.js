// The page of `tidegate demo`, in headless Chromium.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { startServer, until } from "./server.js";

const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const shots = new URL("../../target/e2e/", import.meta.url).pathname;
let server, browser;

before(async () => {
  mkdirSync(shots, { recursive: true });
  server = await startServer({ verb: "demo" });
  browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

for (const [name, viewport] of [["desktop", { width: 1280, height: 900 }], ["phone", { width: 390, height: 844 }]]) {
  test(`the page shows values that change (${name})`, async () => {
    const page = await browser.newPage({ viewport });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    await page.goto(server.http);
    await page.waitForSelector('body[data-connected="true"]');
    await until(async () => (await page.locator("#market .cell").count()) === 100);
    const price = page.locator('[data-topic="markets/ftse/VOD"] .price');
    const first = await price.textContent();
    await until(async () => (await price.textContent()) !== first);
    await until(async () => (await page.locator("#host .cell").count()) >= 2);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= viewport.width, `no sideways scrolling: ${width}`);
    await page.screenshot({ path: `${shots}page-${name}.png` });
    assert.deepEqual(errors, []);
    await page.close();
  });
}
