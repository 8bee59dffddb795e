// The page at /demo, in headless Chromium.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { OUT, checkForEverybody, closePages, desktop, isConnected, number, openAt, opacityOf, phone, shots, startBrowser, textOf } from "./browser.js";
import { startServer, until } from "../support/server.js";

let server, browser;

before(async () => {
  [server, browser] = [await startServer({ verb: "demo" }), await startBrowser()];
});
afterEach(() => closePages(browser));
after(async () => {
  await browser?.close();
  await server?.stop();
});

async function openPage(options, at = server) {
  const page = await openAt(browser, `${at.http}/demo`, options);
  await isConnected(page);
  await until(async () => (await page.locator("#rows tr").count()) === 100);
  return page;
}

const choose = (page, name, value) => page.locator(`input[name="${name}"][value="${value}"]`).check();
// Publications that the checker has counted.
const counted = async (page) => Number((await page.locator("#proof-text").textContent()).match(/^[\d,]+/)?.[0].replaceAll(",", "") ?? 0);

const stateOf = (page) => page.locator("#proof").getAttribute("data-state");

// It goes on counting, and has found nothing wrong.
async function checkGreen(page, more = 100) {
  const first = await counted(page);
  await until(async () => (await counted(page)) > first + more, 20_000);
  // Where the network is broken again and again it is grey in between.
  const state = await until(async () => {
    const now = await stateOf(page);
    return now !== "grey" && now;
  }, 20_000);
  assert.equal(state, "green", await textOf(page, "#proof-text"));
}

test("its files come with their types, a tag and a policy without exceptions", async () => {
  for (const [path, type] of [["/", "text/html"], ["/demo", "text/html"], ["/favicon.ico", "image/svg+xml"], ["/page/app.js", "text/javascript"],
    ["/page/style.css", "text/css"], ["/page/docs/protocol.md", "text/plain"]]) {
    const answer = await fetch(server.http + path);
    assert.equal(answer.status, 200);
    assert.ok(answer.headers.get("content-type").startsWith(type), answer.headers.get("content-type"));
    const policy = answer.headers.get("content-security-policy");
    assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'/);
    assert.match(policy, /require-trusted-types-for 'script'; trusted-types 'none'/);
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.doesNotMatch(policy, /unsafe|data:|http/);
    const again = await fetch(server.http + path, { headers: { "if-none-match": answer.headers.get("etag") } });
    assert.equal(again.status, 304);
  }
  assert.equal((await fetch(`${server.http}/page/none.js`)).status, 404);
});

for (const [name, viewport] of [["desktop", desktop], ["phone", phone]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`the market shows values that change, for everybody (${name}, ${colorScheme})`, async () => {
      const page = await openPage({ viewport, colorScheme });
      const price = page.locator('[data-symbol="AAF"] .price');
      const first = await price.textContent();
      await until(async () => (await price.textContent()) !== first);
      const pixels = () => page.evaluate(() => document.querySelector('[data-symbol="AAF"] canvas').toDataURL());
      const drawn = await pixels();
      await until(async () => (await pixels()) !== drawn);
      await until(async () => (await number(page, "#figure-rate")) > 500);
      await until(async () => (await number(page, "#figure-latency")) > 0);
      await until(async () => (await number(page, "#figure-screen")) > 0);
      await checkGreen(page);
      await page.locator("#machine").scrollIntoViewIfNeeded();
      await until(async () => (await page.locator("#machine canvas").count()) === 4);
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: `${shots}demo-${name}-${colorScheme}.png` });
      assert.deepEqual(page.problems, []);
      await page.emulateMedia({ reducedMotion: "reduce" });
      await checkForEverybody(page, viewport);
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
    await page.goto(`${server.http}/demo`);
    await until(async () => (await stateOf(page)) === "green");
    await checkGreen(page);
    isSpoiling = true;
    await until(async () => (await stateOf(page)) === "red");
    assert.match(await page.locator("#proof-text").textContent(), says);
    assert.equal(await page.locator("#announce").textContent(), "The check found a violation");
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
    if (name === "delta") break;
  }
  for (const name of ["theme", "cut", "drop", "speed", "filter", "pause", "scroll", "symbol", "price", "change", "volume", "transport", "conflation", "delta"]) {
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
  assert.equal(await textOf(page, "#pause"), "Paused: go on");
  const price = await page.locator("#rows tr:visible .price").textContent();
  await checkGreen(page, 500);
  assert.equal(await page.locator("#rows tr:visible .price").textContent(), price, "nothing moves while it is paused");
  await page.locator("#pause").press("Space");
  await until(async () => (await page.locator("#rows tr:visible .price").textContent()) !== price);
  assert.deepEqual(page.problems, []);
});

