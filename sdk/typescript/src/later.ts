/** What is loaded when it is needed: a page that has a WebSocket never asks for it. */

export { firstThrough } from "./check.js";
export { poll } from "./poll.js";
export { sse } from "./sse.js";
export { whyNot } from "./why.js";
