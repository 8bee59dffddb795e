// How long the first value takes on a page that was never here: `TIDEGATE=…/tidegate node networks.measure.js [ROUNDS]`.
//
// Prints what docs/perf/networks.md needs: commit, machine, and the median of the rounds with the least and the most.
// Each round is a profile of its own, with nothing cached and nothing remembered. The time begins when the page is asked for,
// and ends when its code has the value of the topic.
import { existsSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:http";
import { chromium } from "playwright-core";

import { momentOf, settingOf, spread } from "./measured.js";
import { nginxVersion, openNginx, openProxy } from "../support/proxy.js";
import { publish, startServer } from "../support/server.js";

const rounds = Number(process.argv[2] ?? 9);
const slowRounds = Math.ceil(rounds / 3);
const local = (path) => readFileSync(new URL(path, import.meta.url), "utf8");
const served = {
  "/": ["text/html", '<!doctype html><link rel="icon" href="data:,"><script type="module" src="/reader.js"></script>'],
  "/reader.js": ["text/javascript", local("networks.page.js")],
  "/tidegate.js": ["text/javascript", local("../../crates/admin/src/page/vendor/tidegate.js")],
};
const pages = createServer((request, answer) => {
  const [type, body] = served[request.url];
  answer.writeHead(200, { "content-type": type }).end(body);
}).listen(0, "127.0.0.1");
await once(pages, "listening");
const origin = `http://127.0.0.1:${pages.address().port}`;
const server = await startServer({ config: `[engine]\nshards = 2\n[access]\norigins = ["${origin}"]\n` });
await publish(server, { topic: "first/a", data: 1 });
const boxes = {
  nothing: server,
  refusing: await openProxy(server.port, { upgrade: "refuse" }),
  swallowing: await openProxy(server.port, { upgrade: "swallow" }),
  nginx: await openNginx(server.port),
  buffering: await openNginx(server.port, "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"),
};
const browser = await chromium.launch({
  executablePath: ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync),
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// The first visit, and one right after it in the same profile.
async function visit(port, reading) {
  const context = await browser.newContext();
  const address = `${origin}/#${encodeURIComponent(JSON.stringify({ url: `ws://127.0.0.1:${port}`, ...reading }))}`;
  const first = [];
  for (let count = 0; count < 2; count += 1) {
    const page = await context.newPage();
    await page.goto(address);
    await page.waitForFunction(() => globalThis.reader?.firstMs !== undefined, undefined, { timeout: 60_000, polling: 20 });
    first.push(await page.evaluate(() => globalThis.reader.firstMs));
    await page.waitForFunction(() => globalThis.reader.transport !== undefined);
    first.transport = await page.evaluate(() => globalThis.reader.transport);
    await page.close();
  }
  await context.close();
  return first;
}

const only = (transport) => ({ selector: "first/+", options: { transports: [transport] } });
const ladder = { selector: "first/+", options: {} };
const others = [`nginx ${nginxVersion()}`, `where it takes five seconds: ${slowRounds} rounds`, momentOf("begun")];
console.log(settingOf({ browser, rounds, others }));
console.log("| reader | between | over | rounds | cold, ms | the page after that, ms |\n| --- | --- | --- | --- | --- | --- |");
for (const [reader, between, reading, count] of [
  ["websocket alone", "nothing", only("websocket"), rounds],
  ["sse alone", "nothing", only("sse"), rounds],
  ["poll alone", "nothing", only("poll"), rounds],
  ["EventSource", "nothing", { via: "EventSource", selector: "first/a" }, rounds],
  ["the ladder", "nothing", ladder, rounds],
  ["the ladder", "refusing", ladder, rounds],
  ["the ladder", "nginx", ladder, rounds],
  ["the ladder", "swallowing", ladder, slowRounds],
  ["the ladder", "buffering", ladder, slowRounds],
]) {
  const visits = [];
  for (let round = 0; round < count; round += 1) visits.push(await visit(boxes[between].port, reading));
  const [cold, later] = [0, 1].map((index) => spread(visits.map((visit) => visit[index])));
  const over = [...new Set(visits.map(({ transport }) => transport))].join(", ");
  console.log(`| ${reader} | ${between} | ${over} | ${count} | ${cold} | ${later} |`);
}
console.log(`\n- ${momentOf("ended")}`);
await browser.close();
for (const box of Object.values(boxes)) box.close?.();
await server.stop();
pages.close();
