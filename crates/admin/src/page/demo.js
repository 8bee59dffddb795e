/** The market at `/demo`: what arrives goes to the board, the charts and the checker; once a second the figures are told. */

import { Board, thinOut } from "./board.js";
import { Chart, readPalette } from "./charts.js";
import { Checker, history } from "./checker.js";
import { watchControls, watchTheme } from "./controls.js";
import { Latency } from "./latency.js";
import { Link } from "./link.js";
import { Machine } from "./machine.js";
import { Network } from "./network.js";
import { Outage } from "./outage.js";
import { announce, byId, bytes, count, many, saved, setText, short, transportNames } from "./text.js";

/** How often a bad network breaks, and how long it is away when it is asked to be. */
const BREAK_MS = 4_000;
const CUT_MS = 5_000;

const network = new Network();
network.watchFetch();
const checker = new Checker();
const latency = new Latency();
const machine = new Machine(byId("machine"));
const board = new Board({
  body: byId("rows"),
  scroll: byId("scroll"),
  empty: byId("empty"),
  headings: document.querySelectorAll("[data-sort]"),
  handlePainted,
  handleVisible: (symbol) => seeds.push(symbol),
});
const latencyChart = new Chart(byId("chart-latency"), {
  title: "Latency from server to page, and from page to screen",
  lines: [
    { label: "server to page, p99", color: "second" },
    { label: "median", color: "accent", isFilled: true },
    { label: "page to screen, median", color: "soft" },
  ],
  format: (number, isTick) => (isTick ? String(number) : number.toFixed(1)),
  max: 20,
});
const trafficChart = new Chart(byId("chart-traffic"), {
  title: "Traffic received",
  lines: [
    { label: "without options", color: "soft" },
    { label: "received", color: "accent", isFilled: true },
  ],
  format: (number, isTick) => (isTick ? String(number) : short(number)),
  max: 10,
});

/** What the counters under the controls show. */
const counters = { lost: 0, resumed: 0, caught: 0 };
let options = {};
let isConnected = false;
/** What is said while there is no connection. */
let outageText, outageWhy;
let isLost = false;
let lostAt = 0;
let breaking;
/** Snapshots are older than the page: they say nothing about latency. */
let isWarm = false;
let machineReceived = 0;
/** Symbols whose lines still lack their past. */
const seeds = [];

const link = new Link(network, {
  quote(publication) {
    checker.take(publication);
    const arrivedAt = performance.now();
    board.take(publication.data, arrivedAt);
    if (!publication.isSnapshot && !document.hidden) latency.arrive(publication.data.time_ms, latency.now());
  },
  reading(publication) {
    machineReceived += 1;
    machine.take(publication);
  },
  gap(gap) {
    checker.takeGap(gap);
    // It was missed, and is not had later.
    if (gap.reason === "history") counters.caught -= gap.to - gap.from + 1;
  },
  resumed({ missed }) {
    counters.caught += missed;
  },
  lag: ({ ms }) => tellLag(ms),
  state: handleState,
  error: (error) => console.warn(error),
});

const outage = new Outage((text, why) => {
  const isOver = text === undefined && outageText !== undefined;
  [outageText, outageWhy] = [text, why];
  document.body.dataset.outage = String(text !== undefined);
  // What was said before goes with the outage, not a second later.
  if (text !== undefined || isOver) tellProof();
});

function handleState(told) {
  const { state, error } = told;
  outage.take(told);
  if (state === "connected") {
    checker.losses.handleConnected();
    tellLag(0);
    if (isLost) counters.resumed += 1;
    isLost = false;
    showState(`live over ${transportNames[link.transport]}`, true);
    if (lostAt > 0 && performance.now() - lostAt > 3_000) announce("connected again");
    lostAt = 0;
  } else {
    // Closed by itself, not by this page: then it is idle.
    if (isConnected && state !== "idle") {
      isLost = true;
      counters.lost += 1;
      lostAt = performance.now();
    }
    showState(state === "stopped" ? "refused" : "connecting", false);
    if (state === "stopped") console.warn(error);
  }
}

