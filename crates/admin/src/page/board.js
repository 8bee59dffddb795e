/**
 * The market as a table. What arrives only changes numbers in memory; once a frame, the rows that changed and can
 * be seen are written to the DOM. Rows that cannot be seen cost nothing until they can.
 */

import { SAMPLE_MS, SAMPLES, Samples, drawSparkline } from "./sparkline.js";
import { count, setText } from "./text.js";

/** A row is written at most this often: what changes faster cannot be read. */
const WRITE_MS = 50;
/** A row flashes at most this often. */
const FLASH_MS = 450;
/** So many rows are taken to be in view until it is known which are: the first prices are not to wait for that. */
const SEEN_AT_FIRST = 30;
/** How often the order follows the values. */
const SORT_MS = 1_000;

const comparisons = {
  symbol: (one, other) => (one.symbol < other.symbol ? -1 : 1),
  price: (one, other) => one.price - other.price,
  change: (one, other) => one.change - other.change,
  volume: (one, other) => one.volume - other.volume,
};

/** A symbol: its numbers, and the elements that show them. */
class Row {
  price = 0;
  change = 0;
  volume = 0;
  /** When its newest value arrived, by `performance.now()`; 0 if that is on screen. */
  stamp = 0;
  shown = 0;
  writtenAt = 0;
  flashedAt = 0;
  samples = new Samples();
  isVisible = false;
  isSeeded = false;

  constructor(symbol) {
    this.symbol = symbol;
    this.element = document.createElement("tr");
    this.element.dataset.symbol = symbol;
    this.element.append(...["th", "td", "td", "td", "td"].map((name) => document.createElement(name)));
    const [head, trend, price, change, volume] = this.element.children;
    head.scope = "row";
    head.textContent = symbol;
    trend.className = "trend";
    this.canvas = trend.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("aria-hidden", "true");
    price.className = "price";
    change.className = "change";
    volume.className = "volume";
    this.changeCell = change;
    const priceBox = box(price);
    this.glow = priceBox.appendChild(document.createElement("i"));
    this.glow.setAttribute("aria-hidden", "true");
    this.priceText = priceBox.appendChild(document.createTextNode(""));
    this.changeText = box(change).appendChild(document.createTextNode(""));
    this.volumeText = box(volume).appendChild(document.createTextNode(""));
  }
}

/** A box of fixed size in a cell: what changes in it is laid out without the table. */
function box(cell) {
  const element = cell.appendChild(document.createElement("div"));
  element.className = "box";
  return element;
}

/** The table. `handlePainted(stamps)` is called after a frame with the times at which arrived what it showed first. */
export class Board {
  #rows = new Map();
  #changed = new Set();
  #body;
  #scroll;
  #empty;
  #headings;
  #sort = "symbol";
  #isDescending = false;
  #filter = "";
  #isPaused = false;
  #isFrameAsked = false;
  #isSampleDue = false;
  #isOrderDue = false;
  #stamps = [];
  #afterFrame = new MessageChannel();
  #palette = { up: "green", down: "red" };
  #canvasSize = { width: 0, height: 0 };
  #observer;
  #reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

