"""What one request to S3 came to, and what several attempts at one conditional PUT mean together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from adapters.hedging import Attempts, Verdict


@dataclass(frozen=True, slots=True)
class Stored:
    """The PUT had its effect, durably."""

    etag: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition of the PUT did not hold (412)."""

    after_own_attempt: bool = False
    """An earlier attempt at the same PUT may have had its effect, so the object may be one's own."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No usable response."""

    reason: str
    """One sentence: the store, what was tried, why it failed, what to change."""
    certain: bool
    """Nothing happened, and nothing will."""
    again: bool
    """The same request may succeed later."""


@dataclass(frozen=True, slots=True)
class Found:
    value: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The object has fewer bytes."""

    size: int | None
    """None: the store did not say."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a listing."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, in the order of the store."""

    objects: Sequence[Listed]
    directories: Sequence[str] = ()
    """What lies below these, with a `/` at the end, was left out."""


PutResult: TypeAlias = Stored | Refused | Failed
GetResult: TypeAlias = Found | Absent | OutOfRange | Failed


def judge_put(result: PutResult) -> Verdict:
    match result:
        case Stored():
            return Verdict.FINAL
        case Refused():
            # Perhaps by the other attempt, whose own response will say so; reading would say so too.
            return Verdict.WAIT_BRIEFLY
        case Failed():
            return Verdict.WAIT


def judge_own_put(result: PutResult) -> Verdict:
    """Of a key that was made for this put alone: if it is refused next to another attempt, that has had its
    effect."""
    return Verdict.WAIT if isinstance(result, Failed) else Verdict.FINAL


def judge_other(result: object) -> Verdict:
    return Verdict.WAIT if isinstance(result, Failed) else Verdict.FINAL


def put_outcome(attempts: Attempts[PutResult], uncertain_before: bool) -> PutResult:
    """Of all attempts at one PUT. `uncertain_before`: an attempt before these may have had its effect."""
    results = attempts.results
    failures = [result for result in results if isinstance(result, Failed)]
    uncertain = bool(attempts.unanswered) or any(not failure.certain for failure in failures)
    for result in results:
        if isinstance(result, Stored):
            return result
    if len(failures) < len(results):
        return Refused(after_own_attempt=uncertain_before or uncertain)
    again = any(failure.again for failure in failures)
    return Failed(failures[0].reason, certain=not (uncertain or uncertain_before), again=again)
