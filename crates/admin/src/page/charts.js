/** Lines over time, drawn by uPlot. A chart that is not in view only keeps its numbers. */

import { byId, setText } from "./text.js";

let loading;

/** uPlot comes beside the page: it is not needed for the first price. */
function load() {
  loading ??= new Promise((resolve, reject) => {
    if (globalThis.uPlot) return resolve(globalThis.uPlot);
    const script = byId("uplot");
    script.addEventListener("load", () => resolve(globalThis.uPlot));
    script.addEventListener("error", reject);
  });
  return loading;
}

const palette = {};
const charts = new Set();

/** Reads the colours from the style sheet again, and draws everything with them. */
export function readPalette() {
  const probe = document.body.appendChild(document.createElement("i"));
  for (const name of ["up", "down", "accent", "second", "soft", "line"]) {
    probe.style.color = `var(--${name})`;
    palette[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  charts.forEach((chart) => chart.redraw());
  return palette;
}

/** A chart in a `figure`. */
export class Chart {
  #figure;
  #values;
  #times = [];
  #lines;
  #seconds;
  #format;
  #plot;
  #isVisible = false;
  #readouts;
  #title;

  /** `lines`: `{ label, color, isFilled }`; `format` makes text of a number; `max` is the least that the scale reaches. */
  constructor(figure, { title, lines, format, seconds = 60, height = 140, max = 0 }) {
    [this.#figure, this.#lines, this.#format, this.#seconds, this.#title] = [figure, lines, format, seconds, title];
    this.#values = lines.map(() => []);
    const caption = figure.appendChild(document.createElement("figcaption"));
    this.#readouts = lines.map(({ label, color }) => {
      const entry = caption.appendChild(document.createElement("span"));
      entry.className = `key ${color}`;
      entry.append(`${label} `);
      return entry.appendChild(document.createElement("b"));
    });
    const holder = figure.appendChild(document.createElement("div"));
    holder.className = "plot";
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", `${title}, the last ${seconds} seconds`);
    holder.style.height = `${height}px`;
    charts.add(this);
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.#isVisible = isIntersecting;
      if (isIntersecting) void this.#open(holder, height, max);
    }).observe(holder);
  }

  /** Adds a point: a value, or null, for each line. */
  add(time, values) {
    this.#times.push(time);
    values.forEach((value, index) => this.#values[index].push(value ?? null));
    while (this.#times[0] < time - this.#seconds) {
      this.#times.shift();
      this.#values.forEach((line) => line.shift());
    }
    values.forEach((value, index) => setText(this.#readouts[index], value == null ? "–" : this.#format(value)));
    this.redraw();
  }

  redraw() {
    if (this.#plot && this.#isVisible) this.#plot.setData([this.#times, ...this.#values]);
  }

  async #open(holder, height, max) {
    if (this.#plot !== undefined) return this.redraw();
    this.#plot = null;
    const UPlot = await load();
    const axis = { stroke: () => palette.soft, font: "11px system-ui, sans-serif", ticks: { show: false } };
    const parts = holder.clientWidth < 260 ? [0.5, 1] : [0.25, 0.5, 0.75, 1];
    const splits = (_, __, low, high) => parts.map((part) => low + part * (high - low));
    const agoes = (_, ticks) => ticks.map((tick) => (tick === ticks.at(-1) ? "now" : `−${Math.round(ticks.at(-1) - tick)} s`));
    const options = {
      width: holder.clientWidth,
      height,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 14, 0, 0],
      scales: {
        x: { range: (_, __, high) => [high - this.#seconds, high] },
        y: { range: (_, __, high) => [0, Math.max(max, (high || 0) * 1.15)] },
      },
      axes: [
        { ...axis, size: 24, gap: 6, grid: { show: false }, splits, values: agoes },
        {
          ...axis,
          size: 48,
          space: 34,
          grid: { stroke: () => palette.line, width: 1 },
          values: (_, ticks) => ticks.map((tick) => this.#format(tick, true)),
        },
      ],
      series: [
        {},
        ...this.#lines.map(({ color, isFilled }) => ({
          stroke: () => palette[color],
          fill: isFilled ? () => faded(palette[color]) : undefined,
          width: 1.5,
          points: { show: false },
          spanGaps: false,
        })),
      ],
    };
    this.#plot = new UPlot(options, [this.#times, ...this.#values], holder);
    new ResizeObserver(() => this.#plot.setSize({ width: holder.clientWidth, height })).observe(holder);
  }
}

const faded = (color) => color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)");
