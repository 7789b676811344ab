"""The files of a log in their order, as the headers that were found in a directory say."""

from collections.abc import Sequence

from adapters.local_log.files import LogDirectory
from adapters.local_log.parts import LogPartFile
from ledger.formats.local_log import LogHeader
from ledger.formats.local_log_chain import parts_of


def chained(directory: LogDirectory, headers: Sequence[LogHeader]) -> list[LogPartFile]:
    """The files that have entries which count, oldest first. StoreDamaged for headers of different logs."""
    chain = parts_of(headers)
    parts = [
        LogPartFile(
            part.header,
            directory.path_of(part.header.file_id),
            directory.locator(part.header.file_id),
            part.end,
        )
        for part in chain
    ]
    for part, after in zip(parts, chain[1:], strict=False):
        part.next_seal = after.header.previous_seal
    return parts
