"""The client's side of `bench.clients`: one JSON line a phase, a line from the bench before the next."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

Phases = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]


def run_phases(phases: Phases) -> None:
    """Run `phases` with the spec of the command line; what it yields is reported to the bench."""
    for result in phases(json.loads(sys.argv[1])):
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return
