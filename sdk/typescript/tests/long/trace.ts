// What went over the wire lately, for those who look for a fault: TRACE=topic, or TRACE=# for all.
import { writeFileSync } from "node:fs";

import type { Event } from "../../src/protocol.js";
import { Subscriptions } from "../../src/subscriptions.js";

const LINES = 20_000;

/** Notes what every client is told of a topic, and what it asks; answers what writes it down. */
export function trace(topic: string): (path: string) => void {
  const logs = new Map<Subscriptions, string[]>();
  const note = (of: Subscriptions, what: string, value: unknown) => {
    const log = logs.get(of) ?? [];
    logs.set(of, log);
    log.push(`${performance.now().toFixed(1)} ${what} ${JSON.stringify(value)?.slice(0, 900)}`);
    if (log.length > LINES) log.shift();
  };
  const { handleEvent, pollCommand, handleConnected, handleDisconnect, pollNotice } = Subscriptions.prototype;
  Object.assign(Subscriptions.prototype, {
    handleEvent(this: Subscriptions, event: Event, now: number) {
      const isOf = topic === "#" || !("topic" in event) || event.topic === topic;
      if (isOf && "topics" in event) note(this, "<", { ...event, topics: event.topics.filter((each) => topic === "#" || each.topic === topic) });
      else if (isOf && "sequence" in event) note(this, "<", `${event.type} ${event.topic} ${event.sequence}`);
      else if (isOf) note(this, "<", event);
      handleEvent.call(this, event, now);
    },
    pollCommand(this: Subscriptions) {
      const command = pollCommand.call(this);
      if (command) note(this, ">", command);
      return command;
    },
    pollNotice(this: Subscriptions) {
      const notice = pollNotice.call(this);
      if (notice && ("state" in notice || !("topic" in notice.told) || topic === "#" || notice.told.topic === topic)) {
        if ("told" in notice && notice.told.type === "publication") note(this, "  =", `${notice.of} ${notice.told.topic} ${notice.told.sequence}`);
        else note(this, "  =", notice);
      }
      return notice;
    },
    handleConnected(this: Subscriptions, max: number) {
      note(this, "--- connected", max);
      handleConnected.call(this, max);
    },
    handleDisconnect(this: Subscriptions) {
      note(this, "--- broken", undefined);
      handleDisconnect.call(this);
    },
  });
  return (path) => writeFileSync(path, [...logs.values()].map((log, index) => `==== client ${index}\n${log.join("\n")}\n`).join(""));
}
