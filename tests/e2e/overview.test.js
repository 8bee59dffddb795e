// The page at /: what a server that is no demo has, in headless Chromium.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { OUT, checkForEverybody, closePages, desktop, isConnected, openAt, opacityOf, phone, shots, startBrowser, textOf } from "./browser.js";
import { publish, startServer, until } from "../support/server.js";

let own, server, browser;

before(async () => {
  const config = '[limits]\nrecent_deliveries_max = 10\n[[topics]]\nselector = "short/#"\nhistory_count = 2\n';
  [own, server, browser] = [await startServer({ config }), await startServer({ verb: "demo" }), await startBrowser()];
});
afterEach(() => closePages(browser));
after(async () => {
  await browser?.close();
  await Promise.all([own?.stop(), server?.stop()]);
});

/** What a visitor sees at `/` of a server that is no demo. */
async function openServer(own, options) {
  const page = await openAt(browser, `${own.http}/`, options);
  await isConnected(page);
  return page;
}
const told = (page) => page.locator("#topics-rows tr").evaluateAll((rows) => rows.map((row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent)));
// Whether the topics on the page are these, each as name, value and number.
const toldAre = (page, wanted) => until(async () => JSON.stringify(await told(page)) === JSON.stringify(wanted)).catch(async (error) => {
  throw new Error(`${error.message}\n${JSON.stringify(await told(page))}`);
});

test("it shows what the server has, as it changes, and links to a market only where there is one", async () => {
  await publish(own, { topic: "prices/eur", data: { bid: 1.5 } });
  await publish(own, { topic: "raw", base64: "AAH/" });
  const page = await openServer(own);
  await toldAre(page, [["prices/eur", '{"bid":1.5}', "1"], ["raw", "3 bytes: 00 01 ff", "1"]]);
  await publish(own, { topic: "prices/eur", data: { bid: 1.6 } });
  await publish(own, { topic: "prices/usd", text: "closed" });
  await toldAre(page, [["prices/eur", '{"bid":1.6}', "2"], ["prices/usd", "closed", "1"], ["raw", "3 bytes: 00 01 ff", "1"]]);
  assert.ok(await page.locator("#demo-link").isHidden());
  assert.equal(await textOf(page, "#state-text"), "connected over WebSocket");
  await page.locator("#topics-selector").fill("prices/+");
  await page.locator("#topics-form button").click();
  await toldAre(page, [["prices/eur", '{"bid":1.6}', "2"], ["prices/usd", "closed", "1"]]);
  assert.deepEqual(page.problems, []);
  await page.goto(`${own.http}/demo`);
  await isConnected(page);
  assert.equal(await textOf(page, "#empty"), "There is no market on this server: tidegate demo has one.");
  assert.equal(await page.locator("#proof").getAttribute("data-state"), "waiting");
  await page.goto(`${server.http}/`);
  await page.locator("#demo-link").waitFor({ state: "visible" });
  await page.locator("#demo-link").click();
  await until(async () => (await page.locator("#rows tr").count()) === 100);
  });

