// Runs jobs, and tells how far they are: a backend without any dependency. Publishing is one HTTP request.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const { TIDEGATE_URL = "http://localhost:8470", TIDEGATE_TOKEN, PORT = "5174" } = process.env;
const STEPS = ["reading", "resizing", "compressing", "storing", "done"];

async function tell(job, progress) {
  const headers = { "content-type": "application/json", ...(TIDEGATE_TOKEN && { authorization: `Bearer ${TIDEGATE_TOKEN}` }) };
  const body = JSON.stringify({ topic: `jobs/${job}`, data: progress });
  const answer = await fetch(`${TIDEGATE_URL}/v1/publish`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error((await answer.json()).error);
}

async function run(job) {
  for (let percent = 0; percent <= 100; percent += 2) {
    await tell(job, { percent, step: STEPS[Math.floor(percent / 25)] });
    await pause(100);
  }
}

const server = createServer(async (request, response) => {
  if (request.method === "POST" && request.url === "/jobs") {
    const job = randomUUID();
    // What fails is told where the progress is; a page that is told nothing more would wait for ever.
    run(job).catch((error) => tell(job, { percent: 0, step: `failed: ${error.message}` }).catch(console.error));
    return response.writeHead(202, { "content-type": "application/json" }).end(JSON.stringify({ job, tidegate: TIDEGATE_URL }));
  }
  response.writeHead(request.url === "/" ? 200 : 404, { "content-type": "text/html; charset=utf-8" }).end(await readFile(new URL("index.html", import.meta.url)));
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`jobs: http://localhost:${server.address().port}/`));
