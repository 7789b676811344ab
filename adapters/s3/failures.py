"""What an error of an S3 client means: whether the request may have had its effect, whether it is worth
repeating, and one sentence for the operator.

obstore says HTTP status and S3 error code in the text of its exceptions alone. What is not found there counts
as a failure of unknown outcome, which is always safe. Its "kind: Request" may be a connection that was cut
off after the request, which it would send again by itself: its own retries are off.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from adapters.s3.results import Failed
from ledger.keys import KEY_PARTS

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_DELETE_CODE: Final = re.compile(r"DeleteObjects request failed .*\(code: ([A-Za-z0-9.]{1,64})\)")
"""Of one key, in a response that is 200."""
_MISSING_RIGHT: Final = re.compile(r"not authorized to perform: ((?:s3|kms):[A-Za-z]{1,40})\b")
_NOT_SENT: Final = re.compile(r"kind: Connect\b")
_TIMED_OUT: Final = re.compile(r"kind: Timeout\b|TimedOut")
_FOREIGN: Final = re.compile(r'object with invalid path: (?:Error parsing )?Path "(.{,200})')
_UNTRUSTED: Final = re.compile(r"InvalidCertificate\(\s*(\w{1,40})")
_NO_TLS: Final = re.compile(r"InvalidMessage\(\s*InvalidContentType")
_BARE_REDIRECT: Final = re.compile(r"redirect without LOCATION")

PRECONDITION: Final = (412, 304)
"""Some stores take If-None-Match for a question whether the object has changed."""
RANGE: Final = 416
NOT_FOUND: Final = 404
TIMED_OUT: Final = 408
SERVER_ERROR: Final = 500
"""From here on the request may have had its effect, whatever the code says."""
CONFLICTS: Final = (409, 429)
"""So it may with these: what met the request may have been its own first attempt."""
NOT_IMPLEMENTED: Final = "NotImplemented"
ACCESS_DENIED: Final = "AccessDenied"
DENIED: Final = (401, 403)

ABORT: Final = "abort the upload of"
RIGHTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "put": "s3:PutObject",
        # Without the second S3 denies an absent key as well.
        "get": "s3:GetObject and s3:ListBucket",
        "list": "s3:ListBucket",
        "delete": "s3:DeleteObject",
        ABORT: "s3:AbortMultipartUpload",
    }
)
"""Of an operation, unless the store says itself which one is missing."""
CREDENTIAL_CODES: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
)
"""The credentials may have been replaced since they were loaded."""
_RENEW: Final = (
    "renew the credentials: environment, profile, web identity or the machine's role, as AWS tools find them"
)
_REGION: Final = "the bucket is in another region: name it in the URL (?region=...)"
_KMS_KEY: Final = "enable it, or correct storage.s3_kms_key and the bucket's default encryption"
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "NoSuchBucket": ("there is no such bucket", "create it, or correct the URL"),
        "InvalidAccessKeyId": ("the store does not know the access key", _RENEW),
        "SignatureDoesNotMatch": ("the secret key is not the one of the access key", _RENEW),
        "ExpiredToken": ("the credentials have expired", _RENEW),
        "InvalidToken": ("the store does not take the session token", _RENEW),
        "TokenRefreshRequired": ("the credentials have expired", _RENEW),
        "RequestTimeTooSkewed": ("this machine's clock is wrong", "set it, for example by NTP"),
        "PermanentRedirect": ("the store redirects", _REGION),
        "AuthorizationHeaderMalformed": ("the request was signed for another region", _REGION),
        "IllegalLocationConstraintException": ("the request went to another region", _REGION),
        NOT_IMPLEMENTED: (
            "the store does not know this request",
            "use a store with conditional writes (If-None-Match and If-Match)",
        ),
        "KMS.NotFoundException": ("AWS KMS has no such key", _KMS_KEY),
        "KMS.DisabledException": ("the key of AWS KMS is disabled", _KMS_KEY),
        "KMS.InvalidStateException": ("the key of AWS KMS cannot be used now", _KMS_KEY),
        "KMS.KMSInvalidStateException": ("the key of AWS KMS cannot be used now", _KMS_KEY),
        "QuotaExceeded": ("its quota is used up", "free space, or raise the quota"),
        "InsufficientStorage": ("it is full", "free space, or add some"),
        "XMinioStorageFull": ("it is full", "free space, or add some"),
    }
)


@dataclass(frozen=True, slots=True)
class Request:
    """What was tried, for messages."""

    store: str
    operation: str
    """One of RIGHTS."""
    key: str = ""

    def __str__(self) -> str:
        what = f"{self.operation} {self.key}" if self.key else self.operation
        return f"{self.store}: {what}"


def status_of(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def code_of(text: str) -> str:
    """The S3 error code, or nothing."""
    found = _CODE.search(text) or _DELETE_CODE.search(text)
    return found[1] if found else ""


def failure_of(request: Request, text: str) -> Failed:
    """Of an error that is no answer to the request itself. `text` is not repeated: it may hold anything."""
    if _BARE_REDIRECT.search(text):
        return _known(request, *_REMEDIES["PermanentRedirect"])
    if (found := _FOREIGN.search(text)) is not None:
        name = found[1].partition('"')[0]
        return _known(request, f"the name {name!r} in it is none of a store's", "rename or remove the object")
    status, code = status_of(text), code_of(text)
    if status is not None:
        return failure_of_status(request, status, code, text)
    if code:
        # Of one key, while others may have been deleted.
        return replace(
            failure_of_status(request, 403 if code == ACCESS_DENIED else SERVER_ERROR, code, text),
            certain=False,
        )
    if (found := _UNTRUSTED.search(text)) is not None:
        return _known(
            request,
            f"the endpoint's certificate is not trusted ({found[1]})",
            "set storage.s3_ca to the CA that has signed it, or correct the endpoint",
        )
    if _NO_TLS.search(text):
        return _known(request, "the endpoint does not speak TLS", "write http:// in the URL, or another port")
    if _NOT_SENT.search(text):
        return Failed(
            f"{request} failed, since the store cannot be reached: check its endpoint and the network",
            certain=True,
            again=True,
        )
    why = "did not answer in time" if _TIMED_OUT.search(text) else "broke the connection off"
    return uncertain(request, f"the store {why}")


def failure_of_status(request: Request, status: int, code: str = "", text: str = "") -> Failed:
    """`text` in which the store may name a missing right."""
    if status == TIMED_OUT or code == "RequestTimeout":
        return uncertain(request, f"the request did not arrive in time ({f'{status} {code}'.rstrip()})")
    if code in _REMEDIES:
        refused = status < SERVER_ERROR and status not in CONFLICTS
        return _known(request, *_REMEDIES[code], certain=refused or code == NOT_IMPLEMENTED)
    named = f"{status} {code}".rstrip()
    match status:
        case _ if status in DENIED:
            return _known(request, f"access is denied ({named})", _grant(request, text))
        case 404 if request.operation == "list":
            return _known(request, *_REMEDIES["NoSuchBucket"])
        case _ if status >= SERVER_ERROR or status in CONFLICTS:
            return uncertain(request, f"the store answered {named}")
    return _known(request, f"the store answered {named}", "check the URL and what the store supports")


def _grant(request: Request, text: str) -> str:
    said = _MISSING_RIGHT.search(text)
    right = said[1] if said is not None else RIGHTS[request.operation]
    if right.startswith("kms:"):
        return f"give the credentials the right {right} for the key of AWS KMS"
    return f"give the credentials the right {right} for {root_of(request.key)}*"


def root_of(key: str) -> str:
    """The prefix of a store's keys, by one of them or a directory of them; empty if there is none."""
    parts = key.split("/")
    for place in reversed(range(len(parts))):
        if parts[place] in (*KEY_PARTS, "proof"):
            return "".join(f"{part}/" for part in parts[:place])
    return ""


def uncertain(request: Request, why: str) -> Failed:
    return Failed(f"{request} failed, since {why}; it is worth trying again later", certain=False, again=True)


def too_long(request: Request, size: int, most: int) -> Failed:
    """An object that no store of ours wrote."""
    why = f"the object has {size} bytes, more than the {most} that are read at once"
    return _known(request, why, "another program put it there; remove it")


def _known(request: Request, why: str, remedy: str, certain: bool = True) -> Failed:
    """So it will be until something is changed. If certain, refused before any effect."""
    return Failed(f"{request} failed, since {why}: {remedy}", certain=certain, again=False)
