"""What became of the tests of each suite, and the table that says so.

A suite is a directory below `tests/`. A run may be in several parts, each with counts of its own:
`written` and `read_counts` carry them from the part to what prints one table for all.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

ALLOWED_SKIPS = Path("tests", "allowed_skips.txt")
MAX_FAILURES = 40
MAX_LINE = 300


@dataclass(frozen=True, slots=True)
class Skip:
    nodeid: str
    reason: str


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    nodeid_prefix: str
    reason_prefix: str

    def covers(self, skip: Skip) -> bool:
        return skip.nodeid.startswith(self.nodeid_prefix) and skip.reason.startswith(self.reason_prefix)


@dataclass(slots=True)
class SuiteCount:
    """Counts of one suite. An expected failure proves nothing either, so it counts as a skip."""

    passed: int = 0
    failed: int = 0
    left_for_full: int = 0
    seconds: float = 0.0
    skips: list[Skip] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What failed, and the last line of why."""

    @property
    def run(self) -> int:
        return self.passed + self.failed

    def add(self, other: "SuiteCount") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.left_for_full += other.left_for_full
        self.seconds += other.seconds
        # A module that is skipped as a whole is skipped in every part.
        self.skips += [skip for skip in other.skips if skip not in self.skips]
        self.failures += other.failures


Suites: TypeAlias = dict[str, SuiteCount]


def suite_of(nodeid: str) -> str:
    """`tests/unit/test_a.py::test_b` -> `unit`; a file right below `tests/` -> `tests`."""
    parts = nodeid.split("::", 1)[0].split("/")
    inside = parts[1:] if parts[0] == "tests" else parts
    return inside[0] if len(inside) > 1 else parts[0]


def failure(what: str, why: str) -> str:
    """One line: what failed, and the last line of why."""
    lines = [line for line in why.splitlines() if line.strip()]
    return f"{what}: {lines[-1].strip() if lines else 'no reason'}"[:MAX_LINE]


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


def allowed_skips(root: Path) -> list[AllowedSkip]:
    """Of the tree at `root`. Errors: as `read_allowed_skips`."""
    path = root / ALLOWED_SKIPS
    return read_allowed_skips(path.read_text()) if path.exists() else []


def read_allowed_skips(text: str) -> list[AllowedSkip]:
    """Errors: ValueError for a line that names no reason, which would allow too much."""
    allowed = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        nodeid_prefix, separator, reason_prefix = line.partition(": ")
        if not separator or not nodeid_prefix.strip() or not reason_prefix.strip():
            raise ValueError(f"not of the form `nodeid-prefix: reason-prefix`: {line!r}")
        allowed.append(AllowedSkip(nodeid_prefix.strip(), reason_prefix.strip()))
    return allowed


def refused_skips(suites: Mapping[str, SuiteCount], allowed: Sequence[AllowedSkip]) -> list[Skip]:
    """Those that no line allows."""
    skips = [skip for count in suites.values() for skip in count.skips]
    return [skip for skip in skips if not any(line.covers(skip) for line in allowed)]


def written(suites: Mapping[str, SuiteCount]) -> str:
    return json.dumps({name: dataclasses.asdict(count) for name, count in suites.items()})


def read_counts(text: str) -> Suites:
    """The inverse of `written`."""
    suites = {}
    for name, fields in json.loads(text).items():
        skips = [Skip(**skip) for skip in fields.pop("skips")]
        suites[name] = SuiteCount(**fields, skips=skips)
    return suites


def merged(parts: Sequence[Mapping[str, SuiteCount]]) -> Suites:
    suites: Suites = {}
    for part in parts:
        for name, count in part.items():
            suites.setdefault(name, SuiteCount()).add(count)
    return suites


def table_lines(suites: Mapping[str, SuiteCount]) -> Iterator[str]:
    names = sorted(suites)
    numbers = [
        (count.run, count.passed, count.failed, len(count.skips), round(count.seconds))
        for count in (suites[name] for name in names)
    ]
    width = max(len(name) for name in ["suite", *names])
    yield line_of(width, "suite", ("run", "passed", "failed", "skipped", "seconds"), "reason")
    for name, row, reason in zip(names, numbers, reasons(suites), strict=True):
        yield line_of(width, name, row, reason)
    yield line_of(width, "all", tuple(sum(column) for column in zip(*numbers, strict=True)), "")


def failure_lines(suites: Mapping[str, SuiteCount]) -> Iterator[str]:
    """What failed, for a reader of no more than the end of a long run."""
    failures = [failure for _, count in sorted(suites.items()) for failure in count.failures]
    yield from failures[:MAX_FAILURES]
    if len(failures) > MAX_FAILURES:
        yield f"and {len(failures) - MAX_FAILURES} more"


def refusal_lines(refused: Sequence[Skip]) -> Iterator[str]:
    for skip in refused:
        yield f"{skip.nodeid}: {skip.reason}"
    yield f"Make them run, or name them in {ALLOWED_SKIPS}."


def line_of(width: int, name: str, cells: Sequence[object], reason: str) -> str:
    columns = " ".join(f"{cell!s:>8}" for cell in cells)
    return f"{name:<{width}} {columns}  {reason}".rstrip()


def reasons(suites: Mapping[str, SuiteCount]) -> Iterator[str]:
    for _, count in sorted(suites.items()):
        counted = Counter(skip.reason for skip in count.skips)
        parts = [f"{number} x {reason}" for reason, number in counted.most_common()]
        if count.left_for_full:
            parts.append(f"{count.left_for_full} more in make test-full")
        yield "; ".join(parts)