test("the button turns light into dark, and the page remembers", async () => {
  const page = await openPage({ colorScheme: "light" });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  assert.equal(await textOf(page, "#theme"), "Theme: light");
  await page.locator("#theme").click();
  assert.equal(await textOf(page, "#theme"), "Theme: dark");
  const dark = await back();
  assert.notEqual(dark, light);
  await page.reload();
  await isConnected(page);
  assert.equal(await back(), dark);
});

test("what breaks the network comes first, and says what it does and what became of it", async () => {
  const page = await openPage();
  assert.equal(await page.evaluate(() => document.querySelector("main > section").querySelector("h2").firstChild.data.trim()), "Break the network");
  for (const explained of await page.locator(".break .counters > div").all()) {
    assert.match(await explained.locator("dd.soft").textContent(), /\w+ \w+/, "a line that explains it");
  }
  await checkGreen(page);
  await page.locator("#cut").click();
  await until(async () => (await stateOf(page)) === "grey");
  assert.match(await textOf(page, "#proof-title"), OUT);
  assert.match(await textOf(page, "#cut"), /^Disconnected: back in \d s$/);
  assert.ok((await opacityOf(page, "#scroll")) < 0.6, "the table dims");
  await page.screenshot({ path: `${shots}demo-disconnected.png` });
  await until(async () => (await stateOf(page)) === "green", 30_000);
  assert.equal(await opacityOf(page, "#scroll"), 1);
  await until(async () => (await number(page, "#count-caught")) > 500);
  for (const [id, count] of [["#count-lost", 1], ["#count-resumed", 1], ["#count-gaps", 0]]) assert.equal(await number(page, id), count, id);
  assert.equal(await textOf(page, "#cut"), "Disconnect for 5 s");
  await checkGreen(page);
  await page.screenshot({ path: `${shots}demo-recovered.png` });
});

test("a restart is told once, and what could not be had is amber, with what and how many", async (t) => {
  const own = await startServer({ verb: "demo", config: '[limits]\nrecent_deliveries_max = 100\n[[topics]]\nselector = "#"\nhistory_count = 5\n' });
  t.after(() => own.stop());
  const page = await openPage({}, own);
  await checkGreen(page);
  await page.locator("#cut").click();
  await until(async () => (await stateOf(page)) === "amber", 30_000);
  const [title, text] = [await textOf(page, "#proof-title"), await textOf(page, "#proof-text")];
  assert.match(title, /^[\d,]+ publications could not be had$/);
  assert.match(text, /^[\d,]+ publications of \d+ topics could not be had: the server did not keep them any longer\. /);
  // What could not be had was not recovered: of each symbol no more than is kept.
  await until(async () => (await number(page, "#count-gaps")) >= 100);
  assert.ok((await number(page, "#count-caught")) < 2_000, await textOf(page, "#count-caught"));
  await page.screenshot({ path: `${shots}demo-gap.png` });
  await page.locator("#proof-anew").click();
  await until(async () => (await stateOf(page)) === "green");

  await own.kill();
  await until(async () => OUT.test(await textOf(page, "#proof-title")));
  await own.start();
  await until(async () => (await stateOf(page)) === "amber", 30_000);
  assert.match(await textOf(page, "#proof-text"), /The server restarted before \d\d:\d\d:\d\d: /, "once, not once for each topic");
  await page.screenshot({ path: `${shots}demo-restarted.png` });
});
