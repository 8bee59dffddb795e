//#region src/browser.ts
/** Calls `nudge` when the network comes back or the page is looked at again, until the answer is called. */
function watchPage(nudge) {
	const scope = globalThis;
	const { document } = scope;
	if (document === void 0 || scope.addEventListener === void 0) return () => {};
	const handleVisibility = () => {
		if (document.visibilityState === "visible") nudge();
	};
	scope.addEventListener("online", nudge);
	document.addEventListener("visibilitychange", handleVisibility);
	return () => {
		scope.removeEventListener?.("online", nudge);
		document.removeEventListener("visibilitychange", handleVisibility);
	};
}

//#endregion
//#region src/errors.ts
/** What went wrong, with a stable number. The server's codes are listed in docs/protocol.md, section 8. */
/** Codes of the SDK itself, the same in every SDK (sdk/conformance/README.md). The server never sends them. */
const LocalCode = {
	Unanswered: 4900,
	Closed: 4901,
	QueueFull: 4902,
	BufferFull: 4903,
	Unreachable: 4904,
	Misused: 4905
};
/** What to do about `code`: see docs/protocol.md, section 8. */
function adviceOf(code) {
	if (code >= 4e3 && code < 4100) return "retry-now";
	if (code >= 4100 && code < 4200) return "retry-later";
	if (code >= 4200 && code < 4300) return "change-first";
	if (code >= 4300 && code < 4400) return "authenticate-first";
	return "local";
}
/** An error of the server, or of the SDK. Match `code`; the text says what failed, why, and what to do. */
var TidegateError = class extends Error {
	/** The stable number. */
	code;
	constructor(code, text, options) {
		super(text, options);
		this.name = "TidegateError";
		this.code = code;
	}
	/** What to do about it. */
	get advice() {
		return adviceOf(this.code);
	}
};

//#endregion
//#region src/backoff.ts
/** Pauses between attempts to connect: they grow, and no two clients have the same. Pure. */
/**
* The pause before the next attempt, in milliseconds.
*
* `attempt` counts those that failed since a connection last stood, from 0. A pause is between half of and
* the whole of `firstMs`, doubled at each attempt, at most `lastMs`. Codes that say "at once", or "with another
* token", have none the first time. What the server asked for is never undercut, and stretched by up to a
* quarter, so that not everybody comes back in the same moment. `random` gives a number in [0, 1).
*/
function pauseMs(attempt, ending, pauses, random) {
	const whole = Math.min(pauses.firstMs * 2 ** Math.min(attempt, 20), pauses.lastMs);
	const advice = ending.code === void 0 ? "retry-later" : adviceOf(ending.code);
	const own = attempt === 0 && (advice === "retry-now" || advice === "authenticate-first") ? 0 : whole * (.5 + random() / 2);
	const asked = (ending.retryAfterMs ?? 0) * (1 + random() / 4);
	return Math.max(own, asked);
}

//#endregion
//#region src/connection.ts
/** The defaults. */
const defaultTimes = {
	firstMs: 250,
	lastMs: 3e4,
	openMs: 1e4,
	silenceMs: 25e3,
	answerMs: 1e4,
	stableMs: 5e3
};
/** The state machine. */
var Connection = class {
	#options;
	#state = "idle";
	#serial = 0;
	#node = 0;
	#attempt = 0;
	#token;
	#needsToken;
	#refused;
	/** The id of the `hello` or `ping` whose answer is awaited. */
	#askedAs;
	/** When the current state has lasted long enough: the attempt, the pause, the silence. */
	#dueAt;
	#connectedAt = 0;
	#actions = [];
	constructor(options) {
		this.#options = options;
		this.#needsToken = options.hasTokens;
		this.#token = options.token;
	}
	/** What it is at. */
	get state() {
		return this.#state;
	}
	/** Starts, or starts again after it stopped. Nothing happens while it is going on. */
	start(now) {
		if (this.#state !== "idle" && this.#state !== "stopped") return;
		this.#attempt = 0;
		this.#needsToken = this.#options.hasTokens;
		this.#begin(now);
	}
	/** Ends it for good, until somebody starts it again. */
	stop() {
		if (this.#state === "idle") return;
		this.#leave();
		this.#enter("idle");
	}
	/** Tries now: ends a pause; asks a server that seems to be there for a sign of life. */
	nudge(now) {
		if (this.#state === "waiting") this.#begin(now);
		else if (this.#state === "connected" && this.#askedAs === void 0) this.#ping(now);
	}
	/** Takes the token that was asked for. */
	handleToken(serial, token, now) {
		if (serial !== this.#serial || this.#state !== "authorizing") return;
		this.#token = token;
		this.#needsToken = false;
		this.#open(now);
	}
	/** Notes that there was no token to be had. An error with a code is obeyed like the server's. */
	handleTokenFailed(serial, error, now) {
		if (serial !== this.#serial || this.#state !== "authorizing") return;
		if (error.advice === "change-first" || error.advice === "authenticate-first") this.#giveUp(error);
		else this.#retry(error, 0, now);
	}
	/** Notes that the transport is open. */
	handleOpen(serial, now) {
		if (serial !== this.#serial || this.#state !== "opening") return;
		this.#askedAs = this.#options.nextId();
		const { name, bytesPerSecond, messagesPerSecond } = this.#options;
		const command = {
			type: "hello",
			id: this.#askedAs,
			batch: true,
			fragments: true,
			token: this.#token,
			client: name,
			bytes_per_second: bytesPerSecond,
			messages_per_second: messagesPerSecond
		};
		this.#enter("greeting");
		this.#dueAt = now + this.#options.times.openMs;
		this.#actions.push({
			do: "send",
			command
		});
	}
	/** Notes that the transport is closed, with the server's code if it gave one. */
	handleClose(serial, reason, now) {
		if (!this.isCurrent(serial)) return;
		const code = reason.code !== void 0 && reason.code >= 4e3 && reason.code < 4400 ? reason.code : LocalCode.Unreachable;
		this.#handleBreak(new TidegateError(code, reason.text), 0, now);
	}
	/** Whether what the transport with this serial tells still matters. */
	isCurrent(serial) {
		return serial === this.#serial && this.#isOnline();
	}
	/** Notes that the server was heard. */
	handleHeard(serial, now) {
		if (serial !== this.#serial || this.#state !== "connected") return;
		const { silenceMs, answerMs } = this.#options.times;
		this.#dueAt = now + (this.#askedAs === void 0 ? silenceMs : answerMs);
	}
	/** Takes an event; answers whether it was for the connection itself. */
	handleEvent(event, now) {
		const isAnswer = event.id !== void 0 && event.id === this.#askedAs;
		if (event.type === "closing") {
			const error = new TidegateError(event.code, event.error);
			this.#handleBreak(error, event.retry_after_ms ?? 0, now);
			return true;
		}
		if (!isAnswer) return false;
		this.#askedAs = void 0;
		if (event.type === "refused") this.#handleBreak(new TidegateError(event.code, event.error), 0, now);
		else if (event.type === "welcome") {
			this.#connectedAt = now;
			this.#refused = void 0;
			this.#enter("connected");
			this.#dueAt = now + this.#options.times.silenceMs;
		} else this.#dueAt = now + this.#options.times.silenceMs;
		return true;
	}
	/** When it has to be woken, if nothing happens before. */
	get wakeAt() {
		return this.#dueAt;
	}
	/** Does what is due. */
	handleWake(now) {
		if (this.#dueAt === void 0 || now < this.#dueAt) return;
		if (this.#state === "waiting") return this.#begin(now);
		if (this.#state === "connected" && this.#askedAs === void 0) return this.#ping(now);
		const text = `cannot reach ${this.#url()}: it did not answer in time; check that it is up, and the network`;
		this.#handleBreak(new TidegateError(LocalCode.Unreachable, text), 0, now);
	}
	/** What to do next. */
	pollAction() {
		return this.#actions.shift();
	}
	#isOnline() {
		return this.#state === "opening" || this.#state === "greeting" || this.#state === "connected";
	}
	#url() {
		return this.#options.urls[this.#node];
	}
	#enter(state, error, retryInMs) {
		this.#state = state;
		this.#dueAt = void 0;
		this.#actions.push({
			do: "tell",
			state,
			error,
			retryInMs
		});
	}
	/** Lets go of what is under way: answers to it come too late. */
	#leave() {
		if (this.#isOnline()) this.#actions.push({ do: "close" });
		this.#serial += 1;
		this.#askedAs = void 0;
	}
	#begin(now) {
		if (!this.#needsToken) return this.#open(now);
		this.#serial += 1;
		this.#enter("authorizing");
		this.#actions.push({
			do: "fetchToken",
			serial: this.#serial,
			refused: this.#refused
		});
	}
	#open(now) {
		this.#serial += 1;
		this.#enter("opening");
		this.#dueAt = now + this.#options.times.openMs;
		this.#actions.push({
			do: "open",
			serial: this.#serial,
			url: this.#url()
		});
	}
	#ping(now) {
		this.#askedAs = this.#options.nextId();
		this.#dueAt = now + this.#options.times.answerMs;
		this.#actions.push({
			do: "send",
			command: {
				type: "ping",
				id: this.#askedAs
			}
		});
	}
	#handleBreak(error, retryAfterMs, now) {
		if (!this.#isOnline()) return;
		const { stableMs } = this.#options.times;
		if (this.#state === "connected" && now - this.#connectedAt >= stableMs) this.#attempt = 0;
		this.#leave();
		if (error.advice === "change-first") return this.#giveUp(error);
		if (error.advice === "authenticate-first") {
			if (!this.#options.hasTokens) return this.#giveUp(error);
			this.#needsToken = true;
			this.#refused = error;
		} else this.#node = (this.#node + 1) % this.#options.urls.length;
		this.#retry(error, retryAfterMs, now);
	}
	#retry(error, retryAfterMs, now) {
		const { times, urls, random } = this.#options;
		const pause = pauseMs(Math.floor(this.#attempt / urls.length), {
			code: error.code,
			retryAfterMs
		}, times, random);
		this.#attempt += 1;
		this.#enter("waiting", error, pause);
		this.#dueAt = now + pause;
	}
	#giveUp(error) {
		this.#serial += 1;
		this.#refused = error;
		this.#enter("stopped", error);
	}
};

