"""Metadata in etcd 3.4 or newer: keys below a prefix, versions are the revisions of its keys."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from adapters.metadata.etcd_address import Login, address_of
from adapters.metadata.etcd_client import EtcdClient
from adapters.metadata.etcd_endpoint import COMPACT, RANGE, TXN
from adapters.metadata.etcd_errors import COMPACTED_ALREADY, OUT_OF_SPACE, AnswerTooLarge, NoSpace
from adapters.metadata.etcd_opening import check_etcd
from adapters.names import check_key
from adapters.rpc.caller import Limits
from adapters.rpc.generated import etcd_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, StoreUsage, Unknown, Versioned, Won

FIRST_PAGE: Final = 64
MAX_PAGE: Final = 1024
MAX_DELETES: Final = 128
"""Operations that etcd takes in one transaction (--max-txn-ops)."""
_REVISION: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
MAX_REVISION: Final = (1 << 63) - 1
DEFAULT_QUOTA: Final = 2 * 1024**3
"""Of an etcd without --quota-backend-bytes. Before version 3.6 etcd does not say which one it has."""
NOSPACE: Final = "NOSPACE"
COMPACT_BY_ITSELF: Final = (
    "let it compact itself, with --auto-compaction-mode=periodic --auto-compaction-retention=5m"
)


class EtcdMetadata:
    """A MetadataStore. `cluster_id` is that of etcd: another one after a restore of a backup."""

    exclusive = False
    unique_versions = True
    durable_ack = True

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | None = None,
        login: Login | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`etcd://HOST[:PORT][,HOST[:PORT]...]/PREFIX`. ValueError for another URL, StoreUnavailable with one
        sentence for the operator if etcd will not do. Without `tls` nothing is encrypted."""
        self._address = address_of(url)
        self._client = EtcdClient(self._address, tls, login, limits or Limits())
        opened = check_etcd(self._address, self._client.dialling, login)
        self._client.opened(opened.cluster_id, opened.token)
        self.cluster_id = opened.cluster_id
        self.identity = f"etcd cluster {opened.cluster_id:x}"
        self._page = FIRST_PAGE

    def __repr__(self) -> str:
        return f"<EtcdMetadata {self._address} below {self._address.prefix}/>"

    async def get(self, key: str) -> Versioned | None:
        response = await self._client.call(RANGE, pb.RangeRequest(key=self._name(key)))
        return versioned(response.kvs[0]) if response.kvs else None

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        first, end = self._bytes(max(prefix, start)), end_of(self._bytes(prefix))
        found: list[tuple[str, Versioned]] = []
        size = 0
        while len(found) < limit and size < SCAN_BYTES and first < end:
            response = await self._page_of(first, end, limit - len(found))
            for pair in response.kvs:
                found.append((self._key(pair.key), versioned(pair)))
                size += len(pair.value)
                if size >= SCAN_BYTES:
                    break
            if not response.more:
                break
            first = response.kvs[-1].key + b"\0"
        return found

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        return await self._put_if({key: expect}, key, value)

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        """As `put` of a key that must not exist, if in the same step the present version of `guard`, another
        key, is `version`; None: it must not exist."""
        return await self._put_if({key: None, guard: version}, key, value)

    async def _put_if(self, versions: Mapping[str, str | None], key: str, value: bytes) -> PutOutcome:
        """Put if these are the present versions of these keys; `key` is one of them."""
        compare, expect = [], versions[key]
        for compared, version in versions.items():
            name = self._name(compared)
            revision = 0 if version is None else revision_of(version)
            if revision is None:
                return Lost()
            compare.append(pb.Compare(key=name, target=pb.Compare.MOD, mod_revision=revision))
        put = pb.PutRequest(key=self._name(key), value=bytes(value))
        request = pb.TxnRequest(compare=compare, success=[pb.Operation(put=put)])
        try:
            response = await self._client.call(TXN, request)
        except NoSpace as error:
            return await self._without_space(key, expect, error)
        except OutcomeUnknown as error:
            return Unknown(str(error))
        return Won(str(response.header.revision)) if response.succeeded else Lost()

    async def delete(self, keys: Sequence[str]) -> None:
        names = [self._name(key) for key in keys]
        for begin in range(0, len(names), MAX_DELETES):
            # A transaction refuses a key that is named twice.
            some = dict.fromkeys(names[begin : begin + MAX_DELETES])
            operations = [pb.Operation(delete=pb.DeleteRequest(key=name)) for name in some]
            try:
                await self._client.call(TXN, pb.TxnRequest(success=operations))
            except StoreUnavailable as error:
                if not begin:
                    raise
                raise OutcomeUnknown(f"{error}; {begin} of {len(names)} keys were deleted before") from error

    async def usage(self) -> StoreUsage:
        """Of the fullest member."""
        statuses = await self._client.statuses()
        reported = max(status.db_size_quota for status in statuses)
        is_full = any(NOSPACE in error for status in statuses for error in status.errors)
        return StoreUsage(
            max(status.db_size_in_use for status in statuses),
            max(status.db_size for status in statuses),
            reported if reported > 0 else DEFAULT_QUOTA,
            f"{self._address} {OUT_OF_SPACE}" if is_full else "",
        )

    async def reclaim(self) -> str:
        """Compacts etcd, if all its keys are below the prefix: a compaction forgets what other keys were,
        too, which their watchers may still want."""
        before, after = (b"\0", self._bytes("")), (end_of(self._bytes("")), b"\0")
        try:
            for first, end in (before, after):
                request = pb.RangeRequest(key=first, range_end=end, limit=1, keys_only=True)
                response = await self._client.call(RANGE, request)
                if response.kvs:
                    return f"{self._address} has keys of others, too: {COMPACT_BY_ITSELF}"
            await self._client.call(COMPACT, pb.CompactionRequest(revision=response.header.revision))
        except StoreUnavailable as error:
            # Of a user who may not look at other keys, this is how etcd says so.
            if COMPACTED_ALREADY not in str(error):
                return f"{error} (it is not compacted: {COMPACT_BY_ITSELF})"
        return ""

    async def close(self) -> None:
        await self._client.close()

    async def _page_of(self, first: bytes, end: bytes, limit: int) -> pb.RangeResponse:
        """At most `limit` pairs. etcd bounds their number alone, so it is fitted to their sizes."""
        while True:
            count = min(limit, self._page)
            request = pb.RangeRequest(key=first, range_end=end, limit=count)
            try:
                response = await self._client.call(RANGE, request)
            except AnswerTooLarge as error:
                if count == 1:
                    raise StoreUnavailable(
                        f"{self._address}: a value below {self._address.prefix}/ is larger than any of "
                        "Dragoman: another program writes there; give Dragoman a prefix of its own"
                    ) from error
                self._page = max(count // 2, 1)
                continue
            if len(response.kvs) == self._page and response.ByteSize() < SCAN_BYTES // 4:
                self._page = min(self._page * 2, MAX_PAGE)
            return response

    async def _without_space(self, key: str, expect: str | None, error: NoSpace) -> PutOutcome:
        """StoreUnavailable if what was expected is still there: then the put had no effect. It was over
        before etcd reported the lack of space."""
        try:
            found = await self.get(key)
        except StoreUnavailable:
            return Unknown(str(error))
        if (found.version if found is not None else None) == expect:
            raise StoreUnavailable(str(error)) from error
        return Unknown(str(error))

    def _name(self, key: str) -> bytes:
        return self._bytes(check_key(key))

    def _bytes(self, text: str) -> bytes:
        # What is no key may be scanned for; it is not found.
        return f"{self._address.prefix}/{text}".encode("utf-8", "surrogatepass")

    def _key(self, name: bytes) -> str:
        return name[len(self._address.prefix) + 1 :].decode("utf-8", "replace")


def versioned(pair: pb.KeyValue) -> Versioned:
    return Versioned(pair.value, str(pair.mod_revision))


def revision_of(version: str) -> int | None:
    """None if no version of this store is written so."""
    if _REVISION.fullmatch(version) is None or (revision := int(version)) > MAX_REVISION:
        return None
    return revision


def end_of(prefix: bytes) -> bytes:
    """The first name after all that have the prefix, which is not empty and does not end with 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
