"""What the connection layer knows: small protocols, and nothing of the services."""

import json
import subprocess
import sys

MAX_MODULES = 20
LOADED = """
import json, sys
import gateway.network.connection
ours = {"gateway", "ledger", "adapters", "pipeline"}
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in ours]))
"""
SERVICES = ("requests", "fetch", "produce", "groups", "topics", "coordination", "telemetry")


def test_a_connection_loads_few_of_our_modules_and_none_of_the_services() -> None:
    command = [sys.executable, "-c", LOADED]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded = json.loads(printed)
    assert len(loaded) <= MAX_MODULES, sorted(loaded)
    services = tuple(f"gateway.{name}" for name in SERVICES)
    assert not [name for name in loaded if name.startswith(services)]
