/**
 * The topics of this server with their newest values. A listing says which there are, a page of them at a time; each one that is
 * shown is subscribed to, conflated, so that what this costs the server is bounded however many topics it has.
 */

import { textOf } from "./payload.js";
import { clock } from "./outage.js";
import { ask } from "./token.js";
import { byId, setText, tellProblem } from "./text.js";

/** Topics shown at once, how often each is told at most, and how often new ones are looked for. */
const SHOWN_MAX = 50;
const INTERVAL_MS = 500;
const LIST_MS = 3_000;

/** A topic: its newest publication, and the cells that show it. */
class Row {
  publication;
  toldAt;

  constructor(topic) {
    this.element = document.createElement("tr");
    const cells = ["th", "td", "td", "td"].map((name) => this.element.appendChild(document.createElement(name)));
    [this.name, this.value, this.sequence, this.time] = cells;
    this.name.scope = "row";
    [this.sequence.className, this.time.className] = ["narrow", "narrow time"];
    // Other people's text: whatever direction it claims ends with it.
    this.name.appendChild(document.createElement("bdi")).textContent = topic;
    this.text = this.value.appendChild(document.createElement("bdi"));
  }

  write() {
    if (this.publication === undefined) return;
    setText(this.text, textOf(this.publication));
    setText(this.sequence, String(this.publication.sequence));
    setText(this.time, clock(this.toldAt));
  }
}

export class Topics {
  #rows = new Map();
  #client;
  #handleGap;
  #selector = "#";
  /** Topics come after this name; of the pages before, those that began with one. */
  #after;
  #next;
  #isListing = false;
  #changed = new Set();

  /** `handleGap(gap)` is told what could not be had. */
  constructor(handleGap) {
    this.#handleGap = handleGap;
    byId("topics-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#show(byId("topics-selector").value.trim() || "#", undefined);
    });
    byId("topics-next").addEventListener("click", () => this.#show(this.#selector, this.#next));
    byId("topics-first").addEventListener("click", () => this.#show(this.#selector, undefined));
    setInterval(() => void this.list(), LIST_MS);
  }

  /** Reads through this client from now on. */
  read(client) {
    this.#client = client;
    this.#clear();
  }

  /** There is nothing to be seen, for this reason. */
  end(why) {
    this.#clear();
    tellProblem("topics-problem", undefined);
    byId("topics-empty").hidden = false;
    setText(byId("topics-empty"), why);
  }

  #show(selector, after) {
    [this.#selector, this.#after] = [selector, after];
    this.#clear();
    void this.list();
  }

  #clear() {
    for (const topic of [...this.#rows.keys()]) this.#remove(topic);
  }

  /** Looks which topics there are. */
  async list() {
    if (this.#isListing || document.hidden || this.#client?.state !== "connected") return;
    this.#isListing = true;
    const [client, selector, after] = [this.#client, this.#selector, this.#after];
    const query = new URLSearchParams({ selector, limit: SHOWN_MAX, ...(after && { after }) });
    const found = await ask(`v1/topics?${query}`).catch((error) => ({ error }));
    this.#isListing = false;
    const isCurrent = client === this.#client && selector === this.#selector && after === this.#after;
    if (!isCurrent) return this.list();
    this.#take(found);
  }

  #take({ error, topics = [], next }) {
    tellProblem("topics-problem", error && whyNotListed(error));
    // Without an answer from the server nothing is known to have changed.
    if (error !== undefined && error.code === undefined) return;
    this.#next = next;
    const names = new Set(topics.map(({ topic }) => topic));
    for (const topic of [...this.#rows.keys()]) if (!names.has(topic)) this.#remove(topic);
    let place = byId("topics-rows").firstElementChild;
    for (const topic of names) {
      const { row } = this.#rows.get(topic) ?? this.#add(topic);
      if (row.element === place) place = place.nextElementSibling;
      else byId("topics-rows").insertBefore(row.element, place);
    }
    const isFirst = this.#after === undefined;
    byId("topics-next").hidden = next === undefined;
    byId("topics-first").hidden = isFirst;
    byId("topics-empty").hidden = names.size > 0;
    const which = this.#selector === "#" ? "Nothing is published here yet. Publish something: it shows here." : "No topic is selected by that.";
    setText(byId("topics-empty"), error ? "Not to be seen." : which);
    const isAll = isFirst && next === undefined;
    setText(byId("topics-count"), names.size === 0 ? "" : isAll ? String(names.size) : `${names.size} of more, by name`);
  }

  #add(topic) {
    const row = new Row(topic);
    const subscription = this.#client.subscribe(topic, { conflation: "always", intervalMs: INTERVAL_MS });
    const take = (publication) => {
      [row.publication, row.toldAt] = [publication, new Date()];
      this.#write(row);
    };
    subscription.on("snapshot", take);
    subscription.on("update", take);
    subscription.on("gap", (gap) => this.#handleGap(gap, row.publication?.sequence));
    subscription.on("error", (error) => tellProblem("topics-problem", error.message));
    const entry = { row, subscription };
    this.#rows.set(topic, entry);
    return entry;
  }

  #remove(topic) {
    const { row, subscription } = this.#rows.get(topic);
    subscription.unsubscribe();
    row.element.remove();
    this.#rows.delete(topic);
  }

  /** Rows that changed are written once a frame. */
  #write(row) {
    this.#changed.add(row);
    if (this.#changed.size > 1) return;
    requestAnimationFrame(() => {
      this.#changed.forEach((each) => each.write());
      this.#changed.clear();
    });
  }
}

/** Why there is no listing, and what helps. */
function whyNotListed({ code, message }) {
  if (code === undefined) return `The topics cannot be listed: the server did not answer (${message}).`;
  const isRight = code === 4300 || code === 4301;
  const help = "Use a token that may read it, or show a selector that yours may read, such as prices/#.";
  return isRight ? `The server does not let you see this: ${message}. ${help}` : `${message}.`;
}
