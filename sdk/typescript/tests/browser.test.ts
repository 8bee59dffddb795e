// The built package in real Chromium: a plain page, the README's React component, the README's Svelte component.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:http";
import type { Browser, Page } from "playwright-core";
import { chromium } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { bundle } from "./bundle.js";
import type { Manners } from "./middlebox.js";
import { Middlebox } from "./middlebox.js";
import { examples } from "./readme.js";
import { Server } from "./server.js";

const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const launched = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

/** What the local server serves, by path. */
const served = new Map<string, { type: string; body: string }>();
const pages = createServer((request, answer) => {
  const found = served.get(request.url!);
  answer.writeHead(found ? 200 : 404, { "content-type": found?.type ?? "text/plain" }).end(found?.body);
});
let origin: string;
let server: Server;
let browser: Browser;

beforeAll(async () => {
  pages.listen(0, "127.0.0.1");
  await once(pages, "listening");
  origin = `http://127.0.0.1:${(pages.address() as { port: number }).port}`;
  const dist = new URL("../dist/", import.meta.url);
  for (const file of readdirSync(dist).filter((name) => name.endsWith(".js"))) {
    served.set(`/${file}`, { type: "text/javascript", body: readFileSync(new URL(file, dist), "utf8") });
  }
  const config = `[access]\norigins = ["${origin}"]\n[store]\npath = "{store}"\n[[topics]]\nselector = "kept/#"\nack = "disk"\n`;
  [server, browser] = await Promise.all([Server.start(config), chromium.launch({ executablePath, args: launched })]);
});
afterAll(async () => {
  await browser?.close();
  await server?.remove();
  pages.close();
});

/** Opens a page that runs a module; errors in it fail the test. */
async function open(module: string, from: string = origin): Promise<{ page: Page; errors: string[] }> {
  served.set("/module.js", { type: "text/javascript", body: module });
  const head = '<!doctype html><link rel="icon" href="data:,">';
  const body = `${head}<div id="root"></div><script type="module" src="/module.js"></script>`;
  served.set("/", { type: "text/html", body });
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(from);
  return { page, errors };
}

/** Waits until the page shows exactly this text. */
async function shows(page: Page, text: string): Promise<void> {
  await page.waitForFunction((wanted) => document.getElementById("root")!.textContent === wanted, text, { timeout: 10_000 });
}

test("a page of an origin that is not let in is told so, and with which line it would be", async () => {
  const foreign = origin.replace("127.0.0.1", "localhost");
  const module = `
    import { Client } from "/index.js";
    const warned = [];
    console.warn = (text) => warned.push(text);
    const client = new Client(${JSON.stringify(server.url)}, { token: async () => "any" });
    const subscribed = client.subscribe("a").ready().catch(({ code }) => code);
    const published = client.publish("a", 1).catch(({ code }) => code);
    const error = await client.ready().catch((error) => error);
    const shown = [await subscribed, await published, error.code, client.state, error.message, "|", ...warned];
    document.getElementById("root").textContent = shown.join(" ");
  `;
  const { page, errors } = await open(module, foreign);
  await page.waitForFunction(() => document.getElementById("root")!.textContent !== "", undefined, { timeout: 15_000 });
  const [told, ...warned] = (await page.evaluate(() => document.getElementById("root")!.textContent!)).split("|");
  expect(told).toMatch(/^4302 4302 4302 stopped /);
  expect(told).toContain(`origins = ["${foreign}"]`);
  expect(warned).toEqual([expect.stringContaining(`Tidegate: no connection to ${server.url}: `)]);
  expect(errors).toEqual([]);
  await page.close();
});

test("a plain page gets updates, and goes on after the server was killed and started again", async () => {
  const { page, errors } = await open(`
    import { Client } from "/index.js";
    const root = document.getElementById("root");
    const client = new Client(${JSON.stringify(server.url)});
    const say = (word) => (root.textContent += word + " ");
    const kept = client.subscribe("kept/a");
    kept.on("update", ({ data }) => say(data));
    kept.on("resumed", ({ recovered }) => say("resumed:" + recovered));
    client.on("state", ({ state }) => (document.title = state));
    await kept.ready();
    say("live");
  `);
  await shows(page, "live ");
  await server.publish({ topic: "kept/a", data: 1 });
  await shows(page, "live 1 ");
  await server.kill();
  await page.waitForFunction(() => document.title === "waiting");
  await server.start();
  await server.publish({ topic: "kept/a", data: 2 });
  await page.evaluate(() => window.dispatchEvent(new Event("online")));
  await shows(page, "live 1 resumed:true 2 ");
  expect(errors).toEqual([]);
  await page.close();
});

test("a page whose network comes back, or that is looked at again, does not wait for the pause to end", async () => {
  const { page } = await open(`
    import { Client } from "/index.js";
    const root = document.getElementById("root");
    const client = new Client("ws://127.0.0.1:1", { transports: ["websocket"], firstMs: 1e6, lastMs: 1e6 });
    let attempts = 0;
    client.on("state", ({ state }) => {
      if (state === "opening") attempts += 1;
      root.textContent = state + " " + attempts;
    });
    client.connect();
  `);
  await shows(page, "waiting 1");
  await page.evaluate(() => window.dispatchEvent(new Event("online")));
  await shows(page, "waiting 2");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await shows(page, "waiting 3");
  await page.close();
});

