/** One response that goes on, as Server-Sent Events: proxies that know what these are let them through at once. */

import { httpTransport, readText } from "./http.js";
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
      const lines = new Lines();
      await readText(body, (text) => {
        const events = lines.take(text).filter((line) => line.startsWith("data:"));
        // Without any it was a sign of life, and is told as one.
        session.tell(events.map((line) => line.slice(5)));
      }, session);
      throw new Error("the response ended");
    }),
};