//#endregion
//#region src/emitter.ts
/** Calls handlers. What one of `name` throws goes to `report`, and the others are called all the same. */
var Emitter = class {
	#handlers = /* @__PURE__ */ new Map();
	#report;
	constructor(report) {
		this.#report = report;
	}
	/** Adds a handler; the function that it answers takes it away. */
	on(name, handler, options) {
		const signal = options?.signal;
		if (signal?.aborted) return () => {};
		const handlers = this.#handlers.get(name) ?? /* @__PURE__ */ new Set();
		this.#handlers.set(name, handlers);
		const entry = (event) => handler(event);
		handlers.add(entry);
		const off = () => {
			handlers.delete(entry);
			signal?.removeEventListener("abort", off);
		};
		signal?.addEventListener("abort", off);
		return off;
	}
	/** Whether anybody handles `name`. */
	has(name) {
		return (this.#handlers.get(name)?.size ?? 0) > 0;
	}
	/** Calls the handlers of `name`; answers whether there were any. */
	emit(name, event) {
		const handlers = [...this.#handlers.get(name) ?? []];
		for (const handler of handlers) try {
			handler(event);
		} catch (error) {
			this.#report(error, name);
		}
		return handlers.length > 0;
	}
};
/** Throws outside of everything that is under way, so that an error in a handler is seen like any other. */
function throwLater(error) {
	queueMicrotask(() => {
		throw error;
	});
}

//#endregion
//#region src/protocol.ts
/** The WebSocket subprotocol. */
const SUBPROTOCOL = "tidegate.v1.json";
/**
* The events of one message: one, or an array of them (section 5). Throws if it is not JSON. `sources` finds the
* exact text of each one's `data`, where that is needed.
*/
function decodeMessage(text, sources) {
	const decoded = JSON.parse(text);
	const events = Array.isArray(decoded) ? decoded : [decoded];
	if (sources === void 0 || !text.includes("\"data\"")) return events;
	const found = sources(text);
	return events.map((event, index) => found[index] === void 0 ? event : {
		...event,
		source: found[index]
	});
}
/** The value of a payload: JSON as it was parsed, text as a string, bytes as a `Uint8Array`. */
function decodePayload(wire) {
	if (wire.text !== void 0) return {
		kind: "text",
		data: wire.text
	};
	if (wire.base64 !== void 0) return {
		kind: "bytes",
		data: decodeBase64(wire.base64)
	};
	if (wire.bytes !== void 0) return {
		kind: "bytes",
		data: wire.bytes
	};
	return {
		kind: "json",
		data: wire.data
	};
}
/** Bytes in base64. Throws if it is none. */
function decodeBase64(base64) {
	const binary = atob(base64);
	const bytes = new Uint8Array(binary.length);
	for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
	return bytes;
}
/** A value as a payload: bytes as base64, a string as text if `kind` says so, everything else as JSON. */
function encodePayload(data, kind) {
	if (data instanceof Uint8Array && (kind === void 0 || kind === "bytes")) {
		const pieces = [];
		for (let at = 0; at < data.length; at += 32768) pieces.push(String.fromCharCode(...data.subarray(at, at + 32768)));
		return { base64: btoa(pieces.join("")) };
	}
	if (kind === "text" && typeof data === "string") return { text: data };
	if ((kind === void 0 || kind === "json") && JSON.stringify(data) !== void 0) return { data };
	throw new TypeError(`cannot publish a ${typeof data} as ${kind ?? "json"}: give a value of that kind`);
}

//#endregion
//#region src/requests.ts
/**
* Commands that are answered once: publish, history, acknowledge, ping. Pure.
*
* Each waits for a connection, is sent, and then either answered or caught by a break. What a break means depends
* on the command: asking again does no harm to a `history`, and none to a `publish` with an idempotency key as
* long as the server remembers it. Of a publish without a key nobody can tell whether it was kept.
*/
/** All requests of one client. */
var Requests = class {
	#waiting = /* @__PURE__ */ new Map();
	#answered = [];
	#bounds;
	#unsent = [];
	#isConnected = false;
	constructor(bounds) {
		this.#bounds = bounds;
	}
	/** Adds a request. Its outcome comes out of `pollOutcome`. */
	add(asked) {
		if (!this.#isConnected && this.#unsent.length >= this.#bounds.queueMax) {
			const text = `cannot take another command: ${this.#unsent.length} wait for a connection already, and queueMax is ${this.#bounds.queueMax}; wait for the connection, or raise it`;
			this.#answered.push({
				id: asked.id,
				error: new TidegateError(LocalCode.QueueFull, text)
			});
			return;
		}
		const request = {
			...asked,
			isSent: false,
			firstSentAt: void 0
		};
		this.#waiting.set(asked.id, request);
		this.#unsent.push(request);
	}
	/** Forgets a request: nobody waits for its answer any more. What was sent already may still be done. */
	remove(id) {
		const request = this.#waiting.get(id);
		this.#waiting.delete(id);
		if (request && !request.isSent) this.#unsent = this.#unsent.filter((unsent) => unsent !== request);
	}
	/** Notes that commands can be sent. */
	handleConnected() {
		this.#isConnected = true;
	}
	/** Notes that the connection is gone, and decides about what it left unanswered. */
	handleDisconnect(now) {
		this.#isConnected = false;
		const again = [];
		for (const request of this.#waiting.values()) {
			if (!request.isSent) continue;
			const failed = this.#failure(request, now);
			if (failed === void 0) {
				request.isSent = false;
				again.push(request);
			} else {
				this.#waiting.delete(request.id);
				this.#answered.push({
					id: request.id,
					error: failed
				});
			}
		}
		this.#unsent = [...again, ...this.#unsent];
	}
	/** Fails everything, because there will be no connection. */
	handleStop(error) {
		for (const [id, { afterBreak, firstSentAt }] of this.#waiting) {
			const isDoubtful = afterBreak !== "ask-again" && firstSentAt !== void 0;
			this.#answered.push({
				id,
				error: isDoubtful ? unanswered(error.message, afterBreak) : error
			});
		}
		this.#waiting.clear();
		this.#unsent = [];
		this.#isConnected = false;
	}
	/** Takes an event; answers whether it was the answer to a request. */
	handleEvent(event) {
		if (event.id === void 0 || !this.#waiting.delete(event.id)) return false;
		const { id } = event;
		const outcome = event.type === "refused" ? {
			id,
			error: new TidegateError(event.code, event.error)
		} : {
			id,
			event
		};
		this.#answered.push(outcome);
		return true;
	}
	/** The next command to send, as text, while there is a connection. */
	pollText(now) {
		const request = this.#isConnected ? this.#unsent.shift() : void 0;
		if (request === void 0) return void 0;
		request.isSent = true;
		request.firstSentAt ??= now;
		return request.text;
	}
	/** The next outcome. */
	pollOutcome() {
		return this.#answered.shift();
	}
	#failure({ afterBreak, firstSentAt }, now) {
		if (afterBreak === "ask-again") return void 0;
		const isRemembered = now - (firstSentAt ?? now) < this.#bounds.resendMs;
		if (afterBreak === "ask-again-while-remembered" && isRemembered) return void 0;
		return unanswered("the connection broke before the answer", afterBreak);
	}
};
function unanswered(why, afterBreak) {
	const text = `cannot tell what became of the publication, which may or may not have been kept: ${why}; ${afterBreak === "fail" ? "publish with an idempotency key (`key`), then it is sent again by itself" : "publish it again with the same key, if the server still remembers that"}`;
	return new TidegateError(LocalCode.Unanswered, text);
}

