// What stands between a page and the server: cables that break, proxies that do not know WebSocket, and nginx.
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer, request as ask } from "node:http";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

import { freePort, launch, until } from "./server.js";

const listen = async (server) => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server.address().port;
};

/** Carries bytes to a port, and knows nothing of what they mean. */
export class Cable {
  #pairs = new Set();
  #server;
  #isHeld = false;
  /** How many connections it broke. */
  cutCount = 0;

  /** Every connection is reset `cutAfterMs` after it was opened. */
  static async to(targetPort, { cutAfterMs } = {}) {
    const cable = new Cable();
    cable.#server = createServer((near) => cable.#join(near, connect(targetPort, "127.0.0.1"), cutAfterMs));
    cable.port = await listen(cable.#server);
    return cable;
  }

  #join(near, far, cutAfterMs) {
    const pair = { near, far };
    this.#pairs.add(pair);
    for (const [one, other] of [[near, far], [far, near]]) {
      one.setNoDelay(true);
      one.on("error", () => {});
      one.on("data", (bytes) => other.write(bytes));
      one.on("end", () => pair.isLost || other.end());
      one.on("close", () => {
        if (pair.isLost) return;
        this.#pairs.delete(pair);
        other.destroy();
      });
      if (this.#isHeld) one.pause();
    }
    const timer = cutAfterMs && setTimeout(() => this.#cut(pair), cutAfterMs);
    near.on("close", () => clearTimeout(timer));
  }

  #cut(pair) {
    this.cutCount += 1;
    pair.near.resetAndDestroy();
    pair.far.resetAndDestroy();
  }

  /** Carries nothing until `release`; nothing is lost. */
  hold() {
    this.#isHeld = true;
    for (const { near, far } of this.#pairs) [near, far].forEach((socket) => socket.pause());
  }

  release() {
    this.#isHeld = false;
    for (const { near, far, isLost } of this.#pairs) [near, far].forEach((socket) => isLost || socket.resume());
  }

  /** What is connected now is never heard of again, on either side, as when a phone changes its network. */
  lose() {
    for (const pair of this.#pairs) {
      pair.isLost = true;
      for (const socket of [pair.near, pair.far]) {
        socket.removeAllListeners("data");
        socket.pause();
      }
    }
    return this.#pairs.size;
  }

  close() {
    for (const { near, far } of this.#pairs) [near, far].forEach((socket) => socket.destroy());
    this.#server.close();
  }
}

/**
 * A proxy that speaks HTTP. `upgrade`: what becomes of a WebSocket: "refuse" (answered with 400) or "swallow" (opened, and
 * what the page then sends goes nowhere). `without`: a field of requests that it takes away. `lose`: a text; of the lines that
 * come down, the first with this text is left out.
 */
export async function openProxy(targetPort, { upgrade = "refuse", without, lose } = {}) {
  const sockets = new Set();
  let hasLost = false;
  const spoil = (text) => {
    const lines = text.split("\n");
    const index = hasLost ? -1 : lines.findIndex((line) => line.includes(lose));
    if (index < 0) return text;
    hasLost = true;
    return lines.toSpliced(index, 1).join("\n");
  };
  const server = createHttpServer((near, answer) => {
    const { method, url: path } = near;
    const headers = { ...near.headers };
    delete headers[without];
    const far = ask({ port: targetPort, host: "127.0.0.1", method, path, headers, agent: false }, (response) => {
      const fields = { ...response.headers };
      delete fields["transfer-encoding"];
      if (lose !== undefined) delete fields["content-length"];
      answer.writeHead(response.statusCode, fields);
      response.on("data", (bytes) => answer.write(lose === undefined ? bytes : spoil(String(bytes))));
      response.on("end", () => answer.end());
      response.on("error", () => answer.destroy());
    });
    far.on("error", () => answer.destroy());
    answer.on("close", () => far.destroy());
    near.pipe(far);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  });
  let upgradeCount = 0;
  server.on("upgrade", (near, socket) => {
    upgradeCount += 1;
    if (upgrade === "refuse") return socket.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    const far = connect(targetPort, "127.0.0.1").on("error", () => socket.destroy());
    const fields = Object.entries(near.headers).map(([name, value]) => `${name}: ${value}\r\n`);
    far.write(`GET ${near.url} HTTP/1.1\r\n${fields.join("")}\r\n`);
    far.pipe(socket);
    socket.resume();
    far.on("close", () => socket.destroy());
    socket.on("close", () => far.destroy());
  });
  const port = await listen(server);
  return {
    port,
    get upgradeCount() {
      return upgradeCount;
    },
    get hasLost() {
      return hasLost;
    },
    close: () => {
      sockets.forEach((socket) => socket.destroy());
      server.close();
    },
  };
}

const nginxConfig = ({ port, targetPort, settings }) => `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://127.0.0.1:${targetPort};
      ${settings}
    }
  }
}
`;

const nginxProgram = () => [...process.env.PATH.split(delimiter), "/usr/sbin"].map((each) => join(each, "nginx")).find(existsSync);

/** Such as "1.22.1". */
export const nginxVersion = () => spawnSync(nginxProgram(), ["-v"], { encoding: "utf8" }).stderr.match(/[\d.]+/)?.[0];

/** nginx with a bare `proxy_pass`, and `settings` beside it. */
export async function openNginx(targetPort, settings = "") {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "tidegate-nginx-"));
  const file = join(folder, "nginx.conf");
  writeFileSync(file, nginxConfig({ port, targetPort, settings }));
  const child = launch(nginxProgram(), ["-p", folder, "-c", file], ["ignore", "ignore", "inherit"]);
  await until(async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => null))?.ok);
  return { port, close: () => child.kill("SIGKILL") };
}
