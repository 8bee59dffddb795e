/** One response that goes on, as Server-Sent Events: proxies that know what these are let them through at once. */

import { httpTransport } from "./http.js";
import { Lines } from "./lines.js";
import type { TransportKind } from "./transport.js";

/** Bytes that are sent first, for what holds back the first ones on the way. */
const PADDING = 4_096;

/** Server-Sent Events down, requests up. */
export const sse: TransportKind = {
  name: "sse",
  isDoubtful: true,
  open: () => (address, handlers) =>
    httpTransport(address, handlers, async (session, hello) => {
      const { body } = await session.ask("sse", { padding: PADDING }, hello);
      if (!body) throw new Error("this runtime cannot read a response that goes on");
      const reader = body.getReader();
      const decoder = new TextDecoder();
      const lines = new Lines();
      // A page that was frozen gets neither more of it nor its end (Chromium 156): it is given up.
      const { document } = globalThis as { document?: EventTarget };
      const handleThawed = () => void reader.cancel();
      document?.addEventListener("resume", handleThawed);
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) throw new Error("the response ended");
          const events = lines.take(decoder.decode(value, { stream: true })).filter((line) => line.startsWith("data:"));
          // Without any it was a sign of life, and is told as one.
          session.tell(events.map((line) => line.slice(5)));
        }
      } finally {
        document?.removeEventListener("resume", handleThawed);
      }
    }),
};
