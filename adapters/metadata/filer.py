"""Metadata in a SeaweedFS filer: a file a key, whose content is in its entry, below one directory.

The version is a random number in the attribute in which SeaweedFS has the ETag of a file. A put is one
ObjectTransaction, which the filer holds a lock for: it compares the ETag, or that there is no such file, and
writes. Plain creation and update are exact on one filer alone.
"""

import os
import re
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Final

from adapters.metadata.filer_client import BATCH, TRANSACTION, FilerAddress, FilerClient, address_of
from adapters.names import check_key
from adapters.rpc.caller import Limits
from adapters.rpc.failures import brief
from adapters.rpc.generated import filer_pb2 as pb
from adapters.rpc.tls import Tls
from ledger.errors import OutcomeUnknown, StoreDamaged, StoreUnavailable
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, Unknown, Versioned, Won

ETAG: Final = "Seaweed-X-Amz-ETag"
VERSION_BYTES: Final = 16
FILE_MODE: Final = 0o600
MAX_DELETES: Final = 128
MAX_PAGE: Final = 1024
_VERSION: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_BEFORE_SLASH: Final = re.compile(r"[\x00-.]")
"""Characters that sort before `/`: of names `-` and `.`, and others where a scan begins."""


class FilerMetadata:
    """A MetadataStore. SeaweedFS does not sync what it writes into a filer store of its own (leveldb), so it
    promises nothing about loss of power, unless the operator does: `durable_ack`."""

    exclusive = False
    unique_versions = True

    def __init__(
        self,
        url: str,
        *,
        tls: Tls | None = None,
        limits: Limits | None = None,
        durable_ack: bool = False,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`filer://HOST[:PORT]/ROOT` with the port of its gRPC. ValueError for another URL, StoreUnavailable
        with one sentence for the operator if the filer will not do."""
        self.durable_ack = durable_ack
        self._address = address_of(url)
        self._random = random
        self._client = FilerClient(self._address, tls, limits or Limits())
        self._client.open()

    async def get(self, key: str) -> Versioned | None:
        directory, name = self._place(check_key(key))
        entry = await self._client.look_up(directory, name)
        return None if entry is None or entry.is_directory else self._versioned(key, entry)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        scan = _Scan(prefix, start, limit)
        folder = prefix[: prefix.rfind("/") + 1]
        if not {"", ".", ".."} & set(folder.split("/")[:-1]):
            await self._scan(scan, folder)
        return scan.found

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        directory, name = self._place(check_key(key))
        if expect is not None and _VERSION.fullmatch(expect) is None:
            return Lost()
        version = self._random(VERSION_BYTES).hex()
        entry = pb.Entry(
            name=name,
            attributes=pb.Attributes(file_size=len(value), file_mode=FILE_MODE),
            extended=[pb.Entry.Extended(key=ETAG, value=version.encode())],
            content=bytes(value),
        )
        if expect is None:
            clause = pb.Condition.Clause(kind=pb.Condition.IF_NOT_EXISTS)
        else:
            clause = pb.Condition.Clause(kind=pb.Condition.IF_ETAG_MATCH, etags=[expect])
        mutation = pb.Mutation(type=pb.Mutation.PUT, directory=directory, name=name, entry=entry)
        try:
            response = await self._client.call(
                TRANSACTION, transaction(directory, name, mutation, pb.Condition(clauses=[clause]))
            )
        except OutcomeUnknown as error:
            return Unknown(str(error))
        return outcome_of(self._address, response, version)

    async def delete(self, keys: Sequence[str]) -> None:
        places = [self._place(check_key(key)) for key in keys]
        for begin in range(0, len(places), MAX_DELETES):
            some = [deletion(*place) for place in places[begin : begin + MAX_DELETES]]
            try:
                batch = await self._client.call(BATCH, pb.BatchRequest(transactions=some))
            except StoreUnavailable as error:
                if not begin:
                    raise
                raise OutcomeUnknown(f"{error}; {begin} of {len(keys)} keys were deleted before") from error
            for response in batch.responses:
                if response.error or response.error_code:
                    raise OutcomeUnknown(f"{self._address} could not delete a key: {brief(response.error)}")

    async def close(self) -> None:
        await self._client.close()

    async def _scan(self, scan: "_Scan", folder: str) -> None:
        """All keys that begin with `folder`, which is empty or ends with `/`. Folders are in the order of
        their keys, which have a `/` after the name: `a-` and `a.` are names after `a`, keys before `a/`."""
        pending: list[str] = []
        start, inclusive = scan.first_name(folder), True
        while not scan.is_full:
            entries, more = await self._page(scan, folder, start, inclusive)
            for entry in entries:
                key = folder + entry.name
                while pending and pending[0] < key:
                    await self._scan(scan, pending.pop(0))
                if entry.is_directory:
                    if scan.concerns(f"{key}/"):
                        insort(pending, f"{key}/")
                elif scan.wants(key):
                    scan.take(key, self._versioned(key, entry))
            if not more:
                break
            start, inclusive = entries[-1].name, False
        while pending and not scan.is_full:
            await self._scan(scan, pending.pop(0))

    async def _page(
        self, scan: "_Scan", folder: str, start: str, inclusive: bool
    ) -> tuple[Sequence[pb.Entry], bool]:
        """Entries of a folder, and whether there may be more."""
        request = pb.ListRequest(
            directory=f"{self._address.root}/{folder}"[:-1],
            prefix=scan.name_prefix(folder),
            start=start,
            inclusive=inclusive,
            limit=min(scan.limit, MAX_PAGE),
        )
        size = 0

        def is_enough(entry: pb.Entry) -> bool:
            nonlocal size
            # Files of others have their pieces and attributes in it.
            size += entry.ByteSize()
            return bool(size >= SCAN_BYTES)

        entries = await self._client.listed(request, is_enough)
        return entries, len(entries) == request.limit or size >= SCAN_BYTES

    def _place(self, key: str) -> tuple[str, str]:
        """Directory and name of a file."""
        folder, _, name = f"{self._address.root}/{key}".rpartition("/")
        return folder, name

    def _versioned(self, key: str, entry: pb.Entry) -> Versioned:
        for extended in entry.extended:
            if extended.key == ETAG and len(entry.content) == entry.attributes.file_size:
                return Versioned(entry.content, extended.value.decode("ascii", "replace"))
        raise StoreDamaged(
            f"{self._address} has a file {self._address.root}/{key} that Dragoman did not write: give it a "
            "directory of its own"
        )


class _Scan:
    """What is looked for, and what was found."""

    def __init__(self, prefix: str, start: str, limit: int) -> None:
        self.limit = limit
        self.found: list[tuple[str, Versioned]] = []
        self._prefix = prefix
        self._low = max(prefix, start)
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.limit or self._size >= SCAN_BYTES

    def wants(self, key: str) -> bool:
        return not self.is_full and key >= self._low and key.startswith(self._prefix)

    def take(self, key: str, found: Versioned) -> None:
        self.found.append((key, found))
        # Of values alone, as `scan` promises.
        self._size += len(found.value)

    def concerns(self, folder: str) -> bool:
        """Keys that begin with `folder` may be looked for. `0` is the character after `/`."""
        fits = folder.startswith(self._prefix) or self._prefix.startswith(folder)
        return fits and self._low < f"{folder[:-1]}0"

    def name_prefix(self, folder: str) -> str:
        rest = self._prefix[len(folder) :] if self._prefix.startswith(folder) else ""
        return rest.partition("/")[0]

    def first_name(self, folder: str) -> str:
        """No name before it concerns the scan. Of `a-b` that is `a`: keys in a folder `a` are after it. Empty
        where the prefix decides: a filer lists nothing from a name that is before it."""
        if not self._low.startswith(folder):
            return ""
        name = _BEFORE_SLASH.split(self._low[len(folder) :].partition("/")[0])[0]
        return name if name >= self.name_prefix(folder) else ""


def outcome_of(filer: FilerAddress, response: pb.TransactionResponse, version: str) -> PutOutcome:
    """Of a put with that version. StoreUnavailable: it certainly had no effect."""
    # Newer filers may have codes of which nothing is known here.
    why = brief(response.error) or f"code {response.error_code}"
    match response.error_code:
        case pb.PRECONDITION_FAILED | pb.ALREADY_EXISTS:
            return Lost()
        case pb.OK if not response.error:
            return Won(version)
        case pb.NAME_TOO_LONG | pb.PARENT_IS_FILE | pb.EXISTING_IS_DIRECTORY | pb.EXISTING_IS_FILE:
            raise StoreUnavailable(
                f"{filer} cannot keep a key below {filer.root} ({why}): give Dragoman a directory of its own"
            )
    return Unknown(f"{filer} could not write: {why}")


def transaction(
    directory: str, name: str, mutation: pb.Mutation, condition: pb.Condition | None = None
) -> pb.TransactionRequest:
    """One at a time for this file, also where a filer reaches another one."""
    path = f"{directory}/{name}"
    return pb.TransactionRequest(
        lock_key=path, route_key=path, condition_key=path, condition=condition, mutations=[mutation]
    )


def deletion(directory: str, name: str) -> pb.TransactionRequest:
    mutation = pb.Mutation(type=pb.Mutation.DELETE, directory=directory, name=name, is_delete_data=True)
    return transaction(directory, name, mutation)
