/** The box to subscribe: every message of a selector, the newest first. A client of its own, so that nothing is left out. */

import { Client } from "./vendor/tidegate.js";
import { clock } from "./outage.js";
import { textOf } from "./payload.js";
import { token } from "./token.js";
import { byId, many, setText, tellProblem } from "./text.js";

/** Messages on the page; older ones go. */
const SHOWN_MAX = 100;

export class Reader {
  #client;
  #selector;
  #received = 0;
  #isLive = false;
  /** What is not on the page yet, oldest first. */
  #waiting = [];
  #isFrameAsked = false;
  #handleGap;

  /** `handleGap(gap)` is told what could not be had. */
  constructor(handleGap) {
    this.#handleGap = handleGap;
    byId("reader-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#client) this.stop();
      else this.#start(byId("reader-selector").value.trim());
    });
  }

  /** Ends the subscription, if there is one. */
  stop() {
    if (this.#client === undefined) return;
    this.#client.close();
    this.#client = undefined;
    this.#tell();
  }

  #start(selector) {
    [this.#selector, this.#received, this.#isLive] = [selector, 0, false];
    this.#waiting.length = 0;
    byId("reader-messages").replaceChildren();
    tellProblem("reader-problem", undefined);
    const client = (this.#client = new Client(location.origin, { name: "page", token: token(), logger: false, lastMs: 5_000 }));
    const ours = (handle) => (told) => client === this.#client && handle(told);
    const fail = ours(({ message }) => {
      this.stop();
      tellProblem("reader-problem", message);
    });
    client.on("error", fail);
    const subscription = client.subscribe(selector);
    const take = ours((publication) => {
      this.#received += 1;
      this.#add({ topic: publication.topic, sequence: publication.sequence, text: textOf(publication) });
    });
    subscription.on("snapshot", take);
    subscription.on("update", take);
    subscription.on("gap", ours((gap) => {
      this.#handleGap(gap);
      this.#add({ topic: gap.topic, isGap: true, text: gapText(gap) });
    }));
    subscription.on("error", fail);
    subscription.on("state", ours(({ state }) => {
      this.#isLive = state === "live";
      this.#tell();
    }));
    this.#tell();
  }

  /** It waits for the next frame; of more than fit, the oldest go unseen. */
  #add(message) {
    this.#waiting.push({ ...message, at: new Date() });
    if (this.#waiting.length > SHOWN_MAX) this.#waiting.shift();
    if (this.#isFrameAsked) return;
    this.#isFrameAsked = true;
    requestAnimationFrame(() => {
      this.#isFrameAsked = false;
      const list = byId("reader-messages");
      list.hidden = false;
      list.prepend(...this.#waiting.splice(0).reverse().map(itemOf));
      while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
      this.#tell();
    });
  }

  #tell() {
    const button = byId("reader-button");
    const isOn = this.#client !== undefined;
    button.dataset.on = String(isOn);
    setText(button, isOn ? "Unsubscribe" : "Subscribe");
    byId("reader-selector").readOnly = isOn;
    setText(byId("reader-state"), this.#state());
  }

  #state() {
    if (this.#selector === undefined) return "Not subscribed.";
    const shown = this.#received > SHOWN_MAX ? `, the newest ${SHOWN_MAX} shown` : "";
    const received = `${many(this.#received, "message")}${shown}`;
    if (this.#client === undefined) return `Not subscribed any more; it was ${this.#selector}: ${received}.`;
    if (!this.#isLive) return `Subscribing to ${this.#selector}…`;
    if (this.#received > 0) return `Subscribed to ${this.#selector}: ${received}.`;
    const hint = this.#selector.includes("*") ? " It is a plain topic: the wildcards are + and #." : "";
    return `Subscribed to ${this.#selector}: nothing published there yet.${hint}`;
  }
}

function itemOf({ topic, sequence, text, isGap, at }) {
  const item = document.createElement("li");
  if (isGap) item.className = "gap";
  const add = (name, content) => (item.appendChild(document.createElement(name)).textContent = content);
  add("time", clock(at));
  add("bdi", topic);
  if (sequence !== undefined) add("small", String(sequence));
  item.appendChild(document.createElement("code")).appendChild(document.createElement("bdi")).textContent = text;
  return item;
}

function gapText({ from, to, reason }) {
  if (reason === "epoch") return "the server restarted: numbering began anew";
  return `${from === to ? from : `${from} to ${to}`} could not be had (${reason})`;
}