//#endregion
//#region src/stream.ts
/** A bounded buffer between what arrives and a `for await` loop. */
/** What a `for await` loop reads. One reader at a time. */
var Stream = class {
	#capacity;
	#whenFull;
	#held = [];
	#takers = [];
	#release;
	#end;
	#dropped = 0;
	/** `release` is called once, when nothing more has to be pushed. */
	constructor(options, release) {
		const { capacity = 1e3, whenFull = "fail", signal } = options;
		if (!(capacity >= 1)) throw new RangeError(`cannot hold ${capacity}: a stream's capacity is at least 1`);
		[this.#capacity, this.#whenFull] = [capacity, whenFull];
		const abort = () => {
			this.#held.length = 0;
			this.fail(signal?.reason);
		};
		this.#release = () => {
			signal?.removeEventListener("abort", abort);
			release();
		};
		if (signal?.aborted) abort();
		else signal?.addEventListener("abort", abort);
	}
	/** How many were forgotten because the reader was too slow. */
	get dropped() {
		return this.#dropped;
	}
	/** Gives an item to the reader, or holds it. */
	push(item) {
		if (this.#end) return;
		const taker = this.#takers.shift();
		if (taker) return taker.resolve({
			done: false,
			value: item
		});
		if (this.#held.length >= this.#capacity) {
			if (this.#whenFull === "fail") return this.#overflow();
			this.#held.shift();
			this.#dropped += 1;
		}
		this.#held.push(item);
	}
	/** Ends it: what is held can still be taken. */
	finish() {
		this.#close({});
	}
	/** Ends it with an error, after what is held. */
	fail(error) {
		this.#close({ error });
	}
	/** The next item; waits for it. */
	next() {
		const item = this.#held.shift();
		if (item !== void 0) return Promise.resolve({
			done: false,
			value: item
		});
		if (this.#end === void 0) return new Promise((resolve, reject) => this.#takers.push({
			resolve,
			reject
		}));
		const { error } = this.#end;
		this.#end = {};
		return error === void 0 ? Promise.resolve({
			done: true,
			value: void 0
		}) : Promise.reject(error);
	}
	/** Ends it from the reader's side, as leaving a loop does. */
	return() {
		this.#held.length = 0;
		this.#close({});
		this.#end = {};
		return Promise.resolve({
			done: true,
			value: void 0
		});
	}
	[Symbol.asyncIterator]() {
		return this;
	}
	#overflow() {
		const text = `cannot hold another: ${this.#capacity} wait for their reader already; read faster, raise \`capacity\`, or use \`whenFull: "drop-oldest"\``;
		this.fail(new TidegateError(LocalCode.BufferFull, text));
	}
	#close(end) {
		if (this.#end) return;
		this.#end = end;
		this.#release();
		const [first, ...others] = this.#takers.splice(0);
		if (first === void 0) return;
		if (end.error !== void 0) first.reject(end.error);
		else first.resolve({
			done: true,
			value: void 0
		});
		this.#end = {};
		others.forEach((taker) => taker.resolve({
			done: true,
			value: void 0
		}));
	}
};

