"""The address of a bucket: `s3://bucket/prefix[?endpoint=URL&region=NAME]`. It never holds credentials."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from adapters.names import check_key

SCHEME: Final = "s3"
OPTIONS: Final = ("endpoint", "region")
MAX_PREFIX_BYTES: Final = 256
DEFAULT_REGION: Final = "us-east-1"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.IGNORECASE)


class BadAddress(ValueError):
    """The URL is no address of a bucket. The message does not repeat it, since it may hold a secret."""


@dataclass(frozen=True, slots=True)
class S3Address:
    bucket: str
    prefix: str = ""
    """Of every key: empty, or parts of a key with a `/` after each."""
    endpoint: str | None = field(default=None)
    """None: Amazon's own, of the region."""
    region: str | None = None
    """None: what the credential chain says."""

    def __str__(self) -> str:
        """For messages."""
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}{at}"


ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""The first that is set counts. obstore reads them by itself, but takes a virtual host for the bucket's."""


def completed(address: S3Address, environment: Mapping[str, str]) -> S3Address:
    """With the endpoint that the environment names, if the URL names none. Errors: BadAddress."""
    if address.endpoint is not None:
        return address
    named = next((environment[name] for name in ENDPOINT_VARIABLES if environment.get(name)), None)
    return replace(address, endpoint=_endpoint(named))


def parse_address(url: str) -> S3Address:
    """Errors: BadAddress with one sentence for the operator."""
    parts = _split(url)
    if parts.scheme != SCHEME:
        raise BadAddress("an S3 URL begins with s3://")
    if "@" in parts.netloc:
        raise BadAddress(_NO_SECRETS)
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise BadAddress("an S3 URL is s3://BUCKET/PREFIX, and this one names no bucket")
    options = _options(parts.query)
    return S3Address(
        parts.netloc, _prefix(parts.path), _endpoint(options.get("endpoint")), options.get("region") or None
    )


_NO_SECRETS: Final = (
    "an S3 URL holds no credentials: they come from the environment, a profile or the machine's role"
)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # Its text may repeat a part of the URL.
        raise BadAddress("an S3 URL is s3://BUCKET/PREFIX[?endpoint=URL&region=NAME]") from None
    return parts


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            # Only the name of an option is repeated, and not a long one: it may be a secret out of place.
            raise BadAddress(f"an S3 URL has no option {name[:20]!r}; it knows {', '.join(OPTIONS)}")
        options[name] = value
    return options


def _prefix(path: str) -> str:
    inner = path.strip("/")
    if not inner:
        return ""
    try:
        # Below another part, since the kinds of keys have no meaning here.
        check_key(f"x/{inner}")
    except ValueError:
        inner = ""
    if not 0 < len(inner) <= MAX_PREFIX_BYTES:
        raise BadAddress(
            f"the prefix of an S3 URL has at most {MAX_PREFIX_BYTES} bytes, and parts of letters, digits, "
            "- _ and ."
        )
    return f"{inner}/"


def _endpoint(endpoint: str | None) -> str | None:
    if not endpoint:
        return None
    parts = _split(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadAddress("the endpoint of an S3 URL is http://HOST:PORT or https://HOST:PORT")
    if "@" in parts.netloc:
        raise BadAddress(_NO_SECRETS)
    if parts.query or parts.fragment:
        raise BadAddress("the endpoint of an S3 URL has neither ? nor #")
    return endpoint.rstrip("/")
