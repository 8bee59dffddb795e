/** The transports that a client has by default. Those over plain HTTP are loaded when one of them is tried. */

import type { OpenTransport, Transport, TransportKind } from "./transport.js";
import { websocket } from "./websocket.js";

/** The best first. */
export const byDefault: readonly TransportKind[] = [websocket, later("sse", true), later("poll", false)];

/** A transport whose code comes when it is needed: a page that has a WebSocket never loads it. */
function later(name: "sse" | "poll", isDoubtful: boolean): TransportKind {
  return { name, isDoubtful, open: () => (address, handlers) => openLater(name, address, handlers) };
}

function openLater(name: "sse" | "poll", ...[address, handlers]: Parameters<OpenTransport>): Transport {
  let transport: Transport | undefined;
  let isClosed = false;
  import("./later.js")
    .then((loaded) => isClosed || (transport = loaded[name].open({})!(address, handlers)))
    .catch((error) => isClosed || handlers.handleClose({ text: `cannot load "${name}": ${error}` }));
  return {
    send: (text) => transport!.send(text),
    hold: (isHeld) => transport?.hold!(isHeld),
    close: () => {
      isClosed = true;
      transport?.close();
    },
  };
}
