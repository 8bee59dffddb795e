// What stands between clients and servers in real networks: proxies that refuse upgrades, hold back or cut.
import type { IncomingMessage, Server as HttpServer, ServerResponse } from "node:http";
import { createServer, request as ask } from "node:http";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { once } from "node:events";

/** What it does to what goes through it. */
export interface Manners {
  /** What becomes of an `Upgrade`: carried (default), answered with 400, or opened and then never answered. */
  upgrade?: "carry" | "refuse" | "swallow";
  /** Bytes of a response's body that pass; what comes then is held back until the response ends. */
  passedBytes?: number;
  /** What comes of a response once a command was carried is held back until the response ends. */
  holdsAnswers?: boolean;
  /** Every connection is cut after this time. */
  cutAfterMs?: number;
}

export class Middlebox {
  readonly manners: Manners;
  /** The paths that were asked for, `upgrade` for upgrades. */
  readonly asked: string[] = [];
  readonly #targetPort: number;
  readonly #server: HttpServer;
  readonly #sockets = new Set<Socket>();

  private constructor(targetPort: number, manners: Manners) {
    [this.#targetPort, this.manners] = [targetPort, manners];
    this.#server = createServer((near, answer) => this.#carry(near, answer));
    this.#server.on("upgrade", (near: IncomingMessage, socket: Socket) => this.#upgrade(near, socket));
    this.#server.on("connection", (socket: Socket) => this.#note(socket));
  }

  static async open(targetPort: number, manners: Manners): Promise<Middlebox> {
    const box = new Middlebox(targetPort, manners);
    box.#server.listen(0, "127.0.0.1");
    await once(box.#server, "listening");
    return box;
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  close(): void {
    this.#sockets.forEach((socket) => socket.destroy());
    this.#server.close();
  }

  #note(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => {});
    const { cutAfterMs } = this.manners;
    const timer = cutAfterMs === undefined ? undefined : setTimeout(() => socket.resetAndDestroy(), cutAfterMs);
    socket.on("close", () => {
      clearTimeout(timer);
      this.#sockets.delete(socket);
    });
  }

  #carry(near: IncomingMessage, answer: ServerResponse): void {
    this.asked.push(near.url!.split("?")[0]!);
    const { method, url: path, headers } = near;
    const far = ask({ port: this.#targetPort, host: "127.0.0.1", method, path, headers, agent: false }, (response) => {
      this.#answer(response, answer).catch(() => answer.destroy());
    });
    far.on("error", () => answer.destroy());
    answer.on("close", () => far.destroy());
    near.pipe(far);
  }

  async #answer(response: IncomingMessage, answer: ServerResponse): Promise<void> {
    answer.statusCode = response.statusCode!;
    for (const name of ["content-type", "access-control-allow-origin", "vary"]) {
      const value = response.headers[name];
      if (value !== undefined) answer.setHeader(name, value);
    }
    const { passedBytes = Infinity, holdsAnswers = false } = this.manners;
    let bytes = 0;
    const held: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      const isAnswer = holdsAnswers && this.asked.includes("/v1/commands");
      if (bytes <= passedBytes && !isAnswer) answer.write(chunk);
      else held.push(chunk);
    }
    answer.end(Buffer.concat(held));
  }

  #upgrade(near: IncomingMessage, socket: Socket): void {
    this.asked.push("upgrade");
    const { upgrade = "carry" } = this.manners;
    if (upgrade === "refuse") return void socket.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    const far = connect(this.#targetPort, "127.0.0.1");
    this.#note(far);
    const fields = Object.entries(near.headers).map(([name, value]) => `${name}: ${String(value)}\r\n`);
    far.write(`GET ${near.url} HTTP/1.1\r\n${fields.join("")}\r\n`);
    far.pipe(socket);
    // The handshake is carried; after that nobody hears anything.
    if (upgrade === "carry") socket.pipe(far);
    far.on("close", () => socket.destroy());
    socket.on("close", () => far.destroy());
  }
}
