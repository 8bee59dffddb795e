/** Looks whether a transport gets through, beside the one in use. */

import type { OpenTransport, Transport } from "./transport.js";

/** The first transport that gets through, if one does. `hello` makes the command that opens a session. */
export async function firstThrough(
  transports: readonly { readonly begin: OpenTransport }[],
  url: string,
  hello: () => object,
  ms: number,
): Promise<number | undefined> {
  for (const [index, { begin }] of transports.entries()) {
    if (await getsThrough(begin, url, JSON.stringify(hello()), ms)) return index;
  }
  return undefined;
}

/** Whether a session can be opened over a transport within that time. It is closed again. */
function getsThrough(begin: OpenTransport, url: string, hello: string, ms: number): Promise<boolean> {
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