//#endregion
//#region src/subscription.ts
/** Something that is read, across connections, until it is unsubscribed. */
var Subscription = class {
	/** What it selects, as it was asked for. */
	selectors;
	#owner;
	#emitter;
	#streams = /* @__PURE__ */ new Set();
	#awaiting = /* @__PURE__ */ new Set();
	#state = "waiting";
	#error;
	/** @internal Use `Client.subscribe`. */
	constructor(selectors, owner) {
		this.selectors = selectors;
		this.#owner = owner;
		this.#emitter = new Emitter(owner.report);
	}
	/** What it is at. */
	get state() {
		return this.#state;
	}
	/** Why the server ended it, if it did. */
	get error() {
		return this.#error;
	}
	/** Where it is in each topic: store it, and give it to a later subscription as `positions`. */
	get positions() {
		return this.#owner.positions();
	}
	/** Adds a handler; the function that it answers takes it away. */
	on(name, handler, options) {
		return this.#emitter.on(name, handler, options);
	}
	/** Resolves when it is live; rejects when it ends before. */
	ready(options = {}) {
		const { signal } = options;
		if (signal?.aborted) return Promise.reject(signal.reason);
		if (this.#state === "live") return Promise.resolve();
		const reason = this.#state === "ended" ? this.#error ?? ended() : this.#owner.stopped();
		if (reason) return Promise.reject(reason);
		return new Promise((resolve, reject) => {
			const abort = () => entry.reject(signal?.reason);
			const settle = () => {
				this.#awaiting.delete(entry);
				signal?.removeEventListener("abort", abort);
			};
			const entry = {
				resolve: () => (settle(), resolve()),
				reject: (error) => (settle(), reject(error))
			};
			this.#awaiting.add(entry);
			signal?.addEventListener("abort", abort);
		});
	}
	stream(options = {}) {
		const stream = new Stream(options, () => this.#streams.delete(entry));
		const entry = {
			stream,
			wantsGaps: options.gaps === true
		};
		const reason = this.#error ?? this.#owner.stopped();
		if (reason) stream.fail(reason);
		else if (this.#state === "ended") stream.finish();
		else this.#streams.add(entry);
		return stream;
	}
	/** A stream with the default buffer. Leaving the loop ends the stream, not the subscription. */
	[Symbol.asyncIterator]() {
		return this.stream();
	}
	/** Ends it, also while there is no connection. Nothing is told any more but its end. */
	unsubscribe() {
		if (this.#state !== "ended") this.#owner.unsubscribe();
	}
	/** @internal Takes what the client has for it. */
	handleNews(news) {
		if ("state" in news) return this.#handleState(news.state, news.error);
		if (this.#state === "ended") return;
		const { told } = news;
		switch (told.type) {
			case "publication":
				this.#push(told);
				this.#emitter.emit(told.isSnapshot ? "snapshot" : "update", told);
				break;
			case "gap":
				this.#push(told);
				this.#emitter.emit("gap", told);
				break;
			case "resumed":
				this.#emitter.emit("resumed", told);
				break;
			case "lag": this.#emitter.emit("lag", { ms: told.ms });
		}
	}
	/** @internal Ends open loops and waits, because the client stopped; answers whether there were any. */
	interrupt(error) {
		const wasAwaited = this.#streams.size + this.#awaiting.size > 0;
		[...this.#streams].forEach(({ stream }) => stream.fail(error));
		[...this.#awaiting].forEach((waiting) => waiting.reject(error));
		return wasAwaited;
	}
	#push(item) {
		for (const { stream, wantsGaps } of [...this.#streams]) if (wantsGaps || item.type === "publication") stream.push(item);
	}
	#handleState(state, error) {
		if (this.#state === "ended") return;
		this.#state = state;
		if (state === "live") [...this.#awaiting].forEach((waiting) => waiting.resolve());
		if (state === "ended") this.#handleEnd(error);
		this.#emitter.emit("state", {
			state,
			...error && { error }
		});
	}
	#handleEnd(error) {
		this.#error = error;
		const wasAwaited = error !== void 0 && this.interrupt(error);
		[...this.#streams].forEach(({ stream }) => stream.finish());
		[...this.#awaiting].forEach((waiting) => waiting.reject(ended()));
		if (error === void 0) return;
		if (!this.#emitter.emit("error", error) && !wasAwaited) this.#owner.report(error);
	}
};
function ended() {
	return new TidegateError(LocalCode.Closed, "cannot wait for the subscription: it has ended; subscribe again");
}

//#endregion
//#region src/deltas.ts
let table;
/** The CRC-32 of IEEE 802.3, as an unsigned number. */
function crc32(bytes) {
	table ??= Uint32Array.from({ length: 256 }, (_, index) => {
		let rest = index;
		for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? rest >>> 1 ^ 3988292384 : rest >>> 1;
		return rest;
	});
	let rest = 4294967295;
	for (let at = 0; at < bytes.length; at += 1) rest = table[(rest ^ bytes[at]) & 255] ^ rest >>> 8;
	return (rest ^ 4294967295) >>> 0;
}

//#endregion
//#region src/patch.ts
/** Makes the next value of `document`, which is changed. Throws if a step cannot be taken. */
function applyPatch(document, patch) {
	const root = { "": document };
	for (const { op, path, from, value } of patch) switch (op) {
		case "add":
			add(root, path, value);
			break;
		case "remove":
			remove(root, path);
			break;
		case "replace":
			remove(root, path);
			add(root, path, value);
			break;
		case "move":
			add(root, path, remove(root, from));
			break;
		case "copy":
			add(root, path, JSON.parse(canonical(read(root, levelsOf(from)))));
			break;
		case "test":
			if (canonical(read(root, levelsOf(path))) !== canonical(value)) throw new Error(`${path} is something else`);
			break;
		default: throw new Error(`a patch has no step ${op}`);
	}
	return read(root, [""]);
}
/** The canonical text of a value: members sorted, no spaces, numbers as JavaScript writes them. */
function canonical(value) {
	if (typeof value !== "object" || value === null) return JSON.stringify(value);
	if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
	return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
}
function levelsOf(path) {
	return path.split("/").map((level) => level.replaceAll("~1", "/").replaceAll("~0", "~"));
}
function read(root, levels) {
	let found = root;
	for (const level of levels) found = found[keyIn(found, level)];
	return found;
}
/** What holds the end of a path, and the end. */
function endOf(root, path) {
	const levels = levelsOf(path);
	const end = levels.pop();
	return [read(root, levels), end];
}
function add(root, path, value) {
	const [container, end] = endOf(root, path);
	if (Array.isArray(container)) {
		const index = end === "-" || end === String(container.length) ? container.length : Number(keyIn(container, end));
		container.splice(index, 0, value);
	} else if (typeof container === "object" && container !== null) Object.defineProperty(container, end, {
		value,
		writable: true,
		enumerable: true,
		configurable: true
	});
	else throw new Error(`there is nothing to hold ${path}`);
}
function remove(root, path) {
	const [container, end] = endOf(root, path);
	const key = keyIn(container, end);
	if (Array.isArray(container)) return container.splice(Number(key), 1)[0];
	const removed = container[key];
	delete container[key];
	return removed;
}
/** `level` as a key of what is there. Throws if it is none. */
function keyIn(container, level) {
	if (!(typeof container === "object" && container !== null && Object.hasOwn(container, level) && (!Array.isArray(container) || /^\d+$/.test(level)))) throw new Error(`there is no ${level}`);
	return level;
}

//#endregion
//#region src/payloads.ts
/** Makes publications whole. */
var Payloads = class {
	#vcdiff;
	/** What waits for an unfinished publication, by topic, in the order of the sequences. The first is unfinished. */
	#waiting = /* @__PURE__ */ new Map();
	/** The newest payload of each topic; `undefined` while no deltas can come. */
	#values;
	constructor(vcdiff) {
		this.#vcdiff = vcdiff;
	}
	/** Whether deltas can come from now on: only then payloads are kept to apply them to. */
	expectDeltas(isExpected) {
		this.#values = isExpected ? this.#values ?? /* @__PURE__ */ new Map() : void 0;
	}
	/** Whether the exact text of JSON payloads is needed. */
	get needsSources() {
		return this.#values !== void 0 && this.#vcdiff !== void 0;
	}
	/** Forgets what came of a topic. */
	forget(topic) {
		this.#waiting.delete(topic);
		this.#values?.delete(topic);
	}
	/** Forgets what came of the topics that nobody reads. */
	forgetUnless(isRead) {
		for (const topic of [...this.#waiting.keys(), ...this.#values?.keys() ?? []]) if (!isRead(topic)) this.forget(topic);
	}
	/** Forgets everything: the connection is gone, and the next one knows nothing of what this one was sent. */
	handleDisconnect() {
		this.#waiting.clear();
		this.#values?.clear();
	}
	/** Takes what came; answers what is whole now, in order. */
	take(event) {
		const waiting = this.#waiting.get(event.topic);
		if (event.type === "fragment") return this.#takePiece(event, waiting ?? []);
		if (!(waiting !== void 0 && placeOf(event) > placeOf(waiting[0]))) return [this.#finish(event)];
		insert(waiting, event);
		return [];
	}
	#takePiece(event, waiting) {
		const { topic, sequence, kind, total, offset, base64 } = event;
		const isIt = (each) => each.type === "unfinished" && each.sequence === sequence;
		let unfinished = waiting.find(isIt);
		if (offset === 0) {
			const fresh = {
				type: "unfinished",
				topic,
				sequence,
				kind,
				total,
				pieces: [],
				bytes: 0
			};
			if (unfinished) waiting[waiting.indexOf(unfinished)] = fresh;
			else insert(waiting, fresh);
			unfinished = fresh;
			this.#waiting.set(topic, waiting);
		}
		if (unfinished === void 0) return [];
		try {
			if (unfinished.bytes !== offset) throw new Error("a piece is missing");
			const piece = decodeBase64(base64);
			unfinished.pieces.push(piece);
			unfinished.bytes += piece.length;
		} catch {
			return [this.#break(topic)];
		}
		return this.#drain(topic, waiting);
	}
	/** Hands out what does not wait any more. */
	#drain(topic, waiting) {
		const whole = [];
		while (waiting.length > 0) {
			const [first] = waiting;
			if (first.type === "unfinished" && first.bytes < first.total) return whole;
			waiting.shift();
			whole.push(this.#finish(first));
		}
		this.#waiting.delete(topic);
		return whole;
	}
	#finish(event) {
		if (event.type === "gap") return event;
		const { topic, sequence } = event;
		try {
			if (event.type === "publication") {
				if (this.#values) this.#keep(topic, sequence, event);
				return event;
			}
			const payload = event.type === "delta" ? this.#apply(event) : payloadOf(event.kind, joined(event.pieces));
			if (this.#values) this.#keep(topic, sequence, payload);
			return {
				type: "publication",
				topic,
				sequence,
				...payload
			};
		} catch {
			return this.#break(topic);
		}
	}
	#break(topic) {
		this.forget(topic);
		return {
			type: "broken",
			topic
		};
	}
	#keep(topic, sequence, { text, base64, bytes, data, source }) {
		const value = text !== void 0 ? {
			kind: "text",
			source: text
		} : base64 !== void 0 ? {
			kind: "bytes",
			source: decodeBase64(base64)
		} : bytes !== void 0 ? {
			kind: "bytes",
			source: bytes.slice()
		} : {
			kind: "json",
			source: source ?? JSON.stringify(data)
		};
		this.#values.set(topic, {
			sequence,
			...value
		});
	}
	/** What a delta makes. Throws if its base is not there, or its check differs. */
	#apply({ topic, base, kind, crc, vcdiff, patch }) {
		const value = this.#values?.get(topic);
		if (value?.sequence !== base || value.kind !== kind) throw new Error("its base is not there");
		if (patch !== void 0) {
			const data = applyPatch(JSON.parse(value.source), patch);
			const source = canonical(data);
			check(new TextEncoder().encode(source), crc);
			return {
				data,
				source
			};
		}
		const { source } = value;
		const bytes = typeof source === "string" ? new TextEncoder().encode(source) : source;
		const made = this.#vcdiff.apply(bytes, decodeBase64(vcdiff));
		check(made, crc);
		return payloadOf(kind, made);
	}
};
/** Where it stands in its topic: a gap where it ends. */
function placeOf(event) {
	return event.type === "gap" ? event.to : event.sequence;
}
/** Puts it after all that are not later. */
function insert(waiting, event) {
	let at = waiting.length;
	while (at > 0 && placeOf(waiting[at - 1]) > placeOf(event)) at -= 1;
	waiting.splice(at, 0, event);
}
function check(made, crc) {
	if (crc32(made) !== crc) throw new Error("what it makes is something else");
}
function joined(pieces) {
	const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
	let at = 0;
	for (const piece of pieces) {
		bytes.set(piece, at);
		at += piece.length;
	}
	return bytes;
}
/** A payload of its bytes. Throws if they are not of that kind. */
function payloadOf(kind, bytes) {
	if (kind === "bytes") return { bytes };
	const text = new TextDecoder("utf-8", {
		fatal: true,
		ignoreBOM: true
	}).decode(bytes);
	return kind === "text" ? { text } : {
		data: JSON.parse(text),
		source: text
	};
}

//#endregion
//#region src/selector.ts
/** Selectors: topics, or patterns over them. docs/protocol.md, section 2. */
/** Whether `selector` is a pattern, not the name of one topic. */
function isPattern(selector) {
	return selector.split("/").some((level) => level === "+" || level === "#");
}
/** Whether `selector` selects `topic`. */
function selects(selector, topic) {
	if (selector === topic) return true;
	const pattern = selector.split("/");
	const levels = topic.split("/");
	if (topic.startsWith("$") && (pattern[0] === "+" || pattern[0] === "#")) return false;
	for (const [index, wanted] of pattern.entries()) {
		if (wanted === "#") return levels.length >= index;
		if (index >= levels.length || wanted !== "+" && wanted !== levels[index]) return false;
	}
	return pattern.length === levels.length;
}

//#endregion
//#region src/readers.ts
/** Who reads which topic: an index over selectors, so that thousands of subscriptions cost a look-up. Pure. */
/** All readers, found by topic. */
var Readers = class {
	#bySelector = /* @__PURE__ */ new Map();
	#patterns = /* @__PURE__ */ new Set();
	/** What was looked up; forgotten when anything changes. */
	#found = /* @__PURE__ */ new Map();
	/** Adds a reader. */
	add(reader) {
		this.#found.clear();
		for (const selector of reader.selectors) {
			if (isPattern(selector)) this.#patterns.add(selector);
			const readers = this.#bySelector.get(selector);
			if (readers) readers.add(reader);
			else this.#bySelector.set(selector, new Set([reader]));
		}
	}
	/** Removes a reader, which must have the selectors that it was added with. */
	remove(reader) {
		this.#found.clear();
		for (const selector of reader.selectors) {
			const readers = this.#bySelector.get(selector);
			readers?.delete(reader);
			if (readers?.size !== 0) continue;
			this.#bySelector.delete(selector);
			this.#patterns.delete(selector);
		}
	}
	/** Whether anybody has exactly this selector. */
	has(selector) {
		return this.#bySelector.has(selector);
	}
	/** Those that have exactly this selector. */
	with(selector) {
		return this.#bySelector.get(selector) ?? [];
	}
	/** Those that read `topic`. */
	of(topic) {
		const known = this.#found.get(topic);
		if (known !== void 0) return known;
		const found = new Set(this.#bySelector.get(topic));
		for (const pattern of this.#patterns) if (selects(pattern, topic)) this.#bySelector.get(pattern).forEach((reader) => found.add(reader));
		const readers = [...found];
		this.#found.set(topic, readers);
		return readers;
	}
};

//#endregion
//#region src/tracker.ts
/** Follows the positions of one subscription's topics, across connections. */
var Tracker = class {
	#places = /* @__PURE__ */ new Map();
	#wantsSnapshots;
	/** `positions` are places from which to resume. */
	constructor(wantsSnapshots, positions = {}) {
		this.#wantsSnapshots = wantsSnapshots;
		for (const [topic, { epoch, sequence }] of Object.entries(positions)) {
			const place = {
				epoch,
				sequence,
				head: 0,
				wantsSnapshot: false,
				quietThrough: 0,
				isResuming: true
			};
			this.#places.set(topic, place);
		}
	}
	/** Where it is in `topic`. */
	position(topic) {
		const place = this.#places.get(topic);
		return place && {
			epoch: place.epoch,
			sequence: place.sequence
		};
	}
	/** Where it is in each topic. */
	get positions() {
		return Object.fromEntries([...this.#places.keys()].map((topic) => [topic, this.position(topic)]));
	}
	/** The topics of which it has a position. */
	topics() {
		return this.#places.keys();
	}
	/** Notes that the connection is gone: every topic has to be resumed. */
	handleDisconnect() {
		this.#wantsSnapshots = false;
		for (const place of this.#places.values()) {
			place.isResuming = true;
			place.wantsSnapshot = false;
		}
	}
	/** Joins a reader that is at `position` in `topic`: what that one has no interest in is no gap here. */
	join(topic, position, start) {
		this.#places.set(topic, {
			epoch: position.epoch,
			sequence: start,
			head: position.sequence,
			wantsSnapshot: this.#wantsSnapshots,
			quietThrough: position.sequence,
			isResuming: false
		});
	}
	/** Takes the place where the server starts to read a topic. */
	handleTopic(wire) {
		const { topic, epoch, head, start, recovered } = wire;
		const place = this.#places.get(topic);
		if (place === void 0) {
			const fresh = {
				wantsSnapshot: this.#wantsSnapshots && start < head,
				quietThrough: 0,
				isResuming: false
			};
			this.#places.set(topic, {
				epoch,
				sequence: start,
				head,
				...fresh
			});
			return [];
		}
		const told = [];
		const isAnew = place.epoch !== epoch || recovered === false && head < place.sequence;
		if (place.isResuming) {
			place.isResuming = false;
			const missed = Math.max(0, head - (isAnew ? 0 : place.sequence));
			told.push({
				type: "resumed",
				topic,
				recovered: !isAnew && recovered !== false,
				missed
			});
		}
		if (isAnew) {
			Object.assign(place, {
				epoch,
				sequence: start,
				head,
				wantsSnapshot: false,
				quietThrough: 0
			});
			told.push({
				type: "gap",
				topic,
				epoch,
				to: start,
				reason: "epoch"
			});
		} else {
			place.head = Math.max(place.head, head);
			place.sequence = Math.max(place.sequence, start);
		}
		return told;
	}
	/** Takes a gap. It moves the position, also after `recovered` was true. */
	handleGap(wire) {
		const { topic, epoch, to, reason } = wire;
		const place = this.#places.get(topic);
		if (place === void 0) return [];
		const isSameLife = place.epoch === epoch;
		if (isSameLife && to <= place.sequence) return [];
		const from = isSameLife ? Math.max(wire.from ?? 0, place.sequence + 1) : void 0;
		Object.assign(place, {
			epoch,
			sequence: to
		});
		if (!isSameLife) Object.assign(place, {
			head: 0,
			wantsSnapshot: false,
			quietThrough: 0
		});
		if (to <= place.quietThrough) return [];
		return [{
			type: "gap",
			topic,
			epoch,
			...from !== void 0 && { from },
			to,
			reason
		}];
	}
	/** Takes a publication. One that was taken before means nothing. */
	handlePublication(wire) {
		const place = this.#places.get(wire.topic);
		if (place === void 0 || wire.sequence <= place.sequence) return [];
		place.sequence = wire.sequence;
		const isSnapshot = place.wantsSnapshot && wire.sequence <= place.head;
		place.wantsSnapshot = false;
		const { topic, sequence } = wire;
		const { kind, data } = decodePayload(wire);
		return [{
			type: "publication",
			topic,
			epoch: place.epoch,
			sequence,
			kind,
			data,
			isSnapshot
		}];
	}
};

//#endregion
//#region src/subscriptions.ts
/** The subscriptions of one client. */
var Subscriptions = class {
	#all = /* @__PURE__ */ new Map();
	#readers = new Readers();
	/** Those whose answer is awaited, by the id of the command. */
	#asked = /* @__PURE__ */ new Map();
	/** Those that the server put off. */
	#postponed = /* @__PURE__ */ new Set();
	/** Those for whose sake deltas may come. */
	#withDeltas = /* @__PURE__ */ new Set();
	#payloads;
	#vcdiff;
	#commands = [];
	#news = [];
	#nextId;
	#pauses;
	#random;
	#isConnected = false;
	#nextIndex = 0;
	constructor(nextId, pauses, random, deltas = []) {
		this.#vcdiff = deltas.find(({ form }) => form === "vcdiff");
		this.#payloads = new Payloads(this.#vcdiff);
		this.#nextId = nextId;
		this.#pauses = pauses;
		this.#random = random;
	}
	/** Adds one. It is asked for at once, or when there is a connection. */
	add(selectors, options) {
		const { from } = options;
		this.#checkDelta(options.delta);
		const index = this.#nextIndex++;
		const subscription = {
			index,
			selectors: [...selectors],
			options,
			tracker: new Tracker(from === void 0 || from === "snapshot", ownPositions(selectors, options)),
			state: "waiting",
			wasLive: false,
			isWithoutDeltas: false,
			refusals: 0,
			dueAt: void 0
		};
		this.#all.set(index, subscription);
		this.#readers.add(subscription);
		if (this.#isConnected) this.#ask(subscription);
		return index;
	}
	/** Ends one. What others still read stays subscribed. */
	remove(index) {
		const ended = this.#all.get(index);
		if (ended === void 0) return;
		const wasAsked = ended.state === "asked" || ended.state === "live";
		this.#end(ended);
		const topics = ended.selectors.filter((selector) => !this.#readers.has(selector));
		if (wasAsked && topics.length > 0) this.#commands.push({
			type: "unsubscribe",
			id: this.#nextId(),
			topics
		});
	}
	/** Ends all of them. */
	removeAll() {
		[...this.#all.values()].forEach((subscription) => this.#end(subscription));
		this.#commands.length = 0;
	}
	/** What a subscription is at. */
	state(index) {
		return this.#all.get(index)?.state ?? "ended";
	}
	/** Asks for everything, each from where it was left. */
	handleConnected() {
		this.#isConnected = true;
		this.#all.forEach((subscription) => this.#ask(subscription));
	}
	/** Notes that the connection is gone: everything has to be asked for again. */
	handleDisconnect() {
		this.#isConnected = false;
		this.#commands.length = 0;
		this.#asked.clear();
		this.#postponed.clear();
		this.#payloads.handleDisconnect();
		for (const subscription of this.#all.values()) {
			if (subscription.wasLive) subscription.tracker.handleDisconnect();
			[subscription.dueAt, subscription.refusals] = [void 0, 0];
			this.#enter(subscription, "waiting");
		}
	}
	/** Takes an event, if it concerns a subscription. */
	handleEvent(event, now) {
		switch (event.type) {
			case "subscribed": return this.#handleSubscribed(event);
			case "topic":
				this.#handleEpoch(event);
				return this.#tell(event.topic, (tracker) => tracker.handleTopic(event));
			case "gap":
				this.#handleEpoch(event);
				return this.#handleArriving(event);
			case "publication":
			case "delta":
			case "fragment": return this.#handleArriving(event);
			case "lag": return this.#handleLag(event.topic, event.ms);
			case "refused": return this.#handleRefused(event, now);
			case "unsubscribed": return this.#handleUnsubscribed(event);
		}
	}
	/** What finds the exact text of JSON payloads, while it is needed. */
	get sources() {
		return this.#payloads.needsSources ? this.#vcdiff?.sources : void 0;
	}
	/** When it has to be woken, if nothing happens before. */
	get wakeAt() {
		let earliest;
		for (const { dueAt } of this.#postponed) if (dueAt !== void 0 && (earliest === void 0 || dueAt < earliest)) earliest = dueAt;
		return earliest;
	}
	/** Asks again for what was put off. */
	handleWake(now) {
		for (const subscription of [...this.#postponed]) if (subscription.dueAt <= now) this.#ask(subscription);
	}
	/** The next command to send. */
	pollCommand() {
		return this.#commands.shift();
	}
	/** What to tell next. */
	pollNews() {
		return this.#news.shift();
	}
	/** Where a subscription is in each of its topics. */
	positions(index) {
		return this.#all.get(index)?.tracker.positions ?? {};
	}
	#enter(subscription, state, error) {
		if (subscription.state === state) return;
		subscription.state = state;
		this.#news.push({
			of: subscription.index,
			state,
			...error && { error }
		});
	}
	#end(subscription, error) {
		this.#all.delete(subscription.index);
		this.#readers.remove(subscription);
		this.#forgetUnread(subscription.selectors);
		this.#postponed.delete(subscription);
		this.#readDeltas(subscription, false);
		this.#enter(subscription, "ended", error);
	}
	/** Lets go of what came, or was under way, for selectors that had a reader. */
	#forgetUnread(selectors) {
		if (selectors.some(isPattern)) this.#payloads.forgetUnless((topic) => this.#readers.of(topic).length > 0);
		else selectors.forEach((topic) => this.#readers.of(topic).length > 0 || this.#payloads.forget(topic));
	}
	/** Notes whether deltas may come for its sake. */
	#readDeltas(subscription, isReading) {
		if (isReading) this.#withDeltas.add(subscription);
		else this.#withDeltas.delete(subscription);
		this.#payloads.expectDeltas(this.#withDeltas.size > 0);
	}
	#checkDelta(delta) {
		if (delta !== "vcdiff" || this.#vcdiff) return;
		throw new TidegateError(LocalCode.Misused, "cannot read deltas as \"vcdiff\": nobody decodes them; pass `vcdiff` of \"@tidegate/client/vcdiff\" as `deltas`");
	}
	#ask(subscription) {
		const { selectors, options, wasLive } = subscription;
		const positions = this.#placesFor(subscription);
		const id = this.#nextId();
		const delta = subscription.isWithoutDeltas ? void 0 : options.delta;
		this.#readDeltas(subscription, delta !== void 0);
		this.#asked.set(id, subscription);
		this.#postponed.delete(subscription);
		this.#commands.push({
			type: "subscribe",
			id,
			topics: selectors,
			from: wasLive ? "all" : isPosition(options.from) ? void 0 : options.from,
			positions: Object.keys(positions).length > 0 ? positions : void 0,
			conflation: options.conflation,
			interval_ms: options.intervalMs,
			priority: options.priority,
			filter: options.filter,
			delta,
			name: options.name
		});
		this.#enter(subscription, "asked");
	}
	/** The earliest place that anybody needs of each topic that `subscription` reads. */
	#placesFor(subscription) {
		const { selectors, tracker } = subscription;
		const topics = new Set([...tracker.topics(), ...selectors.filter((selector) => !isPattern(selector))]);
		const patterns = selectors.filter(isPattern);
		if (patterns.length > 0) {
			for (const other of this.#all.values()) for (const topic of other.tracker.topics()) if (patterns.some((pattern) => selects(pattern, topic))) topics.add(topic);
		}
		const places = [];
		for (const topic of topics) {
			const place = this.#placeFor(subscription, topic);
			if (place !== void 0) places.push([topic, place]);
		}
		return Object.fromEntries(places);
	}
	#placeFor(subscription, topic) {
		let place = subscription.tracker.position(topic);
		for (const other of this.#readers.of(topic)) {
			const theirs = other.wasLive && other !== subscription ? other.tracker.position(topic) : void 0;
			if (theirs === void 0) continue;
			place ??= this.#join(subscription, topic, theirs);
			if (place?.epoch === theirs.epoch && theirs.sequence < place.sequence) place = theirs;
		}
		return place;
	}
	/** Where a new subscription starts in a topic of which another has read up to `theirs`. */
	#join({ options, wasLive, tracker }, topic, theirs) {
		const from = options.from ?? "snapshot";
		if (wasLive || from === "all" || isPosition(from) || options.name !== void 0) return void 0;
		const back = from === "now" ? 0 : from === "snapshot" ? 1 : from.last;
		const sequence = Math.max(0, theirs.sequence - back);
		tracker.join(topic, theirs, sequence);
		return {
			epoch: theirs.epoch,
			sequence
		};
	}
	#handleSubscribed(event) {
		const subscription = this.#answered(event.id);
		if (subscription === void 0) return;
		[subscription.wasLive, subscription.refusals] = [true, 0];
		this.#enter(subscription, "live");
		for (const topic of event.topics) {
			this.#handleEpoch(topic);
			this.#push(subscription, subscription.tracker.handleTopic(topic));
		}
	}
	#handleRefused(event, now) {
		const subscription = this.#answered(event.id);
		if (subscription === void 0) return;
		const error = new TidegateError(event.code, event.error);
		if (error.advice !== "retry-now" && error.advice !== "retry-later") return this.#end(subscription, error);
		subscription.dueAt = now + pauseMs(subscription.refusals, error, this.#pauses, this.#random);
		subscription.refusals += 1;
		this.#postponed.add(subscription);
		this.#enter(subscription, "waiting", error);
	}
	/** The subscription that was asked for with this id, unless it ended since. */
	#answered(id) {
		const subscription = id === void 0 ? void 0 : this.#asked.get(id);
		if (id !== void 0) this.#asked.delete(id);
		return subscription?.state === "asked" ? subscription : void 0;
	}
	/** Without an id it is the server that ended it, because the reader was too far behind. */
	#handleUnsubscribed(event) {
		if (event.id !== void 0) return;
		const error = new TidegateError(4102, `cannot keep the subscription to ${event.selectors.join(", ")}: this client lagged too far behind, and its conflation, or the topic's, is "unsubscribe"; read faster, or subscribe with the conflation "lagging"`);
		const ended = new Set(event.selectors.flatMap((selector) => [...this.#readers.with(selector)]));
		for (const subscription of ended) {
			const left = subscription.selectors.filter((selector) => !event.selectors.includes(selector));
			if (left.length === 0) this.#end(subscription, error);
			else {
				this.#readers.remove(subscription);
				subscription.selectors = left;
				this.#readers.add(subscription);
				this.#forgetUnread(event.selectors);
				this.#news.push({
					of: subscription.index,
					state: subscription.state,
					error
				});
			}
		}
	}
	#handleLag(topic, ms) {
		const lagging = topic === void 0 ? [...this.#all.values()] : this.#readers.of(topic);
		for (const { index, state } of lagging) if (state === "live") this.#news.push({
			of: index,
			told: {
				type: "lag",
				ms
			}
		});
	}
	/** A numbering that began anew: nothing that came of the old one is a base of what comes, or holds it up. */
	#handleEpoch({ topic, epoch }) {
		if (this.#readers.of(topic).some(({ tracker }) => (tracker.position(topic)?.epoch ?? epoch) !== epoch)) this.#payloads.forget(topic);
	}
	/** Takes what may have to wait, or be put together, before it is told. */
	#handleArriving(event) {
		if (this.#readers.of(event.topic).length === 0) return this.#payloads.forget(event.topic);
		for (const whole of this.#payloads.take(event)) if (whole.type === "broken") this.#repair(whole.topic);
		else if (whole.type === "gap") this.#tell(whole.topic, (tracker) => tracker.handleGap(whole));
		else this.#tell(whole.topic, (tracker) => tracker.handlePublication(whole));
	}
	/** Asks again for what could not be put together, without deltas: the values come whole. */
	#repair(topic) {
		for (const reader of this.#readers.of(topic)) {
			if (reader.state !== "live") continue;
			reader.isWithoutDeltas = true;
			this.#ask(reader);
		}
	}
	#tell(topic, take) {
		for (const reader of this.#readers.of(topic)) if (reader.state === "live") this.#push(reader, take(reader.tracker));
	}
	#push(subscription, told) {
		for (const one of told) this.#news.push({
			of: subscription.index,
			told: one
		});
	}
};
function isPosition(from) {
	return typeof from === "object" && "epoch" in from;
}
function ownPositions(selectors, { from, positions }) {
	if (!isPosition(from)) return positions ?? {};
	const [topic] = selectors;
	if (topic === void 0 || selectors.length > 1 || isPattern(topic)) throw new TypeError("cannot start several topics from one position: give `positions`, by topic");
	return {
		...positions,
		[topic]: from
	};
}

