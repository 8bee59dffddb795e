// The page of `tidegate demo`, in headless Chromium.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { startServer, until } from "./server.js";

const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = new URL("../../target/e2e/", import.meta.url).pathname;
const desktop = { width: 1440, height: 900 };
const phone = { width: 390, height: 844 };
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

// Opens the page; `problems` has what went wrong in it, requests to other origins among them.
async function openPage({ viewport = desktop, ...options } = {}) {
  const page = await browser.newPage({ viewport, ...options });
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.problems.push(`${message.text()} ${message.location().url}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== server.http) page.problems.push(`asked for ${request.url()}`);
  });
  await page.goto(server.http);
  await page.waitForSelector('body[data-connected="true"]');
  await until(async () => (await page.locator("#rows tr").count()) === 100);
  return page;
}

const number = async (page, selector) => Number((await page.locator(selector).textContent()).replace(/[^\d.]/g, ""));
const choose = (page, name, value) => page.locator(`input[name="${name}"][value="${value}"]`).check();
// Publications that the checker has counted.
const counted = async (page) => Number((await page.locator("#proof-text").textContent()).match(/^[\d,]+/)?.[0].replaceAll(",", "") ?? 0);

// It goes on counting, and has found nothing wrong.
async function checkGreen(page, more = 100) {
  const first = await counted(page);
  await until(async () => (await counted(page)) > first + more, 20_000);
  assert.equal(await page.locator("#proof").getAttribute("data-state"), "green", await page.locator("#proof-text").textContent());
}

test("its files come with their types, a tag and a policy without exceptions", async () => {
  for (const [path, type] of [["/", "text/html"], ["/page/app.js", "text/javascript"], ["/page/style.css", "text/css"]]) {
    const answer = await fetch(server.http + path);
    assert.equal(answer.status, 200);
    assert.ok(answer.headers.get("content-type").startsWith(type), answer.headers.get("content-type"));
    const policy = answer.headers.get("content-security-policy");
    assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'/);
    assert.doesNotMatch(policy, /unsafe|data:|http/);
    const again = await fetch(server.http + path, { headers: { "if-none-match": answer.headers.get("etag") } });
    assert.equal(again.status, 304);
  }
  assert.equal((await fetch(`${server.http}/page/none.js`)).status, 404);
});

for (const [name, viewport] of [["desktop", desktop], ["phone", phone]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`the page shows values that change (${name}, ${colorScheme})`, async () => {
      const page = await openPage({ viewport, colorScheme });
      const price = page.locator('[data-symbol="AAF"] .price');
      const first = await price.textContent();
      await until(async () => (await price.textContent()) !== first);
      const pixels = () => page.evaluate(() => document.querySelector('[data-symbol="AAF"] canvas').toDataURL());
      const drawn = await pixels();
      await until(async () => (await pixels()) !== drawn);
      await until(async () => (await number(page, "#figure-rate")) > 500);
      await until(async () => (await number(page, "#figure-latency")) > 0);
      await checkGreen(page);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= viewport.width, `no sideways scrolling: ${width}`);
      await page.locator("#machine").scrollIntoViewIfNeeded();
      await until(async () => (await page.locator("#machine canvas").count()) === 4);
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: `${shots}page-${name}-${colorScheme}.png` });
      assert.deepEqual(page.problems, []);
      await page.close();
    });
  }
}

test("every transport and every option keeps the checker green", async () => {
  const page = await openPage();
  await checkGreen(page);
  for (const transport of ["sse", "poll", "websocket"]) {
    await choose(page, "transport", transport);
    const names = { sse: "SSE", poll: "polling", websocket: "WebSocket" };
    await until(async () => (await page.locator("#state-text").textContent()) === `live over ${names[transport]}`);
    for (const delta of ["json-patch", "none"]) {
      await choose(page, "delta", delta);
      await checkGreen(page);
    }
    await choose(page, "conflation", "always");
    await until(async () => (await number(page, "#figure-rate")) < 300);
    await checkGreen(page);
    await choose(page, "conflation", "lagging");
    await checkGreen(page);
    await choose(page, "conflation", "off");
    await until(async () => (await number(page, "#figure-rate")) > 500);
    await checkGreen(page);
    assert.equal(await page.locator("#count-gaps").textContent(), "0", transport);
  }
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("on a network that breaks it resumes without a gap", async () => {
  const page = await openPage();
  await page.locator('input[name="drop"]').check();
  for (const transport of ["websocket", "sse"]) {
    await choose(page, "transport", transport);
    const [lost, resumed] = [await number(page, "#count-lost"), await number(page, "#count-resumed")];
    await until(async () => (await number(page, "#count-lost")) >= lost + 2, 20_000);
    await until(async () => (await number(page, "#count-resumed")) >= resumed + 2, 20_000);
    await checkGreen(page);
    assert.equal(await page.locator("#count-gaps").textContent(), "0", transport);
  }
  assert.ok((await number(page, "#count-caught")) > 0, "it caught up on what it missed");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("a thin line is given less, and what is left out is counted", async () => {
  const page = await openPage();
  await checkGreen(page);
  await page.locator('select[name="speed"]').selectOption("10000");
  await until(async () => (await number(page, "#traffic-bytes")) < 20, 20_000);
  await checkGreen(page, 20);
  await page.locator('select[name="speed"]').selectOption("");
  await until(async () => (await number(page, "#figure-rate")) > 500, 20_000);
  await checkGreen(page);
  assert.deepEqual(page.problems, []);
  await page.close();
});

// The check is worth something only if it can fail: here the network spoils what the server sent.
const wrong = (event) => (event.topic?.startsWith("markets/") ? { ...event, data: { ...event.data, price: event.data.price + 1 } } : event);
let lostOne = false;
const without = (event) => {
  const isIt = !lostOne && event.topic === "markets/ftse/AAF";
  lostOne ||= isIt;
  return isIt ? [] : event;
};
for (const [name, spoil, says] of [
  ["a hole that nobody announced", without, /AAF came with sequence \d+ after \d+, and no gap was announced/],
  ["a value that is not the published one", wrong, /in the history/],
]) {
  test(`${name} turns the proof red`, async () => {
    const page = await browser.newPage({ viewport: desktop });
    let isSpoiling = false;
    await page.routeWebSocket(/\/v1\/ws$/, (socket) => {
      const upstream = socket.connectToServer();
      upstream.onMessage((text) => {
        const events = [JSON.parse(text)].flat();
        const isLive = isSpoiling && events.every(({ type }) => type === "publication");
        socket.send(JSON.stringify(isLive ? events.flatMap(spoil) : events));
      });
    });
    await page.goto(server.http);
    const state = () => page.locator("#proof").getAttribute("data-state");
    await until(async () => (await state()) === "green");
    await checkGreen(page);
    isSpoiling = true;
    await until(async () => (await state()) === "red");
    assert.match(await page.locator("#proof-text").textContent(), says);
    assert.equal(await page.locator("#announce").textContent(), "The check found a violation");
    await page.close();
  });
}

test("it sorts, filters and pauses, by keyboard alone", async () => {
  const page = await openPage({ reducedMotion: "reduce" });
  const focused = () => page.evaluate(() => {
    const { id, name, dataset, textContent } = document.activeElement;
    return id || name || dataset.sort || textContent;
  });
  const reached = [];
  for (let count = 0; count < 20; count += 1) {
    await page.keyboard.press("Tab");
    const outline = await page.evaluate(() => {
      const element = document.activeElement;
      const shown = element.matches(".choice input") ? element.nextElementSibling : element;
      return getComputedStyle(shown).outlineStyle;
    });
    const name = await focused();
    if (name !== "") assert.notEqual(outline, "none", `the focus is seen on ${name}`);
    reached.push(name);
    if (name === "speed") break;
  }
  for (const name of ["theme", "filter", "pause", "scroll", "symbol", "price", "change", "volume", "transport", "conflation", "delta", "drop", "speed"]) {
    assert.ok(reached.includes(name), `${name} is reached: ${reached}`);
  }
  await page.locator('[data-sort="price"]').press("Enter");
  await until(async () => {
    const prices = (await page.locator("#rows .price").allTextContents()).slice(0, 5).map(Number);
    return prices.every((price, index) => index === 0 || price <= prices[index - 1] * 1.02);
  });
  assert.equal(await page.locator('th:has([data-sort="price"])').getAttribute("aria-sort"), "descending");
  await page.locator("#filter").fill("vod");
  assert.deepEqual(await page.locator("#rows tr:visible th").allTextContents(), ["VOD"]);
  assert.equal(await page.locator("#announce").textContent(), "1 of 100 symbols");
  await page.locator("#pause").press("Space");
  const price = await page.locator("#rows tr:visible .price").textContent();
  await checkGreen(page, 500);
  assert.equal(await page.locator("#rows tr:visible .price").textContent(), price, "nothing moves while it is paused");
  await page.locator("#pause").press("Space");
  await until(async () => (await page.locator("#rows tr:visible .price").textContent()) !== price);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("the button turns light into dark, and the page remembers", async () => {
  const page = await openPage({ colorScheme: "light" });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.locator("#theme").click();
  const dark = await back();
  assert.notEqual(dark, light);
  await page.reload();
  await page.waitForSelector('body[data-connected="true"]');
  assert.equal(await back(), dark);
  await page.close();
});

for (const [name, viewport] of [["desktop", desktop], ["phone", phone]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing serious (${name}, ${colorScheme})`, async () => {
      // The policy of the page lets nobody put a script into it: axe comes in without it.
      const page = await openPage({ viewport, colorScheme, reducedMotion: "reduce" });
      await checkGreen(page);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document));
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html + node.failureSummary)]), []);
      await page.close();
    });
  }
}
