// What numbers are worth something with: which program, on which machine, and how far the rounds differ.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";

import { program } from "../support/server.js";

const folder = new URL(".", import.meta.url).pathname;
const load = () => loadavg().map((each) => each.toFixed(1)).join(", ");

function commit() {
  const git = (...words) => execFileSync("git", words, { cwd: folder, encoding: "utf8" }).trim();
  try {
    return git("rev-parse", "--short=7", "HEAD") + (git("status", "--porcelain", "--untracked-files=no") && ", changed");
  } catch {
    return "unknown";
  }
}

/** Says what the numbers that follow were made with, in Markdown. `others`: further lines. */
export function settingOf({ browser, rounds, others = [] }) {
  const [{ model }, { length: count }] = [cpus()[0], cpus()];
  const hash = createHash("sha256").update(readFileSync(program)).digest("hex");
  const lines = [
    `commit of these tests: ${commit()}`,
    `program: ${program}, ${execFileSync(program, ["--version"], { encoding: "utf8" }).trim()}, SHA-256 ${hash.slice(0, 12)}…`,
    `machine: ${model}, ${count} cores, ${Math.round(totalmem() / 1e9)} GB, Linux ${release()}`,
    `browser: Chromium ${browser.version()}, headless; Node ${process.versions.node}`,
    ...others,
    rounds > 1 ? `rounds: ${rounds}; cells: median (least to most)` : "one round",
  ];
  return lines.map((line) => `- ${line}\n`).join("");
}

/** Says how late it is, and how busy the machine. */
export const momentOf = (what) => `${what}: ${new Date().toISOString()}, load ${load()}`;

/** The median of some numbers, and how far they go. */
export function spread(all) {
  const sorted = all.toSorted((one, other) => one - other);
  const [lower, upper] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.floor(sorted.length / 2)]];
  return `${said((lower + upper) / 2)} (${said(sorted[0])} to ${said(sorted.at(-1))})`;
}

const said = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });
