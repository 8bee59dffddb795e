// A backend that takes orders over HTTP and publishes them: whoever is interested hears of them, at once or when they come back.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { TidegateError } from "@tidegate/client";
import { Publisher } from "@tidegate/client/publisher";

const { TIDEGATE_URL = "http://localhost:8470", TIDEGATE_TOKEN, PORT = "3000" } = process.env;
// Without a connection: each publication is a request, tried again for so long where that is safe.
const publisher = new Publisher(TIDEGATE_URL, { token: TIDEGATE_TOKEN, publishMs: 5_000 });

const BODY_MAX = 10_000;

async function bodyOf(request) {
  let text = "";
  for await (const piece of request) {
    text += piece;
    if (text.length > BODY_MAX) throw new SyntaxError("an order is shorter");
  }
  return JSON.parse(text);
}

async function takeOrder(request) {
  const { item, count = 1 } = await bodyOf(request);
  const id = randomUUID();
  const order = { id, item, count, takenAt: new Date().toISOString() };
  // With a key it is kept once, even if it has to be sent again because no answer came.
  const { sequence, level } = await publisher.publish(`orders/${id}`, order, { key: id });
  return { ...order, sequence, kept: level };
}

const server = createServer(async (request, response) => {
  const answer = (status, body) => response.writeHead(status, { "content-type": "application/json" }).end(`${JSON.stringify(body)}\n`);
  if (request.method !== "POST" || request.url !== "/orders") return answer(404, { error: "POST /orders" });
  try {
    answer(201, await takeOrder(request));
  } catch (error) {
    if (error instanceof SyntaxError) return answer(400, { error: `this is no order: ${error.message}` });
    // What is not known to be kept is not promised: the customer tries again.
    answer(error instanceof TidegateError ? 502 : 503, { error: error.message, code: error.code });
  }
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`orders: http://localhost:${server.address().port}/orders`));
