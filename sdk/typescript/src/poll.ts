/** Long-polling: each response ends, so that it gets through what holds back responses until they do. */

import { TidegateError } from "./errors.js";
import { type HttpSession, httpTransport, pause, retryAfterMs, textOf } from "./http.js";
import type { TransportKind } from "./transport.js";

/** Pauses before a batch is asked for again whose answer was lost. The server keeps it; after these the session is given up. */
const AGAIN_MS = [0, 250, 500];

/** A request for each batch down, requests up. */
export const poll: TransportKind = {
  name: "poll",
  open: () => (address, handlers) => httpTransport(address, handlers, readBatches, true),
};

/** Asks for batch after batch. */
async function readBatches(session: HttpSession, hello: string): Promise<never> {
  let batch = 0;
  const take = async (response: Response) => {
    const records = (await textOf(response)).split("\n").filter(Boolean);
    const last = JSON.parse(records.pop() ?? "null") as { type?: string; batch: number } | null;
    if (last?.type !== "polled") throw new Error("the answer was not whole");
    batch = last.batch;
    session.tell(records);
  };
  await take(await session.ask("poll", {}, hello));
  for (let lost = 0; ; ) {
    try {
      await session.isWanted;
      await take(await session.ask("poll", { session: session.key, batch }));
      lost = 0;
    } catch (error) {
      if (error instanceof TidegateError || !session.isOpen || lost >= AGAIN_MS.length) throw error;
      await pause(Math.max(AGAIN_MS[lost++]!, retryAfterMs(error)));
    }
  }
}