//#endregion
//#region src/websocket.ts
/** The WebSocket transport, over any class with the browser's interface. */
/** The class to use: the one given, or else the runtime's own. */
function webSocketClass(given) {
	const found = given ?? globalThis.WebSocket;
	if (typeof found === "function") return found;
	throw new TidegateError(LocalCode.Misused, "cannot connect: this runtime has no WebSocket; install `ws` and pass it as the option `WebSocket`");
}
/** The address of a node's WebSocket: `http` becomes `ws`, and a missing path the usual one. */
function webSocketUrl(address) {
	const url = new URL(address);
	url.protocol = url.protocol.replace(/^http/, "ws");
	if (url.pathname === "/") url.pathname = "/v1/ws";
	return url.href;
}
/** Opens WebSockets of the given class. */
function webSocketTransport(WebSocket) {
	return (address, handlers) => {
		const socket = new WebSocket(webSocketUrl(address), [SUBPROTOCOL]);
		socket.onopen = () => handlers.handleOpen();
		socket.onmessage = (event) => handlers.handleText(String(event.data));
		socket.onerror = () => {};
		socket.onclose = ({ code, reason }) => {
			const why = reason || `cannot reach ${address}: the connection ended without a reason (${code})`;
			handlers.handleClose({
				code,
				text: why
			});
		};
		return {
			send: (text) => socket.send(text),
			close: () => {
				socket.onopen = socket.onmessage = socket.onclose = null;
				socket.close();
			}
		};
	};
}

