"""What a failed call of gRPC means: whether it had its effect, and one sentence with the remedy."""

from dataclasses import dataclass
from enum import Enum, auto


class Meaning(Enum):
    NOT_SENT = auto()
    "It did not leave this process, and may be made elsewhere."
    REFUSED = auto()
    "It certainly had no effect."
    UNAUTHENTICATED = auto()
    "Neither, but may be accepted with a new token."
    NO_SPACE = auto()
    "Of unknown effect until the key is read."
    TOO_LARGE = auto()
    "A message was longer than its receiver takes: a request, which had no effect, or the response to a read."
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    meaning: Meaning
    sentence: str


class CallFailed(Exception):
    """A call on one endpoint."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.meaning = failure.meaning


NO_CONNECTION = "failed to connect to all addresses"
"""How gRPC begins the reason of a call for which it had no connection."""
_UNREACHED = (
    ("CERTIFICATE_VERIFY_FAILED", "no CA of the bundle has signed its certificate: correct the CA bundle"),
    ("is not in peer certificate", "its certificate is for another host: connect by a name that it has"),
    ("ostname", "its certificate is for another host: connect by a name that it has"),
    ("WRONG_VERSION_NUMBER", "it speaks no TLS: correct the port, or set no files of TLS"),
    # The server ends the connection after the handshake, which is over for the client by then.
    ("TSI_DATA_CORRUPTED", "it has ended the TLS connection: set a client certificate of a CA that it knows"),
    ("onnection refused", "no server listens there: start it, or correct the URL"),
    ("DNS resolution failed", "there is no such host: correct the URL"),
    ("Domain name not found", "there is no such host: correct the URL"),
)


def is_of_answer(details: str) -> bool:
    """Of a message that is too large: that is the response, so the request was carried out."""
    return details.startswith("CLIENT:") or "trying to send" in details


def answer_refused(server: str) -> Failure:
    """Of a write, whose response is small."""
    return Failure(
        Meaning.UNKNOWN,
        f"{server} answered a write with a larger message than is received: look at what is behind its URL",
    )


def unreached(server: str, details: str) -> str:
    """One sentence on why no connection came about."""
    for text, why in _UNREACHED:
        if text in details:
            return f"{server} cannot be reached: {why}"
    return f"{server} cannot be reached ({brief(details)}): look at its log, and whether it speaks TLS"


def brief(details: str) -> str:
    return " ".join(details.split())[:200]