test("a page that was frozen does not go on waiting for the response that it had", async () => {
  const { page, errors } = await open(`
    import { Client } from "/index.js";
    const root = document.getElementById("root");
    const client = new Client(${JSON.stringify(server.url)}, { transports: ["sse"] });
    const kept = client.subscribe("kept/frozen", { from: "all" });
    kept.on("update", ({ data }) => (root.textContent += data + " "));
    kept.on("resumed", ({ recovered }) => (root.textContent += "resumed:" + recovered + " "));
    await kept.ready();
    await client.publish("kept/frozen", 1);
  `);
  await shows(page, "1 ");
  await page.evaluate(() => document.dispatchEvent(new Event("resume")));
  await shows(page, "1 resumed:true ");
  await server.publish({ topic: "kept/frozen", data: 2 });
  await shows(page, "1 resumed:true 2 ");
  expect(errors).toEqual([]);
  await page.close();
});

test("the README's React component shows the value, and unsubscribes when it is gone", async () => {
  await server.publish({ topic: "prices/eur-usd", data: { bid: 1.08 } });
  const module = await bundle(
    `import { createRoot } from "react-dom/client";
     import { Price, client } from "./price.tsx";
     const root = createRoot(document.getElementById("root"));
     root.render(<Price symbol="eur-usd" />);
     window.change = (symbol) => root.render(symbol ? <Price symbol={symbol} /> : null);
     window.client = client;`,
    { withReact: true, modules: { "price.tsx": local(examples("tsx")[0]!).replace("const client", "export const client") } },
  );
  const { page, errors } = await open(module);
  await shows(page, "1.08");
  await server.publish({ topic: "prices/eur-usd", data: { bid: 1.09 } });
  await shows(page, "1.09");
  await server.publish({ topic: "prices/eur-gbp", data: { bid: 0.85 } });
  await page.evaluate(() => (window as any).change("eur-gbp"));
  await shows(page, "0.85");
  expect(await subscriptions()).toBe(1);
  await page.evaluate(() => (window as any).change(null));
  await page.evaluate(() => (window as any).client.ping());
  expect(await subscriptions()).toBe(0);
  expect(errors).toEqual([]);
  await page.close();
});

test("the README's Svelte component shows the value", async () => {
  await server.publish({ topic: "prices/eur-usd", data: { bid: 2.01 } });
  const module = await bundle(
    `import { mount } from "svelte";
     import Price from "./Price.svelte";
     mount(Price, { target: document.getElementById("root") });`,
    { modules: { "Price.svelte": local(examples("svelte")[0]!) } },
  );
  const { page, errors } = await open(module);
  await shows(page, "2.01");
  await server.publish({ topic: "prices/eur-usd", data: { bid: 2.02 } });
  await shows(page, "2.02");
  expect(errors).toEqual([]);
  await page.close();
});

// The last ones: the server holds on to a session of long-polling after its page has gone.
test("a page that was frozen asks again for the answer that it had in part", async () => {
  const { page, errors } = await open(`
    import { Client } from "/index.js";
    const root = document.getElementById("root");
    // Once told to, an answer to a poll is all there but its end, as Chromium leaves it when the page is frozen.
    const ask = window.fetch;
    window.fetch = async (...asked) => {
      const answer = await ask(...asked);
      if (!window.isHolding || !asked[0].includes("/poll")) return answer;
      const text = await answer.text();
      if (!text.includes('"publication"')) return new Response(text);
      window.isHolding = false;
      document.title = "held";
      return new Response(new ReadableStream({ start: (body) => body.enqueue(new TextEncoder().encode(text.slice(0, -2))) }));
    };
    const client = new Client(${JSON.stringify(server.url)}, { transports: ["poll"] });
    const kept = client.subscribe("kept/thawed", { from: "all" });
    kept.on("update", ({ data }) => (root.textContent += data + " "));
    kept.on("resumed", () => (root.textContent += "resumed "));
    await kept.ready();
    await client.publish("kept/thawed", 1);
  `);
  await shows(page, "1 ");
  await page.evaluate(() => ((window as any).isHolding = true));
  await server.publish({ topic: "kept/thawed", data: 2 });
  await page.waitForFunction(() => document.title === "held");
  await page.evaluate(() => document.dispatchEvent(new Event("resume")));
  // The session goes on: nothing is resumed.
  await shows(page, "1 2 ");
  expect(errors).toEqual([]);
  await page.close();
});

test.each<[string, Manners]>([
  ["sse", { upgrade: "refuse" }],
  ["poll", { upgrade: "refuse", passedBytes: 0 }],
])("where WebSocket is blocked, a page of another origin goes over %s", async (transport, manners) => {
  const box = await Middlebox.open(server.port, manners);
  const { page, errors } = await open(`
    import { Client } from "/index.js";
    const client = new Client(${JSON.stringify(box.url)}, { fallbackMs: 1000 });
    client.subscribe("kept/${transport}").on("update", ({ data }) => (root.textContent += data + client.transport + " "));
    const root = document.getElementById("root");
    await client.ready();
    await client.publish("kept/${transport}", 1);
    await client.publish("kept/${transport}", 2);
  `);
  await shows(page, `1${transport} 2${transport} `);
  expect(errors).toEqual([]);
  await page.close();
  box.close();
});

const local = (example: string) => example.replaceAll("ws://localhost:8470", server.url);

/** How many subscriptions the server has now. */
async function subscriptions(): Promise<number> {
  const metrics = await (await fetch(`${server.url.replace("ws", "http")}/metrics`)).text();
  const counts = metrics.matchAll(/^tidegate_subscriptions\{.*\} (\d+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}
