"""Handles orders one after the other, and goes on where it stopped, whatever happened in between.

The server remembers under the name `worker-1` how far it came. An order is acknowledged once it is done: if the worker
dies in the middle of one, it gets that one again, so what it does has to bear being done twice.
"""

import asyncio
import os
import signal

from tidegate import Client, Gap

URL = os.environ.get("TIDEGATE_URL", "ws://localhost:8470")
NAME = os.environ.get("WORKER", "worker-1")


async def handle(order: dict) -> None:
    await asyncio.sleep(0.05)  # The work.
    print("done:", order["count"], order["item"], flush=True)


async def work() -> None:
    async with Client(URL, name=NAME, token=os.environ.get("TIDEGATE_TOKEN")) as client:
        client.on("state", lambda told: print("tidegate:", told.state, told.error or "", flush=True))
        # Gaps come in their place: an order that the server does not keep any more has to be looked up elsewhere.
        orders = client.subscribe("orders/#", name=NAME, start="all").stream(gaps=True)
        async for told in orders:
            if isinstance(told, Gap):
                print("lost:", told.topic, told.from_, "to", told.to, told.reason, flush=True)
                continue
            await handle(told.data)
            await client.acknowledge(NAME, {told.topic: told.position})


async def main() -> None:
    working = asyncio.create_task(work())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        print("stopped", flush=True)


asyncio.run(main())
