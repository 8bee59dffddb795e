// Starts the real program on a free port and stops it by its process id.
import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const program = process.env.TIDEGATE ?? new URL("../../target/ci/tidegate", import.meta.url).pathname;

export const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

// What a test leaves running when it dies would run for ever.
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

// Starts a program that ends with this one.
export function launch(command, options, stdio, more = {}) {
  const child = spawn(command, options, { stdio, ...more });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

// `{folder}` in the configuration is a directory of its own. It listens on any free port, which it says, and later on the same again.
export async function startServer({ verb = "serve", config = "" } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const file = join(folder, "tidegate.toml");
  writeFileSync(file, config.replaceAll("{folder}", folder));
  let child;
  let address = "127.0.0.1:0";
  const start = () =>
    new Promise((resolve, reject) => {
      child = launch(program, [verb, "--config", file, "--listen", address], ["ignore", "ignore", "pipe"]);
      let [log, isListening] = ["", false];
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
      child.stderr.on("data", (bytes) => {
        process.stderr.write(bytes);
        if (isListening) return;
        log += bytes;
        const listening = /listening address=(\S+)/.exec(log);
        if (!listening) return;
        [isListening, address] = [true, listening[1]];
        resolve();
      });
    });
  const end = (signal) =>
    new Promise((resolve) => {
      child.once("exit", (code) => resolve(code));
      child.kill(signal);
    });
  await start();
  return {
    http: `http://${address}`,
    port: Number(address.split(":")[1]),
    ws: `ws://${address}/v1/ws`,
    pid: child.pid,
    stop: () => end("SIGTERM"),
    // Without a word; `start` starts it again at the same place.
    kill: () => end("SIGKILL"),
    start,
  };
}

// Asks again and again until the answer is true; fails after `patience` milliseconds.
export async function until(isTrue, patience = 60_000) {
  const end = Date.now() + patience;
  while (Date.now() < end) {
    const found = await isTrue();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not true within ${patience} ms: ${isTrue}`);
}

export const publish = async (server, body) => {
  const answer = await fetch(`${server.http}/v1/publish`, { method: "POST", body: JSON.stringify(body) });
  return { status: answer.status, body: await answer.json() };
};