//#endregion
//#region src/client.ts
/** The client: puts the state machines, a transport, a clock and the user's handlers together. */
/** A client of one server, or of the nodes of one. It connects at its first use, and again whenever it has to. */
var Client = class {
	#open;
	#provider;
	#connection;
	#subscriptions;
	#requests;
	#emitter = new Emitter((error, name) => (name === "error" ? throwLater : this.#report)(error));
	#handles = /* @__PURE__ */ new Map();
	#waiting = /* @__PURE__ */ new Map();
	#awaitingReady = /* @__PURE__ */ new Set();
	#lags = [];
	#transport;
	/** The connection's name for the transport. */
	#serial = 0;
	#tokenWanted;
	#stopped;
	#unwatch;
	#timer;
	#wasConnected = false;
	#isDriving = false;
	#lastId = 0;
	/**
	* A client of the server at `url`, such as `ws://localhost:8470`; of several nodes, the preferred one first.
	*
	* Throws if an address is none, or if there is no WebSocket to be had.
	*/
	constructor(url, options = {}) {
		const urls = typeof url === "string" ? [url] : [...url];
		if (urls.length === 0) throw new TypeError("cannot connect: there is no address; give at least one");
		urls.forEach((each) => new URL(each));
		const { token, name, bytesPerSecond, messagesPerSecond, deltas, transport, queueMax = 1e3, resendMs = 24e4 } = options;
		const times = { ...defaultTimes };
		for (const key of Object.keys(times)) times[key] = options[key] ?? times[key];
		const nextId = () => this.#lastId += 1;
		const random = Math.random;
		this.#open = transport ?? webSocketTransport(webSocketClass(options.WebSocket));
		this.#provider = typeof token === "function" ? token : void 0;
		const known = typeof token === "string" ? token : void 0;
		this.#connection = new Connection({
			urls,
			hasTokens: this.#provider !== void 0,
			token: known,
			name,
			bytesPerSecond,
			messagesPerSecond,
			times,
			random,
			nextId
		});
		this.#subscriptions = new Subscriptions(nextId, times, random, deltas);
		this.#requests = new Requests({
			queueMax,
			resendMs
		});
	}
	/** What the connection is at. */
	get state() {
		return this.#connection.state;
	}
	/** Adds a handler; the function that it answers takes it away. */
	on(name, handler, options) {
		return this.#emitter.on(name, handler, options);
	}
	/** Connects. Only needed after `close`, or after the client stopped: the first use of a new client connects too. */
	connect() {
		this.#stopped = void 0;
		this.#unwatch ??= watchPage(() => this.nudge());
		this.#connection.start(now());
		this.#drive();
	}
	/** Resolves when there is a connection; rejects when the client gave up or was closed. */
	async ready({ signal } = {}) {
		signal?.throwIfAborted();
		this.#begin();
		if (this.#connection.state === "connected") return;
		let waiting;
		const answer = new Promise((resolve, reject) => waiting = {
			resolve,
			reject
		});
		this.#awaitingReady.add(waiting);
		const abort = () => {
			this.#awaitingReady.delete(waiting);
			waiting.reject(signal?.reason);
		};
		signal?.addEventListener("abort", abort);
		await answer.finally(() => signal?.removeEventListener("abort", abort));
	}
	/** Tries to connect now, instead of after a pause; or finds out whether the connection still works. */
	nudge() {
		this.#connection.nudge(now());
		this.#drive();
	}
	/** Ends everything: subscriptions, commands that wait, the connection. */
	close() {
		const error = new TidegateError(LocalCode.Closed, "cannot go on: the client was closed; call `connect` first");
		this.#stopped = error;
		this.#connection.stop();
		this.#subscriptions.removeAll();
		this.#failWaiting(error);
		this.#unwatch?.();
		this.#unwatch = void 0;
		this.#drive();
	}
	/**
	* Reads what a selector selects, or several of them, now and after every break.
	*
	* Handlers that are added at once miss nothing. Subscriptions that overlap share what the server sends; the
	* options of the newest go for all of them, and one with a `name` should not overlap with others. When `signal` is
	* aborted, the subscription ends.
	*/
	subscribe(selectors, options = {}) {
		const { signal, ...read } = options;
		const list = typeof selectors === "string" ? [selectors] : [...new Set(selectors)];
		signal?.throwIfAborted();
		if (this.#connection.state !== "stopped") this.#begin();
		const index = this.#subscriptions.add(list, read);
		const unsubscribe = () => {
			this.#subscriptions.remove(index);
			this.#end(index);
			this.#drive();
		};
		const handle = new Subscription(list, {
			positions: () => this.#subscriptions.positions(index),
			stopped: () => this.#connection.state === "stopped" ? this.#stopped : void 0,
			unsubscribe,
			report: this.#report
		});
		this.#handles.set(index, handle);
		signal?.addEventListener("abort", unsubscribe);
		handle.on("state", ({ state }) => {
			if (state === "ended") signal?.removeEventListener("abort", unsubscribe);
		});
		queueMicrotask(() => this.#drive());
		return handle;
	}
	/** Publishes, and tells where it was kept. While there is no connection it waits for one. */
	async publish(topic, data, { key, expect, kind, signal } = {}) {
		const command = {
			type: "publish",
			topic,
			key,
			expect,
			...encodePayload(data, kind)
		};
		const afterBreak = key === void 0 ? "fail" : "ask-again-while-remembered";
		const event = await this.#ask(command, afterBreak, signal);
		return {
			topic: event.topic,
			epoch: event.epoch,
			sequence: event.sequence,
			level: event.level
		};
	}
	/** A page of what is kept of one topic. */
	async history(topic, { signal, ...page } = {}) {
		const command = {
			type: "history",
			topic,
			...page
		};
		const event = await this.#ask(command, "ask-again", signal);
		const publications = event.publications.map(({ sequence, time_ms, ...payload }) => {
			const { kind, data } = decodePayload(payload);
			return {
				sequence,
				timeMs: time_ms,
				kind,
				data
			};
		});
		return {
			topic: event.topic,
			epoch: event.epoch,
			head: event.head,
			start: event.start,
			publications
		};
	}
	/** Tells the server how far the durable subscriber `name` came; resolves once that is on disk. */
	async acknowledge(name, positions, { signal } = {}) {
		await this.#ask({
			type: "acknowledge",
			name,
			positions
		}, "ask-again", signal);
	}
	/** Asks the server for a sign of life; answers how long it took, in milliseconds. */
	async ping({ signal } = {}) {
		const askedAt = now();
		await this.#ask({ type: "ping" }, "ask-again", signal);
		return now() - askedAt;
	}
	/** Starts at the first use; after an end only `connect` does. */
	#begin() {
		if (this.#stopped) throw this.#stopped;
		if (this.#connection.state === "idle") this.connect();
	}
	async #ask(command, afterBreak, signal) {
		signal?.throwIfAborted();
		this.#begin();
		const id = this.#lastId += 1;
		const text = JSON.stringify({
			id,
			...command
		});
		this.#requests.add({
			id,
			text,
			afterBreak
		});
		const answer = new Promise((resolve, reject) => this.#waiting.set(id, {
			resolve,
			reject
		}));
		const abort = () => {
			this.#requests.remove(id);
			this.#waiting.get(id)?.reject(signal?.reason);
			this.#waiting.delete(id);
		};
		signal?.addEventListener("abort", abort);
		this.#drive();
		try {
			return await answer;
		} finally {
			signal?.removeEventListener("abort", abort);
		}
	}
	/** Does all that there is to do. Handlers may call anything: what they cause is done here too, afterwards. */
	#drive() {
		if (this.#isDriving) return;
		this.#isDriving = true;
		try {
			while (this.#step());
		} finally {
			this.#isDriving = false;
		}
		this.#setTimer();
	}
	#step() {
		const action = this.#connection.pollAction();
		if (action) return this.#perform(action), true;
		if (this.#connection.state === "connected") {
			const command = this.#subscriptions.pollCommand();
			const text = command ? JSON.stringify(command) : this.#requests.pollText(now());
			if (text) return this.#send(text), true;
		}
		const news = this.#subscriptions.pollNews();
		if (news) {
			this.#handles.get(news.of)?.handleNews(news);
			if ("state" in news && news.state === "ended") this.#handles.delete(news.of);
			return true;
		}
		const lag = this.#lags.shift();
		if (lag) return this.#emitter.emit("lag", lag), true;
		const outcome = this.#requests.pollOutcome();
		if (outcome) this.#settle(outcome);
		return outcome !== void 0;
	}
	#perform(action) {
		switch (action.do) {
			case "fetchToken":
				this.#fetchToken(action.serial, action.refused);
				break;
			case "open":
				this.#openTransport(action.serial, action.url);
				break;
			case "send":
				this.#send(JSON.stringify(action.command));
				break;
			case "close":
				this.#transport?.close();
				this.#transport = void 0;
				break;
			case "tell": this.#handleState(action);
		}
	}
	#send(text) {
		try {
			this.#transport?.send(text);
		} catch (error) {
			this.#connection.handleClose(this.#serial, { text: `cannot send: ${String(error)}` }, now());
		}
	}
	#openTransport(serial, url) {
		const connection = this.#connection;
		this.#serial = serial;
		const take = (input) => {
			input();
			this.#drive();
		};
		try {
			this.#transport = this.#open(url, {
				handleOpen: () => take(() => connection.handleOpen(serial, now())),
				handleText: (text) => take(() => this.#handleText(serial, text)),
				handleClose: (reason) => take(() => connection.handleClose(serial, reason, now()))
			});
		} catch (error) {
			connection.handleClose(serial, { text: `cannot open ${url}: ${String(error)}` }, now());
		}
	}
	#handleText(serial, text) {
		const connection = this.#connection;
		if (!connection.isCurrent(serial)) return;
		connection.handleHeard(serial, now());
		try {
			for (const event of decodeMessage(text, this.#subscriptions.sources)) {
				if (!connection.isCurrent(serial)) return;
				this.#handleEvent(event);
			}
		} catch (error) {
			const why = `cannot read what the server sent: ${String(error)}; check that the address is a Tidegate server's`;
			connection.handleClose(serial, { text: why }, now());
		}
	}
	#handleEvent(event) {
		if (this.#connection.handleEvent(event, now()) || this.#requests.handleEvent(event)) return;
		this.#subscriptions.handleEvent(event, now());
		if (event.type === "lag") this.#lags.push({ ms: event.ms });
	}
	async #fetchToken(serial, refused) {
		this.#tokenWanted?.abort();
		const { signal } = this.#tokenWanted = new AbortController();
		try {
			const token = await this.#provider?.({
				refused,
				signal
			});
			this.#connection.handleToken(serial, token, now());
		} catch (cause) {
			const text = `cannot get a token: ${String(cause)}; check what the \`token\` option calls`;
			const error = cause instanceof TidegateError ? cause : new TidegateError(LocalCode.Unreachable, text, { cause });
			this.#connection.handleTokenFailed(serial, error, now());
		}
		this.#drive();
	}
	#handleState({ state, error, retryInMs }) {
		if (state === "connected") {
			this.#subscriptions.handleConnected();
			this.#requests.handleConnected();
			this.#awaitingReady.forEach((waiting) => waiting.resolve(void 0));
			this.#awaitingReady.clear();
		} else if (this.#wasConnected) {
			this.#subscriptions.handleDisconnect();
			this.#requests.handleDisconnect(now());
		}
		this.#wasConnected = state === "connected";
		if (state === "idle" || state === "stopped") this.#tokenWanted?.abort();
		const wasAwaited = state === "stopped" && this.#giveUp(error);
		this.#emitter.emit("state", {
			state,
			...error && { error },
			...retryInMs !== void 0 && { retryInMs }
		});
		if (state === "stopped" && !wasAwaited) this.#report(error);
	}
	/** Ends all waiting, because there will be no connection; answers whether anybody waited. */
	#giveUp(error) {
		if (this.#connection.state === "stopped") this.#stopped = error;
		const wasWaitedFor = this.#failWaiting(error);
		const wasRead = [...this.#handles.values()].map((handle) => handle.interrupt(error));
		return wasWaitedFor || wasRead.includes(true);
	}
	#failWaiting(error) {
		const waiting = [...this.#awaitingReady];
		this.#awaitingReady.clear();
		waiting.forEach((each) => each.reject(error));
		this.#requests.handleStop(error);
		return waiting.length + this.#waiting.size > 0;
	}
	#settle(outcome) {
		const waiting = this.#waiting.get(outcome.id);
		this.#waiting.delete(outcome.id);
		if (outcome.error) waiting?.reject(outcome.error);
		else waiting?.resolve(outcome.event);
	}
	#end(index) {
		this.#handles.get(index)?.handleNews({
			of: index,
			state: "ended"
		});
		this.#handles.delete(index);
	}
	/** Tells what nobody else takes care of. Without an `error` handler it is thrown, so that it is seen. */
	#report = (error) => {
		if (this.#emitter.has("error")) this.#emitter.emit("error", error);
		else throwLater(error);
	};
	#setTimer() {
		const times = [this.#connection.wakeAt, this.#subscriptions.wakeAt].filter((at) => at !== void 0);
		const at = times.length > 0 ? Math.min(...times) : void 0;
		if (at !== void 0 && this.#timer !== void 0 && this.#timer.at <= at) return;
		clearTimeout(this.#timer?.id);
		const wake = () => {
			this.#timer = void 0;
			this.#connection.handleWake(now());
			this.#subscriptions.handleWake(now());
			this.#drive();
		};
		this.#timer = at === void 0 ? void 0 : {
			at,
			id: setTimeout(wake, Math.max(0, at - now()))
		};
	}
};
/** A clock that never goes back, in milliseconds. */
function now() {
	return performance.now();
}

//#endregion
export { Client, LocalCode, TidegateError, adviceOf };
