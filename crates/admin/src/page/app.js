/** The page at `/`: what this server has. One client reads the topics and publishes; the box to subscribe has its own. */

import { Client } from "./vendor/tidegate.js";
import { watchTheme } from "./controls.js";
import { Losses } from "./losses.js";
import { Outage } from "./outage.js";
import { Reader } from "./reader.js";
import { byId, setText, tellProblem, transportNames } from "./text.js";
import { ask, keepToken, token } from "./token.js";
import { Topics } from "./topics.js";

/** After this nobody waits for the answer to a publication. */
const PUBLISH_MS = 10_000;

let client;
let losses = new Losses();
const outage = new Outage(tellOutage);
const handleGap = (gap, after) => {
  losses.take(gap, after);
  tellLosses();
};
const topics = new Topics(handleGap);
const reader = new Reader(handleGap);

/** Connects with the visitor's token, instead of what was there. */
function connect() {
  client?.close();
  reader.stop();
  const next = (client = new Client(location.origin, { name: "page", token: token(), logger: false, lastMs: 5_000, stableMs: 1_000 }));
  const ours = (handle) => (told) => next === client && handle(told);
  client.on("state", ours(handleState));
  // What ends the connection is told as its state; what ends a subscription, where it is shown.
  client.on("error", ours((error) => console.warn(error)));
  topics.read(client);
  client.connect();
}

function handleState(told) {
  const { state, error } = told;
  const isConnected = state === "connected";
  document.body.dataset.connected = String(isConnected);
  setText(byId("state-text"), isConnected ? `connected over ${transportNames[client.transport]}` : state === "stopped" ? "refused" : "connecting");
  outage.take(told);
  if (state === "stopped") topics.end(`Not to be seen: ${error.message}. Use a token that may connect.`);
  if (!isConnected) return;
  losses.handleConnected();
  void topics.list();
  void lookForDemo();
}

function tellOutage(text, why) {
  const isLasting = text !== undefined;
  document.body.dataset.outage = String(isLasting);
  byId("outage").hidden = !isLasting;
  if (!isLasting) return;
  setText(byId("outage-title"), text);
  setText(byId("outage-text"), `What is shown may be old.${why ? ` Why: ${why}.` : ""}`);
}

function tellLosses() {
  byId("losses").hidden = losses.isEmpty;
  if (losses.isEmpty) return;
  setText(byId("losses-title"), losses.title);
  setText(byId("losses-text"), `${losses.text}.`);
}

/** The market of `tidegate demo` is linked where it is. */
async function lookForDemo() {
  const found = await ask("v1/topics?selector=markets/ftse/%2B&limit=1").catch(() => ({ topics: [] }));
  byId("demo-link").hidden = found.topics.length === 0;
}

async function publish() {
  const [topic, payload, kind] = ["publish-topic", "publish-payload", "publish-kind"].map((id) => byId(id).value);
  const button = byId("publish-button");
  tellProblem("publish-problem", undefined);
  try {
    const data = kind === "json" ? parsed(payload) : payload;
    [button.disabled, button.textContent] = [true, "Publishing…"];
    const answer = await client.publish(topic.trim(), data, { kind, signal: AbortSignal.timeout(PUBLISH_MS) });
    const where = answer.level === "disk" ? "on disk" : "in memory";
    setText(byId("publish-state"), `Published to ${answer.topic} as number ${answer.sequence}, kept ${where}.`);
    void topics.list();
  } catch (error) {
    const isLate = error.name === "TimeoutError";
    tellProblem("publish-problem", isLate ? "No answer within 10 s: whether it was kept is not known." : error.message);
  }
  [button.disabled, button.textContent] = [false, "Publish"];
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}. Put it right, or choose the kind Text.`);
  }
}

function useToken(text) {
  keepToken(text);
  byId("token").value = "";
  tellToken();
  connect();
}

function tellToken() {
  setText(byId("token-state"), token() ? "in use, in this tab only" : "none: you are anonymous");
  byId("token-forget").hidden = token() === undefined;
}

const onSubmit = (id, handle) => byId(id).addEventListener("submit", (event) => (event.preventDefault(), handle()));
onSubmit("publish-form", () => void publish());
onSubmit("token-form", () => useToken(byId("token").value));
byId("token-forget").addEventListener("click", () => useToken(""));
byId("losses-seen").addEventListener("click", () => {
  losses = new Losses();
  tellLosses();
});
watchTheme(byId("theme"), () => {});
setText(byId("try"), `curl '${location.origin}/v1/topics'`);
tellToken();
connect();
