/** What went wrong, with a stable number. The server's codes are listed in docs/protocol.md#codes. */

/** Codes of the SDK itself, the same in every SDK (sdk/conformance/README.md). The server never sends them. */
export const LocalCode = {
  /** The connection broke before the answer: a publication may or may not have been kept. */
  Unanswered: 4900,
  /** The client was closed, or the subscription ended. */
  Closed: 4901,
  /** As many commands wait for a connection as may. */
  QueueFull: 4902,
  /** A stream's buffer is full: its reader is too slow. */
  BufferFull: 4903,
  /** The connection could not be opened, or broke, without a code. */
  Unreachable: 4904,
  /** What was asked for can never work here. */
  Misused: 4905,
  /** There was no connection in time: it was never sent, and is not carried out. */
  NotSent: 4906,
  /** The numbering of a topic began anew while its history was read. */
  Renumbered: 4907,
} as const;

/** What to do about a code; it follows from the code's range. */
export type Advice = "retry-now" | "retry-later" | "change-first" | "authenticate-first" | "local";

/** What to do about `code`: see docs/protocol.md#codes. */
export function adviceOf(code: number): Advice {
  if (code >= 4000 && code < 4100) return "retry-now";
  if (code >= 4100 && code < 4200) return "retry-later";
  if (code >= 4200 && code < 4300) return "change-first";
  if (code >= 4300 && code < 4400) return "authenticate-first";
  return "local";
}

/** An error of the server, or of the SDK. Match `code`; the text says what failed, why, and what to do. */
export class TidegateError extends Error {
  /** The stable number. */
  readonly code: number;

  constructor(code: number, text: string, options?: ErrorOptions) {
    super(text, options);
    this.name = "TidegateError";
    this.code = code;
  }

  /** What to do about it. */
  get advice(): Advice {
    return adviceOf(this.code);
  }
}
