"""The Go clients sarama, kafka-go and franz-go: go/main.go, built once for all three.

`python -m tests.e2e.client_go` builds beforehand. Modules come from where Go's own settings say (GOPROXY).
"""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from tests.support.client import Headers, Record
from tests.support.client_program import ClientProgram, ProgramClient
from tests.support.go_tools import go_version, why_no_go
from tests.support.made_once import made_once

SOURCES = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 600.0


def built() -> Path:
    """The program, built again when its source, a module's version or Go has changed.

    Errors: RuntimeError with what Go said.
    """
    digest = hashlib.sha256(go_version().encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return made_once(f"e2e-go-{digest.hexdigest()[:16]}", build)


def build(program: Path) -> None:
    command = ["go", "build", "-buildvcs=false", "-o", str(program), "."]
    done = subprocess.run(
        command,
        cwd=SOURCES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        words = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"the Go clients could not be built:\n{words}")


def started_go_clients(directory: Path) -> ClientProgram:
    return ClientProgram([str(built())], directory)


class GoAdminClient(ProgramClient):
    """sarama or franz-go, each with an admin client."""

    def administer(self, topic: str) -> dict[str, str]:
        """What each call of go/admin.go gave: a value, or the name of an error's code."""
        responses: dict[str, str] = self._order("admin", topic=topic)["answers"]
        return responses


class KafkaGoClient(ProgramClient):
    """segmentio/kafka-go, by its Reader and Writer."""

    can_be_idempotent = False

    def as_delivered(self, record: Record) -> Record:
        """Its Reader gives nil for all that is empty, as for a null."""
        headers: Headers = tuple((name, value or None) for name, value in record.headers)
        return replace(record, key=record.key or None, value=record.value or None, headers=headers)


GO_CLIENTS: Mapping[str, type[ProgramClient]] = MappingProxyType(
    {
        "sarama": GoAdminClient,
        # With the API versions of Kafka 2.1, which it speaks when no version is set.
        "sarama-2.1": GoAdminClient,
        "kafka-go": KafkaGoClient,
        "franz-go": GoAdminClient,
    }
)


def main() -> None:
    reason = why_no_go()
    if reason is not None:
        sys.stderr.write(f"Tests with Go clients will be skipped: {reason}\n")
        return
    sys.stderr.write(f"Go clients: {built()}\n")


if __name__ == "__main__":
    main()
