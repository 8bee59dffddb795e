// A cable between a client and a server that can be cut and mended, or carry nothing to the client any more.
import type { Server as NetServer, Socket } from "node:net";
import { connect, createServer } from "node:net";
import { once } from "node:events";

export class Proxy {
  readonly #sockets = new Set<Socket>();
  readonly #server: NetServer;
  #isCut = false;
  #isMuted = false;

  private constructor(targetPort: number) {
    this.#server = createServer((near) => {
      if (this.#isCut) return near.resetAndDestroy();
      const far = connect(targetPort, "127.0.0.1");
      for (const [one, other] of [[near, far], [far, near]] as const) {
        this.#sockets.add(one);
        one.on("error", () => {});
        one.on("close", () => {
          this.#sockets.delete(one);
          other.destroy();
        });
        one.on("data", (bytes: Buffer) => {
          if (one === near || !this.#isMuted) other.write(bytes);
        });
      }
    });
  }

  static async open(targetPort: number): Promise<Proxy> {
    const proxy = new Proxy(targetPort);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    const { port } = this.#server.address() as { port: number };
    return `ws://127.0.0.1:${port}`;
  }

  /** Breaks what is connected, and lets nobody in until it is mended. */
  cut(): void {
    this.#isCut = true;
    this.#sockets.forEach((socket) => socket.resetAndDestroy());
  }

  mend(): void {
    this.#isCut = this.#isMuted = false;
  }

  /** Loses all that the server sends, as a cable does that breaks before the answer. */
  mute(): void {
    this.#isMuted = true;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}
