/** Payloads as people read them. What comes out is text, and is only ever put into text nodes: never HTML. */

/** Longer ones are cut: a page is no place for a megabyte. */
const LENGTH_MAX = 300;
/** So many bytes of a payload that is no text are shown. */
const BYTES_MAX = 32;

/** The payload of a publication of the SDK, in one line. */
export function textOf({ kind, data }) {
  if (data === undefined) return "";
  if (kind === "bytes") return bytesText(data);
  return cut(kind === "text" ? data : JSON.stringify(data));
}

function bytesText(bytes) {
  const shown = [...bytes.subarray(0, BYTES_MAX)].map((byte) => byte.toString(16).padStart(2, "0"));
  return `${bytes.length} bytes: ${shown.join(" ")}${bytes.length > BYTES_MAX ? " …" : ""}`;
}

function cut(text) {
  return text.length <= LENGTH_MAX ? text : `${text.slice(0, LENGTH_MAX)}… (${text.length} characters)`;
}