/** What the server says about it; what this page counts itself is beside it. */
function tellLag(ms) {
  setText(byId("count-lag"), `${count(ms)} ms`);
}

function showState(text, isLive) {
  isConnected = isLive;
  document.body.dataset.connected = String(isLive);
  setText(byId("state-text"), text);
}

/** A frame was painted that showed values which arrived at these times. */
function handlePainted(stamps) {
  if (byId("figure-first").textContent === "–") setText(byId("figure-first"), count(performance.now()));
  if (!document.hidden && isWarm) latency.show(stamps);
}
setTimeout(() => (isWarm = true), 1_000);

watchControls(byId("controls"), (wanted) => {
  // What is checked is what was asked for. Being throttled implies conflation.
  options = wanted;
  checker.maySkip = wanted.conflation !== "off" || wanted.bytesPerSecond !== undefined;
  setText(byId("drop-text"), `Every 4 s: ${wanted.isBreaking ? "on" : "off"}`);
  clearInterval(breaking);
  breaking = wanted.isBreaking ? setInterval(() => network.break(), BREAK_MS) : undefined;
  link.read(wanted);
});

watchTheme(byId("theme"), () => (board.palette = readPalette()));

byId("cut").addEventListener("click", ({ currentTarget: button }) => {
  const backAt = performance.now() + CUT_MS;
  network.cut(CUT_MS);
  button.disabled = true;
  const tick = () => {
    const left = Math.ceil((backAt - performance.now()) / 1_000);
    setText(button, left > 0 ? `Disconnected: back in ${left} s` : "Disconnect for 5 s");
    button.disabled = left > 0;
    if (left > 0) setTimeout(tick, 200);
  };
  tick();
});
byId("pause").addEventListener("click", ({ currentTarget: button }) => {
  const isPaused = button.dataset.on !== "true";
  button.dataset.on = String(isPaused);
  setText(button, isPaused ? "Paused: go on" : "Pause");
  board.isPaused = isPaused;
});
byId("proof-anew").addEventListener("click", () => {
  checker.countAnew();
  tellProof();
});
byId("filter").addEventListener("input", ({ currentTarget }) => {
  board.filter = currentTarget.value;
  announce(`${board.shown} of ${board.size} symbols`, true);
});

/** The past of the lines that are seen, a few at a time, once everything else is there. */
async function seed() {
  const symbol = seeds.shift();
  if (symbol === undefined) return;
  const page = await history(`markets/ftse/${symbol}`, 100);
  if (page) board.seed(symbol, thinOut(page.publications));
  await seed();
}
setInterval(() => void seed(), 500);

/** Bytes of a publication that comes whole, as measured on the wire while no deltas are asked for. */
let plainBytes = 0;
const last = { at: performance.now(), messages: 0, bytes: 0, received: 0, machine: 0 };

function tell() {
  const now = performance.now();
  const seconds = (now - last.at) / 1000;
  const rate = (name, value) => {
    const grown = value - last[name];
    last[name] = value;
    return grown / seconds;
  };
  last.at = now;
  const messages = rate("messages", network.messages);
  const bytesRate = rate("bytes", network.bytes);
  const received = rate("received", checker.received);
  const readings = rate("machine", machineReceived);
  if (document.hidden) return;
  const all = received + readings;
  if (options.delta === "none" && all > 10) plainBytes = bytesRate / all;
  // Who asks for everything and is not behind gets what is published: both are one number then, not two that differ by when
  // they were taken.
  const isAll = isPlain() && (checker.publishedRate === 0 || checker.behind < checker.publishedRate / 2);
  const published = isAll ? all : checker.publishedRate + readings;
  tellTraffic({ messages, bytesRate, received: all, published, isAll });
  tellLatency();
  tellProof();
  setText(byId("count-lost"), count(counters.lost));
  setText(byId("count-resumed"), count(counters.resumed));
  setText(byId("count-caught"), count(Math.max(0, counters.caught)));
  setText(byId("count-gaps"), count(checker.losses.gaps + checker.losses.restarts));
  setText(byId("count-behind"), count(checker.behind));
  // A second's worth is behind, and nothing may be left out: it will not get better by itself.
  byId("hint").hidden = !(options.bytesPerSecond && options.conflation === "off" && checker.behind > checker.publishedRate);
}

