/**
 * The transports over plain HTTP, to be given to a client from the start.
 *
 * @module
 */

export { poll } from "./poll.js";
export { sse } from "./sse.js";
