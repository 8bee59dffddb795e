/** Numbers as people read them, and text nodes that are only touched when they change. */

const grouped = new Intl.NumberFormat("en");

/** 12,345 */
export const count = (number) => grouped.format(Math.round(number));

/** 1 topic, 12 topics */
export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A rate or size with as many digits as help: 0.42, 4.2, 42. */
export const short = (number) => (number >= 100 ? count(number) : number >= 10 ? number.toFixed(1) : number.toFixed(2));

/** 1.2 GB */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(number) : short(number)} ${units[unit]}`;
}

/** What is saved of `plain`, in percent. */
export const saved = (received, plain) => (plain > 0 ? `${Math.max(0, Math.round(100 - (100 * received) / plain))} %` : "–");

/** Sets the text of an element, if it is another one. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** How a transport is called. */
export const transportNames = { websocket: "WebSocket", sse: "SSE", stream: "stream", poll: "polling" };

/** Says what went wrong in the element with this id, or nothing any more. */
export function tellProblem(id, text) {
  byId(id).hidden = text === undefined;
  setText(byId(id), text ?? "");
}

let silentUntil = 0;

/** Tells people who listen to the page; rarely, so that it does not talk all the time. */
export function announce(text, isAnswer = false) {
  if (!isAnswer && performance.now() < silentUntil) return;
  silentUntil = performance.now() + 10_000;
  byId("announce").textContent = text;
}
