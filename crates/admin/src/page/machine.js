/** This machine's readings as charts: what `host/NAME/...` carries. */

import { Chart } from "./charts.js";
import { bytes } from "./text.js";

const perSecond = (number, isTick) => (isTick ? bytes(number).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ") : `${bytes(number)}/s`);
const percent = (number, isTick) => `${number.toFixed(isTick || number >= 10 ? 0 : 1)} %`;

export class Machine {
  #newest = new Map();
  #charts;
  #hasNews = false;

  constructor(parent) {
    const add = (title, lines, format, max) => {
      const figure = parent.appendChild(document.createElement("figure"));
      const heading = figure.appendChild(document.createElement("h3"));
      heading.textContent = title;
      return new Chart(figure, { title, lines, format, height: 96, max });
    };
    this.#charts = {
      cpu: add("Processor", [{ label: "busy", color: "accent", isFilled: true }, { label: "busiest core", color: "second" }], percent, 100),
      memory: add("Memory", [{ label: "in use", color: "accent", isFilled: true }], percent, 100),
      network: add("Network", [{ label: "in", color: "accent", isFilled: true }, { label: "out", color: "second" }], perSecond, 10_000),
      disk: add("Disk", [{ label: "read", color: "accent", isFilled: true }, { label: "written", color: "second" }], perSecond, 10_000),
    };
    setInterval(() => this.#plot(), 500);
  }

  /** Takes a reading. */
  take({ topic, data }) {
    const [, , kind, name] = topic.split("/");
    this.#newest.set(`${kind}/${name ?? ""}`, { kind, name, data });
    this.#hasNews = true;
  }

  #of(kind) {
    return [...this.#newest.values()].filter((each) => each.kind === kind);
  }

  #plot() {
    if (!this.#hasNews) return;
    this.#hasNews = false;
    const now = Date.now() / 1000;
    const sum = (readings, member) => readings.reduce((total, { data }) => total + data[member], 0);
    const cores = this.#of("cpu").map(({ data }) => data.busy_percent);
    if (cores.length > 0) {
      const mean = cores.reduce((total, busy) => total + busy, 0) / cores.length;
      this.#charts.cpu.add(now, [mean, Math.max(...cores)]);
    }
    const [memory] = this.#of("memory");
    if (memory) {
      const { total_bytes: total, available_bytes: available } = memory.data;
      this.#charts.memory.add(now, [(100 * (total - available)) / total]);
    }
    const interfaces = this.#of("network");
    if (interfaces.length > 0) {
      const values = ["received_bytes_per_second", "sent_bytes_per_second"].map((member) => sum(interfaces, member));
      this.#charts.network.add(now, values);
    }
    const disks = this.#of("disk");
    if (disks.length > 0) {
      const values = ["read_bytes_per_second", "written_bytes_per_second"].map((member) => sum(disks, member));
      this.#charts.disk.add(now, values);
    }
  }
}
