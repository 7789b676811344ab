"""What an operator sets for a bucket beside its address, and the HTTP clients that follow from it."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.config import Config

from adapters.s3.address import DEFAULT_REGION, BadAddress, S3Address
from ledger.errors import StoreUnavailable

AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn")
KMS: Final = "aws:kms"
CONNECT_TIMEOUT_S: Final = 5
NEVER: Final = timedelta(days=1)
"""The client bounds each attempt itself."""
IDLE_CONNECTIONS: Final = 128


@dataclass(frozen=True, slots=True)
class S3Options:
    ca: Path | None = None
    """PEM file of the CAs that have signed the endpoint's certificate. None: those that the system trusts."""
    path_style: bool | None = None
    """The bucket is in the path of a request, not in the name of its host. None: unless it is Amazon's."""
    kms_key: str = ""
    """Key id or ARN of AWS KMS for all objects that are written. Empty: as the bucket encrypts by default."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Of one client of boto3."""

    connections: int
    attempts: int
    """How often a request is sent."""
    read_timeout_s: int


def check_options(address: S3Address, options: S3Options) -> None:
    """Errors: BadAddress, StoreUnavailable. Reads the CA file."""
    read_ca(address, options)
    if options.path_style is not False:
        return
    if _is_ip(_host_of(address)):
        raise BadAddress(
            "an S3 endpoint that is an IP address has the bucket in the path: keep path style on"
        )
    if "." in address.bucket and not (address.endpoint or "https").startswith("http:"):
        raise BadAddress(
            "no certificate is valid for a bucket with a dot in its name as a host: keep path style on"
        )


def is_path_style(address: S3Address, options: S3Options) -> bool:
    if options.path_style is not None:
        return options.path_style
    return not _host_of(address).endswith(AMAZON) or "." in address.bucket


def read_ca(address: S3Address, options: S3Options) -> bytes | None:
    """Errors: StoreUnavailable with one sentence. Again for each client: the file may have been replaced."""
    if options.ca is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(options.ca)
        return options.ca.read_bytes()
    except ssl.SSLError as error:
        raise StoreUnavailable(
            f"{address}: the CA bundle {options.ca} cannot be used: it is no PEM file of certificates"
        ) from error
    except OSError as error:
        raise StoreUnavailable(
            f"{address}: the CA bundle {options.ca} cannot be read: {error.strerror}; correct its path or "
            "rights"
        ) from error


def obstore_arguments(address: S3Address, options: S3Options) -> dict[str, Any]:
    """Of an S3Store, without region and credentials. Errors: StoreUnavailable."""
    ca, path_style = read_ca(address, options), is_path_style(address, options)
    arguments: dict[str, Any] = {
        "virtual_hosted_style_request": not path_style,
        "client_options": {
            "allow_http": address.endpoint is not None and address.endpoint.startswith("http:"),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "timeout": NEVER,
            "pool_max_idle_per_host": str(IDLE_CONNECTIONS),
            **({} if ca is None else {"root_certificate": ca}),
        },
        "retry_config": {"max_retries": 0, "retry_timeout": NEVER},
    }
    if address.endpoint is not None:
        # With virtual hosts obstore takes the endpoint as it is.
        arguments["endpoint"] = address.endpoint if path_style else _with_bucket(address)
    if options.kms_key:
        arguments |= {"server_side_encryption": KMS, "sse_kms_key_id": options.kms_key}
    return arguments


def boto3_client(
    session: Any, address: S3Address, options: S3Options, region: str | None, calls: Calls
) -> Any:
    """Several threads may use it; to make it takes a while. `region`: of the credential chain."""
    return session.client(
        "s3",
        endpoint_url=address.endpoint,
        region_name=address.region or region or DEFAULT_REGION,
        verify=None if options.ca is None else str(options.ca),
        config=Config(
            retries={"total_max_attempts": calls.attempts},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=calls.read_timeout_s,
            max_pool_connections=calls.connections,
            # Of a profile: obstore does not know it, and would go elsewhere.
            ignore_configured_endpoint_urls=True,
            # Not every store knows the checksums that boto3 adds.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if is_path_style(address, options) else "virtual"},
        ),
    )


def encryption_of(options: S3Options) -> dict[str, str]:
    """Arguments of boto3 for an object that is begun."""
    return {"ServerSideEncryption": KMS, "SSEKMSKeyId": options.kms_key} if options.kms_key else {}


def _host_of(address: S3Address) -> str:
    return (urlsplit(address.endpoint).hostname or "") if address.endpoint else AMAZON[0]


def _with_bucket(address: S3Address) -> str:
    parts = urlsplit(address.endpoint or "")
    return parts._replace(netloc=f"{address.bucket}.{parts.netloc}").geturl()


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
