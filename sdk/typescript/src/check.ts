/** Looks whether a transport gets through, beside the one in use. */

import type { OpenTransport, Transport } from "./transport.js";

/** Whether a session can be opened over a transport within that time. It is closed again. */
export function getsThrough(begin: OpenTransport, url: string, hello: string, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isThrough: boolean) => {
      clearTimeout(timer);
      transport?.close();
      resolve(isThrough);
    };
    const timer = setTimeout(end, ms, false);
    let transport: Transport | undefined;
    try {
      transport = begin(url, {
        handleOpen: () => transport!.send(hello),
        handleText: (text) => text.includes('"type":"welcome"') && end(true),
        handleClose: () => end(false),
      });
    } catch {
      end(false);
    }
  });
}
