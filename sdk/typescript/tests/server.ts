// Starts the real server on a free port; kills it, and starts it again on the same one.
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";

const built = ["ci", "release"].map((profile) => new URL(`../../../target/${profile}/tidegate`, import.meta.url).pathname);
const program = process.env.TIDEGATE ?? built.find(existsSync) ?? "tidegate";

const scripted = new URL("../../conformance/scripted.py", import.meta.url).pathname;

// What a test leaves running when it dies, or is stopped, would run for ever.
const running = new Set<ChildProcess>();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));
process.once("SIGTERM", () => process.exit(143));

export class Server {
  readonly #directory = mkdtempSync(join(tmpdir(), "tidegate-"));
  /** What starts it, up to where it is to listen. */
  readonly #command: readonly string[];
  #child: ChildProcess | undefined;
  #address = "127.0.0.1:0";

  private constructor(command: (file: string) => readonly string[]) {
    this.#command = command(join(this.#directory, "tidegate.toml"));
  }

  /** Starts a server with this configuration; `{store}` in it is a directory of its own. */
  static async start(config = ""): Promise<Server> {
    const server = new Server((file) => [program, "serve", "--config", file]);
    const text = config.replaceAll("{store}", join(server.#directory, "store"));
    writeFileSync(join(server.#directory, "tidegate.toml"), `[engine]\nshards = 2\n${text}`);
    await server.start();
    return server;
  }

  /** Starts the server of the conformance kit that plays the script of a scenario. */
  static async play(scenario: object): Promise<Server> {
    const server = new Server((file) => ["python3", scripted, file]);
    writeFileSync(join(server.#directory, "tidegate.toml"), JSON.stringify(scenario));
    await server.start();
    return server;
  }

  get url(): string {
    return `ws://${this.#address}`;
  }

  get port(): number {
    return Number(this.#address.split(":")[1]);
  }

  /** Starts it, the second time where it was before; resolves when it listens. */
  async start(): Promise<void> {
    const [command, ...options] = this.#command;
    const child = spawn(command!, [...options, "--listen", this.#address], { stdio: ["ignore", "ignore", "pipe"] });
    this.#child = child;
    running.add(child);
    let log = "";
    await new Promise<void>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
      child.stderr!.on("data", (bytes: Buffer) => {
        log += String(bytes);
        const listening = /listening address=(\S+)/.exec(log);
        if (!listening) return;
        this.#address = listening[1]!;
        resolve();
      });
    });
  }

  /** Ends it without a word: SIGKILL. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Ends it in order: SIGTERM. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
  }

  /** Ends it and removes its files. */
  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Publishes over HTTP, as somebody else would. */
  async publish(body: object, token?: string): Promise<{ status: number; body: Record<string, unknown> }> {
    return this.publishText(JSON.stringify(body), token);
  }

  /** The same, of a body that is not as JavaScript would write it. */
  async publishText(body: string, token?: string): Promise<{ status: number; body: Record<string, unknown> }> {
    const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const url = `http://${this.#address}/v1/publish`;
    const answer = await fetch(url, { method: "POST", body, headers });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  }

  async #end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
    running.delete(child);
  }
}
