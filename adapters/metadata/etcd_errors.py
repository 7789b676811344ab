"""What errors of etcd mean: whether a call had its effect, and one sentence with the remedy.

Only what etcd refuses before it does anything is certain to have had no effect. NOSPACE is not: etcd compares
with its quota once before it proposes a write and once when it applies it, and the second time it reports
NOSPACE for a write that has happened.
"""

from typing import Final, NamedTuple

from adapters.rpc.failures import NO_CONNECTION, CallFailed, Failure, Meaning, brief, unreached
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable


class NoSpace(OutcomeUnknown):
    """etcd is out of space, and may have written nevertheless."""


class AnswerTooLarge(StoreUnavailable):
    """The values of a range are longer than what is received at once."""


OUT_OF_SPACE: Final = (
    "is out of space (NOSPACE): compact it, run `etcdctl defrag`, then `etcdctl alarm disarm`, and give "
    'it more with --quota-backend-bytes; docs/operations.md has the commands ("etcd is out of space")'
)
COMPACTED_ALREADY: Final = "has been compacted already"


class _Known(NamedTuple):
    text: str
    """In what etcd reports."""
    meaning: Meaning
    why: str


_KNOWN: Final = (
    _Known(
        "database space exceeded",
        Meaning.NO_SPACE,
        OUT_OF_SPACE,
    ),
    _Known("required revision has been compacted", Meaning.REFUSED, COMPACTED_ALREADY),
    _Known(
        "message larger than max",
        Meaning.TOO_LARGE,
        "does not take a request of this size: raise its --max-request-bytes",
    ),
    _Known(
        "request is too large",
        Meaning.TOO_LARGE,
        "does not take a request of this size: raise its --max-request-bytes",
    ),
    _Known(
        "authentication failed",
        Meaning.REFUSED,
        "does not accept the user with this password: correct them",
    ),
    _Known(
        "user name is empty",
        Meaning.UNAUTHENTICATED,
        "requires authentication: set a user and a password",
    ),
    _Known(
        "invalid auth token",
        Meaning.UNAUTHENTICATED,
        "does not accept the token that it issued: compare the clocks of its members, and their --auth-token",
    ),
    _Known(
        # "revision of auth store is old"; etcd 3.4 says "revision in header is old".
        "is old",
        Meaning.UNAUTHENTICATED,
        "has changed its users again and again while this call was made: try again",
    ),
    _Known(
        "permission denied",
        Meaning.REFUSED,
        "does not permit the user to read and write there: `etcdctl role grant-permission ROLE --prefix=true "
        "readwrite PREFIX/` with the prefix of the URL",
    ),
    _Known("too many requests", Meaning.REFUSED, "is overloaded and refuses requests: try again later"),
    _Known(
        "corrupt cluster",
        Meaning.UNKNOWN,
        "has found that its members differ (CORRUPT): restore the damaged member",
    ),
    _Known("no leader", Meaning.UNKNOWN, "has no leader: start the members that are missing"),
)
_UNIMPLEMENTED: Final = "is no etcd of version 3.4 or newer: correct the URL, or upgrade it"
_SLOW: Final = "did not answer in time: look at its disks and at the network"
_BROKEN: Final = "broke the connection off"


def explained(etcd: str, code: str, details: str) -> Failure:
    """`code` is the name of gRPC's status code, `details` its text."""
    for known in _KNOWN:
        if known.text in details:
            return Failure(known.meaning, f"{etcd} {known.why}")
    match code:
        case "UNIMPLEMENTED":
            return Failure(Meaning.REFUSED, f"{etcd} {_UNIMPLEMENTED}")
        case "PERMISSION_DENIED" | "UNAUTHENTICATED":
            return Failure(Meaning.REFUSED, f"{etcd} refuses the call: {brief(details)}")
        case "DEADLINE_EXCEEDED":
            return Failure(Meaning.UNKNOWN, f"{etcd} {_SLOW}")
        case "UNAVAILABLE" if NO_CONNECTION in details:
            return Failure(Meaning.NOT_SENT, unreached(etcd, details))
        case "UNAVAILABLE" if not details.startswith("etcdserver: "):
            return Failure(Meaning.UNKNOWN, f"{etcd} {_BROKEN} ({brief(details)})")
    return Failure(Meaning.UNKNOWN, f"{etcd} failed: {brief(details) or code}")


def error_of(failed: CallFailed) -> StoreError:
    match failed.meaning:
        case Meaning.UNKNOWN:
            return OutcomeUnknown(str(failed))
        case Meaning.NO_SPACE:
            return NoSpace(str(failed))
        case Meaning.TOO_LARGE:
            return AnswerTooLarge(str(failed))
        case _:
            return StoreUnavailable(str(failed))
