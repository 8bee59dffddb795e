/** The last prices of a symbol as a line on a small canvas. Sampled by time, so its cost does not depend on the rate. */

/** How many samples a line has, and how far apart they are. */
export const SAMPLES = 50;
export const SAMPLE_MS = 400;

/** The samples of one line, oldest first. */
export class Samples {
  #values = new Float64Array(SAMPLES);
  #next = 0;
  length = 0;

  push(value) {
    this.#values[this.#next] = value;
    this.#next = (this.#next + 1) % SAMPLES;
    this.length = Math.min(this.length + 1, SAMPLES);
  }

  at(index) {
    return this.#values[(this.#next + SAMPLES - this.length + index) % SAMPLES];
  }

  /** Puts what came before in front of what is there. */
  prepend(older) {
    const own = Array.from({ length: this.length }, (_, index) => this.at(index));
    const all = [...older, ...own].slice(-SAMPLES);
    this.length = this.#next = 0;
    all.forEach((value) => this.push(value));
  }
}

/** Draws `samples`. The newest is at the right edge, in the colour of the way it went. */
export function drawSparkline(canvas, samples, { up, down }) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  const { length } = samples;
  if (length < 2) return;
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < length; index += 1) {
    const value = samples.at(index);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const pad = height * 0.12;
  const step = width / (SAMPLES - 1);
  const scale = high > low ? (height - 2 * pad) / (high - low) : 0;
  const left = width - (length - 1) * step;
  const y = (value) => (scale === 0 ? height / 2 : height - pad - (value - low) * scale);
  const color = samples.at(length - 1) >= samples.at(0) ? up : down;
  context.beginPath();
  context.moveTo(left, y(samples.at(0)));
  for (let index = 1; index < length; index += 1) context.lineTo(left + index * step, y(samples.at(index)));
  context.lineWidth = Math.max(1, height / 20);
  context.lineJoin = "round";
  context.strokeStyle = color;
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(left, height);
  context.globalAlpha = 0.1;
  context.fillStyle = color;
  context.fill();
  context.globalAlpha = 1;
}
