// Looking for a better transport when the code for that cannot be loaded, as where a deployment took it away.
import { expect, test, vi } from "vitest";

import type { TransportKind } from "../src/index.js";
import { Client } from "../src/index.js";

vi.mock("../src/later.js", () => {
  throw new Error("gone");
});

/** A transport that does not open. */
const blocked: TransportKind = {
  name: "blocked",
  open: () => (_, { handleClose }) => {
    queueMicrotask(() => handleClose({ text: "blocked" }));
    return { send() {}, close() {} };
  },
};

/** One that does. */
const working: TransportKind = {
  name: "working",
  open: () => (_, { handleOpen, handleText }) => {
    queueMicrotask(handleOpen);
    const send = (text: string) => {
      const { id } = JSON.parse(text);
      queueMicrotask(() => handleText(JSON.stringify({ type: "welcome", id, session: "s", node: "n" })));
    };
    return { send, close() {} };
  },
};

test("it is told, and tried again", async () => {
  const client = new Client("ws://somewhere", { transports: [blocked, working], firstMs: 1, lastMs: 1, checkMs: 5 });
  const errors: unknown[] = [];
  const isTwice = new Promise<void>((resolve) => client.on("error", (error) => errors.push(error) === 2 && resolve()));
  await client.ready();
  await isTwice;
  expect(errors[0]).toMatchObject({ code: 4904, message: expect.stringMatching(/^cannot look for a better transport: /) });
  expect(client.state).toBe("connected");
  client.close();
});