  constructor({ body, scroll, empty, headings, handlePainted, handleVisible }) {
    [this.#body, this.#scroll, this.#empty, this.#headings] = [body, scroll, empty, headings];
    // The message is taken after the frame's layout and paint.
    this.#afterFrame.port1.onmessage = () => handlePainted(this.#stamps.splice(0));
    this.#observer = new IntersectionObserver((entries) => this.#see(entries, handleVisible), {
      root: scroll,
      rootMargin: "60px",
    });
    for (const heading of headings) {
      heading.addEventListener("click", () => this.#sortBy(heading.dataset.sort));
    }
    setInterval(() => this.#sample(), SAMPLE_MS);
    setInterval(() => this.#follow(), SORT_MS);
    addEventListener("resize", () => this.#measureCanvas());
  }

  /** How many symbols there are. */
  get size() {
    return this.#rows.size;
  }

  /** How many pass the filter. */
  get shown() {
    return [...this.#rows.values()].filter((row) => !row.element.hidden).length;
  }

  /** Takes a quote. Cheap: no DOM here. */
  take({ symbol, price, change_percent: change, volume }, arrivedAt) {
    let row = this.#rows.get(symbol);
    if (row === undefined) {
      row = new Row(symbol);
      row.isVisible = this.#rows.size < SEEN_AT_FIRST;
      this.#rows.set(symbol, row);
      this.#isOrderDue = true;
    }
    row.price = price;
    row.change = change;
    row.volume = volume;
    row.stamp = arrivedAt;
    this.#changed.add(row);
    this.#ask();
  }

  /** Puts older prices in front of a row's line. */
  seed(symbol, older) {
    this.#rows.get(symbol)?.samples.prepend(older);
  }

  /** The colours of the lines. */
  set palette(palette) {
    this.#palette = palette;
    this.#isSampleDue = true;
    this.#ask();
  }

  /** Only symbols with this text in them. */
  set filter(text) {
    this.#filter = text.trim().toUpperCase();
    this.#isOrderDue = true;
    this.#paint();
  }

  /** While it is paused nothing moves; the newest values are shown when it goes on. */
  set isPaused(isPaused) {
    this.#isPaused = isPaused;
    this.#ask();
  }

  #ask() {
    if (this.#isFrameAsked || this.#isPaused) return;
    this.#isFrameAsked = true;
    requestAnimationFrame((now) => {
      this.#isFrameAsked = false;
      if (!this.#isPaused) this.#paint(now);
    });
  }

  #paint(now = performance.now()) {
    if (this.#isOrderDue) this.#arrange();
    const sampled = this.#isSampleDue;
    this.#isSampleDue = false;
    for (const row of sampled ? this.#rows.values() : this.#changed) {
      if (row.isVisible && !sampled && now - row.writtenAt < WRITE_MS) continue;
      // One that is not seen is written when it comes into view.
      this.#changed.delete(row);
      if (!row.isVisible) continue;
      row.writtenAt = now;
      this.#write(row, now);
      if (sampled) this.#writeSlow(row);
    }
    if (this.#changed.size > 0) this.#ask();
    if (this.#stamps.length > 0) this.#afterFrame.port2.postMessage(null);
  }

  #write(row, now) {
    if (row.stamp !== 0) this.#stamps.push(row.stamp);
    row.stamp = 0;
    if (row.price === row.shown) return;
    const isUp = row.price > row.shown;
    row.priceText.data = row.price.toFixed(2);
    const change = `${row.change >= 0 ? "+" : "−"}${Math.abs(row.change).toFixed(2)} %`;
    if (row.changeText.data !== change) row.changeText.data = change;
    const direction = row.change >= 0 ? "change up" : "change down";
    if (row.changeCell.className !== direction) row.changeCell.className = direction;
    if (row.shown !== 0 && now - row.flashedAt > FLASH_MS && !this.#reducedMotion.matches) {
      row.flashedAt = now;
      row.glow.className = isUp ? "up" : "down";
      // Opacity alone: the compositor fades it without the main thread.
      row.glow.animate([{ opacity: 1 }, { opacity: 0 }], { duration: 700, easing: "ease-out" });
    }
    row.shown = row.price;
  }

  /** What need not follow every change. */
  #writeSlow(row) {
    const volume = count(row.volume);
    if (row.volumeText.data !== volume) row.volumeText.data = volume;
    if (this.#canvasSize.width === 0) this.#measureCanvas();
    const { width, height } = this.#canvasSize;
    if (row.canvas.width !== width) [row.canvas.width, row.canvas.height] = [width, height];
    drawSparkline(row.canvas, row.samples, this.#palette);
  }

  #sample() {
    for (const row of this.#rows.values()) row.samples.push(row.price);
    this.#isSampleDue = true;
    this.#ask();
  }

  /** An order by values that change changes with them. */
  #follow() {
    if (this.#sort === "symbol") return;
    this.#isOrderDue = true;
    this.#ask();
  }

  #see(entries, handleVisible) {
    for (const { target, isIntersecting } of entries) {
      const row = this.#rows.get(target.dataset.symbol);
      row.isVisible = isIntersecting;
      if (!isIntersecting) continue;
      this.#write(row, performance.now());
      this.#writeSlow(row);
      if (!row.isSeeded) handleVisible(row.symbol);
      row.isSeeded = true;
    }
    if (this.#stamps.length > 0) this.#afterFrame.port2.postMessage(null);
  }

  #measureCanvas() {
    const canvas = this.#body.querySelector("canvas");
    if (canvas === null) return;
    const ratio = Math.min(3, devicePixelRatio);
    this.#canvasSize = { width: Math.round(canvas.clientWidth * ratio), height: Math.round(canvas.clientHeight * ratio) };
  }

  #sortBy(name) {
    this.#isDescending = this.#sort === name ? !this.#isDescending : name !== "symbol";
    this.#sort = name;
    for (const heading of this.#headings) {
      const cell = heading.closest("th");
      if (heading.dataset.sort !== name) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", this.#isDescending ? "descending" : "ascending");
    }
    this.#arrange();
    this.#scroll.scrollTop = 0;
  }

  /** Puts the rows in order; those that are where they belong are not touched. */
  #arrange() {
    this.#isOrderDue = false;
    const compare = comparisons[this.#sort];
    const sign = this.#isDescending ? -1 : 1;
    const ordered = [...this.#rows.values()].sort((one, other) => sign * compare(one, other) || comparisons.symbol(one, other));
    let next = this.#body.firstElementChild;
    let shown = 0;
    for (const row of ordered) {
      const isHidden = !row.symbol.includes(this.#filter);
      if (row.element.hidden !== isHidden) row.element.hidden = isHidden;
      if (!isHidden) shown += 1;
      if (row.element === next) next = next.nextElementSibling;
      else {
        if (!row.element.isConnected) this.#observer.observe(row.element);
        this.#body.insertBefore(row.element, next);
      }
    }
    this.#empty.hidden = shown > 0;
    if (this.#rows.size > 0) setText(this.#empty, "No symbol has that in its name.");
  }
}

/** Of publications that are closer together, one for each sample. */
export function thinOut(publications) {
  const prices = [];
  let due = 0;
  for (const { time_ms: time, data } of publications) {
    if (time < due) continue;
    due = time + SAMPLE_MS;
    prices.push(data.price);
  }
  return prices.slice(-SAMPLES);
}
