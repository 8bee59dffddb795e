/**
 * The transports over plain HTTP, and what else only somebody needs whom WebSocket does not serve.
 *
 * @module
 */

/** @internal */
export { firstThrough } from "./check.js";
export { poll } from "./poll.js";
export { sse } from "./sse.js";
