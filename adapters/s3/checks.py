"""What the settings of a bucket mean for the objects in it: its region, lifecycle rules, versions, Object
Lock, encryption, and uploads that were never finished. Nothing but those uploads is changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from adapters.s3.address import DEFAULT_REGION, S3Address
from adapters.s3.credentials import CredentialChain
from adapters.s3.failures import CREDENTIAL_CODES, DENIED, NOT_FOUND, SERVER_ERROR, Request, failure_of_status
from adapters.s3.lifecycle import Lifecycle, is_own, lifecycle_of
from adapters.s3.options import Calls, S3Options, boto3_client
from adapters.threads import StoreThreads
from ledger.errors import StoreUnavailable, StoreUnfit

log = structlog.get_logger(__name__)

STEP_DEADLINE_S: Final = 60.0
CALLS: Final = Calls(connections=1, attempts=3, read_timeout_s=10)
"""All of them may be repeated."""
ABANDONED_AFTER: Final = timedelta(days=1)
"""No upload takes that long: each of its requests has a deadline of minutes."""
MAX_UPLOADS: Final = 250
"""Unfinished uploads that are aborted at once."""
NOT_THERE: Final = frozenset(
    {
        "NoSuchLifecycleConfiguration",
        "ObjectLockConfigurationNotFoundError",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)
SETTINGS_CODES: Final = CREDENTIAL_CODES | {"NoSuchBucket", "RequestTimeTooSkewed"}
"""With these no other request is answered either."""

Response: TypeAlias = Mapping[str, Any]
Upload: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Inspected:
    """Sentences about one prefix of a bucket."""

    refusals: list[str] = field(default_factory=list)
    """Why it may not be used."""
    findings: list[str] = field(default_factory=list)
    """What an operator should change."""
    notes: list[str] = field(default_factory=list)


class _Unread(Exception):
    """What cannot be read, in one sentence."""


class BucketChecks:
    """Of one bucket, in a thread. Errors: StoreUnavailable if the bucket is not there, or its store fails."""

    def __init__(
        self, address: S3Address, credentials: CredentialChain, options: S3Options | None = None
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._options = options or S3Options()
        self._threads = StoreThreads(f"checks of {address}", 1, STEP_DEADLINE_S)
        self._session: Any = None
        self._client: Any = None

    async def refuse_unfit(self, prefix: str) -> None:
        """For the start of a gateway. StoreUnfit if rules of the bucket delete objects with this prefix, or
        make them unreadable. Where the rules cannot be read there is nothing to refuse."""
        try:
            lifecycle = await self._threads.read(self._lifecycle, prefix)
        except _Unread as unread:
            log.info("s3.rules_unread", store=str(self._address), reason=str(unread))
            return
        for harm in lifecycle.harms:
            raise StoreUnfit(f"{self._address} cannot be used, since {harm}; {_REMOVE_THE_RULE}")

    async def inspect(self, prefix: str) -> Inspected:
        """For `doctor`. Aborts uploads with this prefix that were begun a day ago and never finished."""
        inspected = Inspected()
        steps: list[Callable[[Inspected, str], None]] = [
            self._check_region,
            self._check_lifecycle,
            self._check_versions,
            self._check_object_lock,
            self._check_encryption,
            self._abort_uploads,
        ]
        for step in steps:
            try:
                await self._threads.run(step, inspected, prefix)
            except _Unread as unread:
                inspected.notes.append(str(unread))
        return inspected

    async def unix_ms(self) -> int | None:
        """The time of the store, to the second; None if it does not tell."""
        return await self._threads.read(self._time)

    def shut(self) -> None:
        self._threads.shut()
        if self._client is not None:
            self._client.close()

    def _time(self) -> int | None:
        try:
            response = self._read("head_bucket", "bucket", "s3:ListBucket")
            date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
            return int(parsedate_to_datetime(date).timestamp() * 1000)
        except (_Unread, LookupError, ValueError):
            return None

    def _check_region(self, inspected: Inspected, _: str) -> None:
        response = self._read("head_bucket", "bucket", "s3:ListBucket")
        headers = response["ResponseMetadata"]["HTTPHeaders"]
        region, ours = headers.get("x-amz-bucket-region"), self._region
        if region and region != ours and self._address.endpoint is None:
            inspected.refusals.append(
                f"the bucket is in the region {region} and its URL, or the environment, says {ours}: name it "
                f"in the URL (?region={region})"
            )
        else:
            inspected.notes.append("bucket: it is there")

    def _lifecycle(self, prefix: str) -> Lifecycle:
        response = self._read(
            "get_bucket_lifecycle_configuration", "lifecycle rules", "s3:GetLifecycleConfiguration"
        )
        return lifecycle_of(response.get("Rules", ()), prefix)

    def _check_lifecycle(self, inspected: Inspected, prefix: str) -> None:
        lifecycle = self._lifecycle(prefix)
        inspected.refusals += [f"{harm}; {_REMOVE_THE_RULE}" for harm in lifecycle.harms]
        if not lifecycle.harms:
            inspected.notes.append("lifecycle rules: none deletes or archives objects of Dragoman")
        if not lifecycle.aborts_uploads:
            inspected.notes.append(
                "unfinished uploads: no lifecycle rule removes them; one with AbortIncompleteMultipartUpload "
                "after a day saves their cost (`doctor` removes them too)"
            )

    def _check_versions(self, inspected: Inspected, prefix: str) -> None:
        status = self._read("get_bucket_versioning", "versioning", "s3:GetBucketVersioning").get("Status")
        if not status:
            inspected.notes.append("versioning: off")
            return
        try:
            is_cleaned = self._lifecycle(prefix).expires_noncurrent
        except _Unread:
            is_cleaned = False
        if is_cleaned:
            inspected.notes.append("versioning: on, and a lifecycle rule removes old versions")
            return
        inspected.notes.append(
            f"versioning: {'on' if status == 'Enabled' else 'was on'}, so what Dragoman deletes stays as old "
            "versions and costs; add a lifecycle rule with NoncurrentVersionExpiration"
        )

    def _check_object_lock(self, inspected: Inspected, _: str) -> None:
        response = self._read(
            "get_object_lock_configuration", "Object Lock", "s3:GetBucketObjectLockConfiguration"
        )
        found = response.get("ObjectLockConfiguration", {})
        if found.get("Rule", {}).get("DefaultRetention"):
            inspected.findings.append(
                "Object Lock: the bucket has a default retention, with which S3 refuses what is written "
                "without a checksum, and keeps what Dragoman deletes; use a bucket without one"
            )
        else:
            inspected.notes.append("Object Lock: no default retention")

    def _check_encryption(self, inspected: Inspected, _: str) -> None:
        if self._options.kms_key:
            inspected.notes.append("encryption: objects are written with the key of storage.s3_kms_key")
            return
        response = self._read("get_bucket_encryption", "encryption", "s3:GetEncryptionConfiguration")
        rules = response.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        defaults = [rule.get("ApplyServerSideEncryptionByDefault", {}) for rule in rules]
        used = [str(default["SSEAlgorithm"]) for default in defaults if default.get("SSEAlgorithm")]
        inspected.notes.append(f"encryption: {f'{used[0]} by default' if used else 'none by default'}")

    def _abort_uploads(self, inspected: Inspected, prefix: str) -> None:
        response = self._read(
            "list_multipart_uploads",
            "unfinished uploads",
            "s3:ListBucketMultipartUploads",
            Prefix=prefix,
            MaxUploads=MAX_UPLOADS,
        )
        # By the clock of the store, as are the times of the uploads.
        date = response["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is None:
            raise _Unread("unfinished uploads: the store does not say its time, so none is aborted")
        own = [upload for upload in response.get("Uploads", ()) if is_own(str(upload["Key"]), prefix)]
        uploads = abandoned(own, parsedate_to_datetime(date))
        for upload in uploads:
            self._read(
                "abort_multipart_upload",
                "unfinished uploads",
                "s3:AbortMultipartUpload",
                Key=upload["Key"],
                UploadId=upload["UploadId"],
            )
        more = "; run `doctor` again for more" if response.get("IsTruncated") else ""
        inspected.notes.append(
            f"unfinished uploads: {len(uploads)} that were begun more than a day ago aborted, "
            f"{len(own) - len(uploads)} left{more}"
        )

    @property
    def _region(self) -> str:
        return self._address.region or self._credentials.region or DEFAULT_REGION

    def _read(self, operation: str, what: str, right: str, **arguments: object) -> Response:
        """Empty where there is no such setting. Errors: _Unread, StoreUnavailable."""
        client = self._opened()
        try:
            response: Response = getattr(client, operation)(Bucket=self._address.bucket, **arguments)
        except ClientError as error:
            return self._refused(error, what, right)
        except ResponseParserError:
            raise _Unread(f"{what}: not checked, since the store's response is no XML of S3") from None
        except BotoCoreError as error:
            raise StoreUnavailable(
                f"{self._address} cannot be checked, since a request broke off ({type(error).__name__}): "
                "check its endpoint and the network"
            ) from None
        return response

    def _opened(self) -> Any:
        """Of the session that the chain has now: credentials that were refused are looked for again. Called
        in the only thread, so no request is under way with a client that is replaced."""
        session = self._credentials.session
        if session is not self._session:
            self._credentials.check()
            replaced = self._client
            self._client = boto3_client(session, self._address, self._options, self._region, CALLS)
            self._session = session
            if replaced is not None:
                replaced.close()
        return self._client

    def _refused(self, error: ClientError, what: str, right: str) -> Response:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in NOT_THERE:
            return {}
        # Some stores answer 500 for a setting that they do not know, and are sound otherwise.
        is_down = what == "bucket" and (status >= SERVER_ERROR or status == NOT_FOUND)
        if is_down or code in SETTINGS_CODES:
            failed = failure_of_status(Request(str(self._address), "list"), status, code)
            raise StoreUnavailable(failed.reason) from None
        if status in DENIED:
            raise _Unread(f"{what}: not checked, since the credentials lack the right {right}") from None
        raise _Unread(f"{what}: not checked, since the store refuses to say ({status} {code})") from None


_REMOVE_THE_RULE: Final = "remove the rule, or give it a prefix of its own"


def abandoned(uploads: Iterable[Upload], now: datetime) -> list[Upload]:
    """Those that were begun long ago. SeaweedFS does not say when."""
    return [upload for upload in uploads if now - upload.get("Initiated", now) > ABANDONED_AFTER]
