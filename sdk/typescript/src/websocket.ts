/** The WebSocket transport, over any class with the browser's interface. */

import { SUBPROTOCOL } from "./protocol.js";
import type { OpenTransport, TransportKind } from "./transport.js";

/** What we need of a WebSocket: browsers, Node 22 and later, and npm's `ws` have it. */
export interface WebSocketLike {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(text: string): void;
  close(): void;
  /** What `ws` has: to read no more for a while. Elsewhere what comes is kept. */
  pause?(): void;
  resume?(): void;
}

/** A WebSocket class. */
export type WebSocketClass = new (url: string, subprotocols: string[]) => WebSocketLike;

/** The address of a node's WebSocket: `http` becomes `ws`, and a missing path the usual one. */
export function webSocketUrl(address: string): string {
  const url = new URL(address);
  url.protocol = url.protocol.replace(/^http/, "ws");
  if (url.pathname === "/") url.pathname = "/v1/ws";
  return url.href;
}

/** One WebSocket for everything: the best where it gets through. */
export const websocket: TransportKind = {
  name: "websocket",
  open: (given) => {
    const found = given.WebSocket ?? (globalThis as { WebSocket?: unknown }).WebSocket;
    return typeof found === "function" ? webSocketTransport(found as WebSocketClass) : undefined;
  },
};

/** Opens WebSockets of the given class. */
function webSocketTransport(WebSocket: WebSocketClass): OpenTransport {
  return (address, handlers) => {
    const socket = new WebSocket(webSocketUrl(address), [SUBPROTOCOL]);
    socket.onopen = () => handlers.handleOpen();
    socket.onmessage = (event: { data: unknown }) => handlers.handleText(String(event.data));
    // What went wrong is never told here; `onclose` follows.
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      const why = reason || `cannot reach ${address}: the connection ended without a reason (${code})`;
      handlers.handleClose({ code, text: why });
    };
    return {
      send: (text) => socket.send(text),
      hold: (isHeld) => (isHeld ? socket.pause?.() : socket.resume?.()),
      close: () => {
        socket.onopen = socket.onmessage = socket.onclose = null;
        socket.close();
      },
    };
  };
}
