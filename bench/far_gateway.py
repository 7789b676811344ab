"""A gateway over far stores, as a process: `python -m bench.far_gateway SPEC`, the fields of `Far` as JSON.

It prints one JSON line with its port, and one with what was counted for each line that it reads; it ends
with its input.
"""

import asyncio
import json
import os
import sys
from typing import Any

import uvloop

from bench.far_stores import Far, FarStores
from gateway.assembly import running_gateway
from gateway.cli.process import relax_collector, tune_allocator, tune_collector
from gateway.config import load_settings
from gateway.network.sockets import Sockets
from gateway.settings import Log
from gateway.telemetry.logs import set_up_logs
from gateway.world import World

SETTINGS = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:0",
    "admin.listen": "",
    "storage.metadata": "s3://bench/far",
    "storage.data": "s3://bench/far",
    "storage.allow_unsafe_acks": "true",
}


def _say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def serve(far: Far) -> None:
    stores = FarStores(far)
    world = World(stores.opener(), Sockets())
    settings = {**SETTINGS, "storage.inline_bytes": str(far.inline_bytes)}
    async with running_gateway(load_settings(settings, {}), world) as running:
        tune_collector()
        _say({"port": running.bound[0].port})
        while await asyncio.to_thread(sys.stdin.readline):
            counted = {"wal_bytes": stores.bucket.wal_bytes}
            _say({**counted, **stores.bucket.requests, "entries": running.shard.state.applied})


if __name__ == "__main__":
    set_up_logs(Log(level="warning"))
    tune_allocator(os.environ)
    relax_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Far(**json.loads(sys.argv[1]))))
