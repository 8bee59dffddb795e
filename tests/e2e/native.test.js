// The native dialect, spoken by npm `ws`.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import WebSocket from "ws";

import { program, publish, startServer, until } from "../support/server.js";

// A command that does not end is ended, or the run would last for ever.
const runs = promisify(execFile);
const run = (file, options) => runs(file, options, { timeout: 60_000 });
let server;
before(async () => {
  server = await startServer({ config: "[engine]\nshards = 2\n" });
});
after(async () => {
  assert.equal(await server.stop(), 0, "it ends in order on SIGTERM");
});

function connect(protocols = []) {
  const socket = new WebSocket(server.ws, protocols);
  const heard = [];
  socket.on("message", (data, isBinary) => {
    const record = isBinary ? data : JSON.parse(data);
    if (Array.isArray(record)) heard.push(...record);
    else heard.push(record);
  });
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once("open", () => resolve({ socket, heard, say: (command) => socket.send(JSON.stringify(command)) }));
  });
}

// A metric summed over all shards.
async function gauge(name) {
  const text = await (await fetch(`${server.http}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.split(" ")[1]), 0);
}

for (const protocols of [[], ["tidegate.v1.json"], ["chat", "tidegate.v1.json"]]) {
  test(`snapshot, then publications (subprotocols offered: ${protocols.join(", ") || "none"})`, async () => {
    const topic = `node/${protocols.length}/${protocols[0] ?? "none"}`;
    await publish(server, { topic, data: { x: 1 } });
    const { socket, heard, say } = await connect(protocols);
    assert.equal(socket.protocol, protocols.length ? "tidegate.v1.json" : "");
    say({ id: 1, type: "subscribe", topic });
    await until(() => heard.length === 2);
    assert.equal(heard[0].type, "subscribed");
    assert.deepEqual([heard[1].type, heard[1].sequence, heard[1].data], ["publication", 1, { x: 1 }]);
    for (let number = 2; number <= 50; number += 1) await publish(server, { topic, data: number });
    await until(() => heard.length === 51);
    assert.deepEqual(heard.slice(2).map((record) => record.sequence), Array.from({ length: 49 }, (_, i) => i + 2));
    socket.close();
  });
}

test("a slow reader gets everything or an announced gap", async (t) => {
  const { socket, heard, say } = await connect();
  // What a test that failed leaves open would be counted by the next one.
  t.after(() => socket.terminate());
  say({ id: 1, type: "subscribe", topic: "slow/reader" });
  await until(() => heard.length === 1);
  socket.pause();
  const text = "x".repeat(20_000);
  for (let number = 0; number < 400; number += 1) await publish(server, { topic: "slow/reader", text });
  socket.resume();
  await until(() => heard.at(-1).sequence === 400);
  let last = 0;
  // Between them it may be told that it lags.
  for (const record of heard.slice(1).filter(({ type }) => type !== "lag")) {
    if (record.type === "gap") last = record.to;
    else assert.equal(record.sequence, last + 1);
    last = record.sequence ?? last;
  }
  assert.equal(last, 400);
});

test("many connections that come and go leave nothing behind", async (t) => {
  const sessions = () => gauge("tidegate_sessions");
  await until(async () => (await sessions()) === 0); // those of the tests before, which are still closing
  const peers = await Promise.all(Array.from({ length: 100 }, () => connect()));
  t.after(() => peers.forEach(({ socket }) => socket.terminate()));
  peers.forEach(({ say }, index) => say({ type: "subscribe", topics: [`come/${index}`, "go/#"] }));
  await until(async () => (await sessions()) === 100);
  peers.forEach(({ socket }) => socket.terminate());
  await until(async () => (await sessions()) === 0);
});

test("the command line publishes, subscribes and gets", async () => {
  const remote = ["--server", server.ws];
  await run(program, ["pub", ...remote, "cli/a", '{"n":1}']);
  assert.equal((await run(program, ["get", ...remote, "cli/a"])).stdout, '{"n":1}\n');
  const reader = run(program, ["sub", ...remote, "--json", "cli/#", "--count", "4"]);
  await until(async () => (await gauge("tidegate_subscriptions")) === 1);
  const writer = spawn(program, ["pub", ...remote, "cli/a", "-"], { stdio: ["pipe", "ignore", "inherit"] });
  writer.stdin.end("one\ntwo\n3\n");
  const lines = (await reader).stdout.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.slice(-3).map((line) => line.text ?? line.data), ["one", "two", 3]);
});

test("the command line says what is wrong, and with which exit code", async () => {
  const fails = (args, code, part) =>
    assert.rejects(run(program, args), (error) => error.code === code && error.stderr.includes(part));
  await fails(["pub", "a//b", "x", "--server", server.ws], 2, "the level at byte 2 is empty");
  await fails(["get", "nothing/here", "--server", server.ws], 1, "nothing is kept there");
  await fails(["get", "a", "--server", "ws://127.0.0.1:1"], 3, "cannot connect to ws://127.0.0.1:1");
  await fails(["dance"], 2, "unrecognized subcommand");
  await fails(["config", "check", "/nonexistent.toml"], 5, "cannot read the file");
  await fails(["serve", "--listen", new URL(server.http).host, "--config", "/nonexistent"], 5, "check the path");
});
