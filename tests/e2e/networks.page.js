// Runs in the page of networks.test.js: reads what its address says, and notes all that it is told.
const { via, url, selector, options, forgets } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const reader = { told: [], transports: [], states: [], resumedCount: 0, openCount: 0, errors: [], firstMs: undefined, silenceMs: 0, thawedMs: 0 };
globalThis.reader = reader;

let heardAt, thawedAt;
// Until it is told something after it was frozen: how long it was frozen is up to who does that, and slow on a busy machine.
document.addEventListener("resume", () => (thawedAt ??= performance.now()));
function note(told) {
  const now = performance.now();
  reader.thawedMs = Math.max(reader.thawedMs, Math.round(now - (thawedAt ?? now)));
  thawedAt = undefined;
  reader.told.push(told);
  reader.firstMs ??= Math.round(now);
  reader.silenceMs = Math.max(reader.silenceMs, Math.round(now - (heardAt ?? now)));
  heardAt = now;
}

async function readWithClient() {
  const { Client } = await import("/tidegate.js");
  const client = new Client(url, options);
  client.on("transport", ({ transport }) => reader.transports.push(transport));
  client.on("state", ({ state, error }) => reader.states.push(error ? `${state}: ${error.message}` : state));
  client.on("error", (error) => reader.errors.push(String(error)));
  Object.defineProperty(reader, "transport", { get: () => client.transport });
  const read = (from) => {
    const subscription = client.subscribe(selector, { from });
    for (const name of ["snapshot", "update", "gap"]) subscription.on(name, note);
    subscription.on("resumed", () => (reader.resumedCount += 1));
    return subscription;
  };
  let subscription = read("all");
  // An application that comes back without saying where it was: the check has to see that.
  if (forgets) client.on("state", ({ state }) => {
    if (state !== "waiting") return;
    subscription.unsubscribe();
    subscription = read("now");
  });
}

function readWithEventSource() {
  const source = new EventSource(`${url.replace(/^ws/, "http")}/v1/sse?topic=${encodeURIComponent(selector)}&from=all`);
  source.onopen = () => {
    reader.openCount += 1;
    reader.transport = "EventSource";
  };
  let epoch;
  source.addEventListener("subscribed", ({ data }) => ({ epoch } = JSON.parse(data).topics[0]));
  source.onmessage = ({ data }) => note({ ...JSON.parse(data), epoch });
  source.addEventListener("gap", ({ data }) => note(JSON.parse(data)));
}

if (via === "EventSource") readWithEventSource();
else await readWithClient();
