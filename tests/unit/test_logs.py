"""Logs: one form for people, one for machines; nothing of a payload or a secret, and never too many lines."""

import asyncio
import json
import subprocess
import sys

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.telemetry.logs import (
    FLOOD_BYTES,
    FLOOD_S,
    MAX_NAME,
    MAX_TEXT,
    Floods,
    QuietLog,
    harmless,
    log_loop_errors,
)

SCRIPT = """
import logging
import structlog
from gateway.settings import Log
from gateway.telemetry.logs import set_up_logs

set_up_logs(Log(format={format!r}))
log = structlog.get_logger()
payload = b"a-secret-payload"
log.info("thing.done", count=3)
log.debug("thing.looked_at")
try:
    len(payload) / 0
except ZeroDivisionError:
    log.exception("thing.failed", api_key=3)
logging.getLogger("library").warning("an old %s", "warning")
logging.getLogger("library").info("chatter")
"""


def lines_of(format: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(format=format)], capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0 and finished.stdout == ""
    return finished.stderr.splitlines()


def test_machines_get_one_json_object_a_line() -> None:
    events = [json.loads(line) for line in lines_of("json")]
    assert [event["event"] for event in events] == ["thing.done", "thing.failed", "library.message"]
    assert events[0]["count"] == 3 and events[0]["level"] == "info" and events[0]["timestamp"]
    assert "ZeroDivisionError" in events[1]["exception"]
    assert (events[2]["library"], events[2]["message"]) == ("library", "an old warning")


LOSING = """
import io
import sys
import structlog
from gateway.settings import Log
from gateway.telemetry.logs import set_up_logs

class Disk(io.RawIOBase):
    left, has = 10_000, b""
    def writable(self):
        return True
    def write(self, data):
        taken = bytes(data[:self.left])
        if not taken:
            raise OSError(28, "no space")
        self.has, self.left = self.has + taken, self.left - len(taken)
        return len(taken)

disk = Disk()
buffered = io.TextIOWrapper(io.BufferedWriter(disk), line_buffering=True)
sys.stderr = buffered if {buffered} else io.TextIOWrapper(disk, write_through=True)
set_up_logs(Log(format="json"))
log = structlog.get_logger()
log.info("first")
disk.left = 20
log.info("torn")
log.error("lost")
closed = io.StringIO()
closed.close()
kept = sys.stderr
for sys.stderr in (closed, None):
    log.info("lost")
sys.stderr = kept
disk.left = 10_000
log.info("next")
log.info("last")
sys.stdout.write(disk.has.decode())
"""


@pytest.mark.parametrize("buffered", [False, True])
def test_a_line_that_cannot_be_written_is_counted_and_fails_nothing_else(buffered: bool) -> None:
    script = LOSING.replace("{buffered}", str(buffered))
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert len(lines) == 4 and len(lines[1]) == 20
    events = [json.loads(line) for line in (lines[0], *lines[2:])]
    assert [event["event"] for event in events] == ["first", "next", "last"]
    assert [event.get("lines_lost") for event in events] == [None, 4, None]


def test_what_strangers_choose_cannot_write_on_a_terminal() -> None:
    evil = "\x1b[2J\x1b]0;title\x07\r\nforged: line\u202e\x9b\ud800"
    returned = str(harmless(None, "info", {"event": "group.joined", "reason": evil, "count": 1})["reason"])
    assert returned.isprintable() and r"\x1b[2J" in returned and r"\nforged" in returned
    assert returned.encode()


def test_a_field_is_cut_and_readable_names_stay_as_they_are() -> None:
    event = {"event": "x", "member": "r" * 50_000, "group": "Müşteri-grubu 1", "topic": "t" * 200}
    returned = harmless(None, "info", {**event, "error": "e" * 50_000})
    assert len(str(returned["member"])) == MAX_NAME + 1 and len(str(returned["error"])) == MAX_TEXT + 1
    assert (returned["group"], returned["topic"]) == (event["group"], event["topic"])


def test_a_name_that_has_to_be_escaped_becomes_no_longer_for_it() -> None:
    returned = str(harmless(None, "info", {"event": "x", "group": "\x1b" * 200})["group"])
    assert returned.startswith(r"\x1b\x1b") and len(returned) == MAX_NAME + 1


def test_what_clients_cause_is_written_within_a_bound_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("gateway.telemetry.logs.time.monotonic", lambda: now)
    floods = Floods()

    def written(level: str = "info", **event: object) -> dict[str, object] | None:
        try:
            return dict(floods(None, level, dict(event)))
        except structlog.DropEvent:
            return None

    lines = [written(event="group.created", group="g" * 200) for _ in range(1000)]
    kept = [line for line in lines if line is not None]
    assert 10 < len(kept) < 40 and sum(len(json.dumps(line)) for line in kept) < 2 * FLOOD_BYTES
    # Others are not left out for it: another family, a worse level, the trace of changes, the gateway itself.
    assert written(event="connection.closed") and written("error", event="group.outcome_unknown")
    assert written(event="group.deleted", principal="User:a") and written(event="gateway.ready")
    now += FLOOD_S
    assert (written(event="group.created") or {})["others_left_out"] == 1000 - len(kept)
    assert "others_left_out" not in (written(event="group.created") or {})


FLOODING = """
import json
import logging
from gateway.settings import Log
from gateway.telemetry.logs import set_up_logs

set_up_logs(Log(format="json"))
for number in range(500):
    try:
        json.loads("{" * 5)
    except ValueError:
        logging.getLogger("server").exception("request %d failed", number)
    logging.getLogger("other").warning("message %d", number)
"""


def test_what_libraries_repeat_is_written_within_a_bound() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FLOODING], capture_output=True, text=True, timeout=60, check=True
    )
    levels = [json.loads(line)["level"] for line in finished.stderr.splitlines()]
    assert 1 <= levels.count("error") <= 8 and 10 < levels.count("warning") < 120
    assert len(finished.stderr) < 6 * FLOOD_BYTES


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_traceback_shows_no_values(format: str) -> None:
    text = "\n".join(lines_of(format))
    assert "ZeroDivisionError" in text and "thing.failed" in text
    assert "a-secret-payload" not in text


def test_what_strangers_repeat_is_written_once_in_a_while_with_a_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("gateway.telemetry.logs.time.monotonic", lambda: now)
    quiet = QuietLog()
    with capture_logs() as events:
        for _ in range(50):
            quiet.info("door.closed", reason="full", peer="a")
        quiet.info("door.closed", reason="late", peer="b", why="")
        now = 200.0
        quiet.info("door.closed", reason="full", peer="c")
    assert [(event["reason"], event.get("left_out")) for event in events] == [
        ("full", None),
        ("late", None),
        ("full", 49),
    ]
    assert "why" not in events[1]


def test_keys_of_quiet_events_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.telemetry.logs.MAX_REMEMBERED", 2)
    quiet = QuietLog(60.0, keyed_by=("topic", "partition"))
    with capture_logs() as events:
        for partition in (0, 1, 0, 1, 2, 0, 2):
            quiet.error("batch.damaged", topic="t", partition=partition)
    # The third pushed the first out of memory, which is written again rather than never.
    assert [event["partition"] for event in events] == [0, 1, 2, 0]


async def test_an_uncaught_error_is_one_event() -> None:
    loop = asyncio.get_running_loop()
    log_loop_errors(loop)
    try:
        with capture_logs() as events:
            loop.call_exception_handler({"message": "it broke", "exception": ValueError("x")})
    finally:
        loop.set_exception_handler(None)
    (event,) = events
    assert (event["event"], event["message"], event["log_level"]) == ("loop.error", "it broke", "error")
