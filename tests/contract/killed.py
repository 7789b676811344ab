"""Acknowledgements of a writer that was killed in the middle of its work."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.processes import kill_group

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


def killed_writer(port: str, url: str, acknowledgements: int) -> list[dict[str, Any]]:
    """What a writer had acknowledged when it was killed (SIGKILL): at least `acknowledgements` lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.writer", port, url],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    overdue = threading.Timer(DEADLINE_S, kill_group, [process])
    overdue.start()
    try:
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
        kill_group(process)
        # What was printed is acknowledged, also if it was not read yet; a last line may be torn.
        lines += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    finally:
        overdue.cancel()
        kill_group(process)
        process.stdout.close()
    acknowledged = [json.loads(line) for line in lines if line]
    assert len(acknowledged) >= acknowledgements, "the writer died by itself or was too slow"
    return acknowledged