test("what others publish is text, whatever it says", async () => {
  const evil = ["<img src=x onerror=globalThis.hacked=1>", "<script>globalThis.hacked=1</script>", '"><svg onload=globalThis.hacked=1>'];
  const page = await openServer(own);
  await page.locator("#reader-selector").fill("evil/#");
  await page.locator("#reader-button").click();
  await until(async () => /nothing published there yet/.test(await textOf(page, "#reader-state")));
  for (const [index, text] of evil.entries()) {
    const topic = `evil/${index}${text.replaceAll("/", "|")}`;
    assert.equal((await publish(own, { topic, text })).status, 200);
    assert.equal((await publish(own, { topic: `evil/j${index}`, data: { [text]: text } })).status, 200);
  }
  await page.locator("#topics-selector").fill("evil/#");
  await page.locator("#topics-form button").click();
  await until(async () => (await told(page)).length === 6 && (await page.locator("#reader-messages li").count()) === 6);
  const shown = (await told(page)).map(([, value]) => value);
  for (const text of evil) {
    assert.ok(shown.includes(text), text);
    assert.ok(shown.includes(JSON.stringify({ [text]: text })), text);
    assert.ok((await page.locator("#reader-messages code").allTextContents()).includes(text), text);
  }
  assert.equal(await page.locator("main img, main script, main svg").count(), 0);
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  // Not even by mistake: the browser lets no script of this page write HTML.
  const written = await page.evaluate(() => {
    try {
      document.createElement("p").innerHTML = "<b>";
      return "written";
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(written, "TypeError");
  assert.deepEqual(page.problems.filter((each) => !each.includes("TrustedHTML")), []);
  });

test("it subscribes and publishes, and says what became of it", async () => {
  const page = await openServer(own);
  await page.locator("#reader-selector").fill("box/*");
  await page.locator("#reader-button").click();
  await until(async () => (await textOf(page, "#reader-state")) === "Subscribed to box/*: nothing published there yet. It is a plain topic: the wildcards are + and #.");
  assert.equal(await textOf(page, "#reader-button"), "Unsubscribe");
  await page.locator("#reader-button").click();
  assert.equal(await textOf(page, "#reader-button"), "Subscribe");
  await page.locator("#reader-selector").fill("box/+");
  await page.locator("#reader-button").click();
  await until(async () => /nothing published there yet\.$/.test(await textOf(page, "#reader-state")));
  await page.locator("#publish-topic").fill("box/a");
  await page.locator("#publish-payload").fill("{bad");
  await page.locator("#publish-button").click();
  assert.match(await textOf(page, "#publish-problem"), /^This is not JSON: .*choose the kind Text\.$/);
  await page.locator("#publish-kind").selectOption("text");
  await page.locator("#publish-button").click();
  await until(async () => (await textOf(page, "#publish-state")) === "Published to box/a as number 1, kept in memory.");
  assert.ok(await page.locator("#publish-problem").isHidden());
  await until(async () => (await textOf(page, "#reader-state")) === "Subscribed to box/+: 1 message.");
  assert.match(await textOf(page, "#reader-messages li"), /\d\d:\d\d:\d\dbox\/a1\{bad/);
  await page.locator("#publish-topic").fill("a//b");
  await page.locator("#publish-button").click();
  await until(async () => /cannot use `a\/\/b` as a topic name/.test(await textOf(page, "#publish-problem")));
  await page.locator("#reader-button").click();
  await page.locator("#reader-selector").fill("#/a");
  await page.locator("#reader-button").click();
  await until(async () => /#\/a/.test(await textOf(page, "#reader-problem")));
  assert.equal(await textOf(page, "#reader-button"), "Subscribe");
  });

test("a server that is gone is grey, and a restart is told once", async () => {
  const mortal = await startServer();
  for (const name of ["a", "b", "c"]) await publish(mortal, { topic: `m/${name}`, data: 1 });
  const page = await openServer(mortal);
  await toldAre(page, ["a", "b", "c"].map((name) => [`m/${name}`, "1", "1"]));
  await mortal.kill();
  await until(() => page.locator("#outage").isVisible());
  await until(async () => OUT.test(await textOf(page, "#outage-title")));
  assert.equal(await page.locator("#outage").getAttribute("data-kind"), "grey");
  assert.ok((await opacityOf(page, ".topics .live")) < 0.6, "the table dims");
  await page.screenshot({ path: `${shots}server-disconnected.png` });
  await mortal.start();
  for (const name of ["a", "b", "c"]) await publish(mortal, { topic: `m/${name}`, data: 2 });
  await until(() => page.locator("#outage").isHidden(), 30_000);
  await until(() => page.locator("#losses").isVisible(), 30_000);
  assert.equal(await textOf(page, "#losses-title"), "The server restarted: numbering began anew");
  await toldAre(page, ["a", "b", "c"].map((name) => [`m/${name}`, "2", "1"]));
  assert.match(await textOf(page, "#losses-text"), /^The server restarted before \d\d:\d\d:\d\d: /);
  assert.equal(await opacityOf(page, ".topics .live"), 1);
  await page.screenshot({ path: `${shots}server-restarted.png` });
    await mortal.stop();
});

test("what could not be had is amber, with what and how many", async () => {
  const page = await browser.newPage({ viewport: desktop });
  let isAway = false;
  const open = new Set();
  await page.routeWebSocket(/\/v1\/ws$/, (socket) => {
    if (isAway) return void socket.close();
    socket.connectToServer();
    open.add(socket);
  });
  await page.goto(`${own.http}/`);
  await isConnected(page);
  await publish(own, { topic: "short/a", data: 0 });
  await page.locator("#reader-selector").fill("short/#");
  await page.locator("#reader-button").click();
  await until(async () => /1 message/.test(await textOf(page, "#reader-state")));
  isAway = true;
  for (const socket of open) await socket.close({ code: 1012 });
  await until(() => page.locator("#outage").isVisible());
  for (let number = 1; number <= 30; number += 1) await publish(own, { topic: "short/a", data: number });
  isAway = false;
  await until(() => page.locator("#losses").isVisible(), 30_000);
  assert.equal(await page.locator("#losses").getAttribute("data-kind"), "amber");
  assert.match(await textOf(page, "#losses-title"), /^\d+ publications could not be had$/);
  assert.match(await textOf(page, "#losses-text"), /^\d+ publications of 1 topic could not be had: the server did not keep them any longer\.$/);
  await until(async () => /short\/a.*\d+ to \d+ could not be had \(history\)/.test(await page.locator("#reader-messages").textContent()));
  await page.screenshot({ path: `${shots}server-gap.png` });
  await page.locator("#losses-seen").click();
  assert.ok(await page.locator("#losses").isHidden());
  });

test("it uses the visitor's own token, and says what that may not see", async (t) => {
  const token = "a-long-token-of-a-visitor";
  const guarded = await startServer({ config: `[limits]\nauthenticate_ms = 1000\n[access]\nanonymous = "none"\n[[access.tokens]]\ntoken = "${token}"\nname = "visitor"\npublish = ["prices/#"]\nsubscribe = ["prices/#"]\n` });
  t.after(() => guarded.stop());
  const page = await openAt(browser, `${guarded.http}/`);
  const urls = [];
  page.on("request", (request) => urls.push(request.url()));
  page.on("websocket", (socket) => urls.push(socket.url()));
  await until(async () => /^Not to be seen: .*Use a token that may connect\.$/.test(await textOf(page, "#topics-empty")));
  await page.screenshot({ path: `${shots}server-refused.png` });
  await page.locator("#token").fill("wrong");
  await page.locator("#token-use").click();
  await until(async () => /cannot accept the token: it is not in access\.tokens/.test(await textOf(page, "#topics-empty")));
  await page.locator("#token").fill(token);
  await page.locator("#token-use").click();
  await isConnected(page);
  await until(async () => /does not let you see this: .*Use a token that may read it, or show a selector/.test(await textOf(page, "#topics-problem")));
  await page.locator("#publish-topic").fill("prices/eur");
  await page.locator("#publish-button").click();
  await until(async () => /as number 1/.test(await textOf(page, "#publish-state")));
  await page.locator("#topics-selector").fill("prices/#");
  await page.locator("#topics-form button").click();
  await toldAre(page, [["prices/eur", '{"bid":1.08}', "1"]]);
  await page.locator("#publish-topic").fill("other");
  await page.locator("#publish-button").click();
  await until(async () => /cannot publish to `other`/.test(await textOf(page, "#publish-problem")));
  // This tab's alone: nowhere else, and in no address.
  const kept = await page.evaluate(() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]);
  assert.deepEqual(kept.map((each) => each.includes(token)), [true, false, false]);
  assert.ok(urls.length > 0 && urls.every((url) => !url.includes(token)));
  assert.equal(await page.locator("#token").inputValue(), "");
  await page.reload();
  await isConnected(page);
  await page.locator("#token-forget").click();
  await until(async () => (await textOf(page, "#state-text")) === "refused");
  assert.deepEqual(await page.evaluate(() => Object.keys(sessionStorage)), []);
  });

test("its documents are there", async () => {
  const page = await openServer(own);
  const links = await page.locator("footer nav a").evaluateAll((found) => found.map((link) => link.href));
  assert.ok(links.length > 5);
  for (const link of links) assert.equal((await fetch(link)).status, 200, link);
  });

for (const [name, viewport, colorScheme] of [["desktop", desktop, "light"], ["phone", phone, "dark"]]) {
  test(`the page at / is for everybody (${name}, ${colorScheme})`, async () => {
    const page = await openAt(browser, `${server.http}/`, { viewport, colorScheme, reducedMotion: "reduce" });
    await until(async () => (await told(page)).length === 50);
    await page.screenshot({ path: `${shots}server-${name}-${colorScheme}.png` });
    assert.deepEqual(page.problems, []);
    await checkForEverybody(page, viewport);
    });
}