function tellTraffic({ messages, bytesRate, received, published, isAll }) {
  const isOut = outageText !== undefined;
  const plain = isAll ? bytesRate : published * plainBytes;
  trafficChart.add(Date.now() / 1000, [plain / 1000, bytesRate / 1000]);
  setText(byId("figure-rate"), count(received));
  setText(byId("figure-rate-note"), isOut ? "not connected" : isAll ? "all that is published" : `of ${count(published)} published`);
  const [number, unit] = bytes(bytesRate).split(" ");
  setText(byId("figure-bytes"), number);
  setText(byId("figure-bytes-unit"), `${unit}/s`);
  setText(byId("figure-bytes-note"), isOut ? "not connected" : isAll ? "whole, as published" : isPlain() ? "catching up" : `${saved(bytesRate, plain)} saved by the options`);
  setText(byId("traffic-publications"), count(received));
  setText(byId("traffic-publications-plain"), count(published));
  setText(byId("traffic-publications-saved"), saved(received, published));
  setText(byId("traffic-bytes"), short(bytesRate / 1000));
  setText(byId("traffic-bytes-plain"), short(plain / 1000));
  setText(byId("traffic-bytes-saved"), saved(bytesRate, plain));
  setText(byId("traffic-messages"), count(messages));
}

const isPlain = () => options.conflation === "off" && options.delta === "none" && options.bytesPerSecond === undefined;

function tellLatency() {
  const { arrival, screen } = latency.take();
  latencyChart.add(Date.now() / 1000, [arrival?.p99, arrival?.p50, screen?.p50]);
  for (const [id, measured] of [["figure-latency", arrival], ["figure-screen", screen]]) {
    setText(byId(id), measured ? measured.p50.toFixed(measured.p50 < 100 ? 1 : 0) : "–");
    setText(byId(`${id}-note`), `p99 ${measured ? count(measured.p99) : "–"} ms`);
  }
}

/** What is shown of the proof: red is for what nobody said, grey for no connection, amber for what could not be had. */
function tellProof() {
  const { received, losses, violations } = checker;
  const isRed = violations.length > 0;
  const [state, title, text] = isRed
    ? ["red", many(violations.length, "violation"), `The first: ${violations[0]}.`]
    : outageText !== undefined
      ? ["grey", outageText, `${received > 0 ? `What is shown is old. ${countedText()} ` : ""}${outageWhy ? `Why: ${outageWhy}.` : ""}`]
      : received === 0
        ? ["waiting", "Waiting for the first value", "Every publication is counted here: each exactly once, in order, or the server says what is missing."]
        : losses.isEmpty
          ? ["green", "Nothing missing, nothing twice, all in order", countedText()]
          : ["amber", losses.title, `${losses.text}. ${countedText()}`];
  const proof = byId("proof");
  if (isRed && proof.dataset.state !== "red") announce("The check found a violation");
  proof.dataset.state = state;
  setText(byId("proof-title"), title);
  setText(byId("proof-text"), text);
  byId("proof-anew").hidden = state !== "amber";
}

function countedText() {
  const { received, skipped, compared, topics } = checker;
  const parts = [`${count(received)} publications of ${topics} symbols, each exactly once`];
  if (skipped > 0) parts.push(`${count(skipped)} left out, as this page asked`);
  if (compared > 0) parts.push(`${count(compared)} compared with the server’s history, all equal`);
  return `${parts.join("; ")}.`;
}

setText(
  byId("clock-note"),
  latency.isSameMachine
    ? "Server to page is by the clock of the feed in the server, which is this machine’s; it counts whole milliseconds, so up to 1 ms too much."
    : "The server’s clock is another machine’s: the fastest publication counts as 0, the others by how much slower they were.",
);
setText(byId("try"), `curl -N '${location.origin}/v1/sse?topic=markets/ftse/VOD'`);
setInterval(tell, 1_000);
