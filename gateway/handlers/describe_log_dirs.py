"""DescribeLogDirs (35), v1-5.

KIP-113. Gateways share one backing store, so there is one log directory. It has a name, not a path: clients
need not know which directory of which machine it is.

v1: throttled after the response. v2: flexible. v3: a top-level error. v4: TotalBytes and UsableBytes
(KIP-827). v5: IsCordoned (KIP-1066).
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from gateway.requests.context import RequestContext
from gateway.settings import Settings
from gateway.wire.messages.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

LOG_DIR: Final = "dragoman"
UNKNOWN: Final = -1
STATVFS_TIMEOUT_S: Final = 2.0


async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Partitions that do not exist are left out, as in Kafka."""
    service, slices = context.services.topics, context.slices
    if request.topics is None:
        requested = {
            topic.name: set(range(len(topic.partitions))) async for topic in slices.paced(service.all())
        }
    else:
        requested = {}
        async for topic in slices.paced(request.topics):
            requested.setdefault(topic.topic, set()).update(topic.partitions)
        keys = [(name, index) async for name, indexes in slices.paced(requested.items()) for index in indexes]
        await service.confirm_partitions_absent(keys, context.journal_deadline(), slices)
    total, usable = await _volume_bytes(context.services.settings)
    topics = [await _topic(context, name, indexes) async for name, indexes in slices.paced(requested.items())]
    found = [topic for topic in topics if topic.partitions]
    return DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir=LOG_DIR, topics=found, total_bytes=total, usable_bytes=usable)]
    )


async def _topic(context: RequestContext, name: str, indexes: set[int]) -> DescribeLogDirsTopic:
    topic = context.services.topics.get(name)
    made = topic.partitions.made if topic is not None else ()
    # A partition that is not made is empty.
    sizes = [
        DescribeLogDirsPartition(index, log.size_bytes if (log := made[index]) is not None else 0)
        async for index in context.slices.paced(sorted(indexes))
        if 0 <= index < len(made)
    ]
    return DescribeLogDirsTopic(name, sizes)


async def _volume_bytes(settings: Settings) -> tuple[int, int]:
    """(total, usable) of the file system that holds the records, or -1 if it is not one of this host."""
    directory = data_directory(settings)
    if directory is None:
        return UNKNOWN, UNKNOWN
    try:
        # A file system that hangs must hang neither the gateway nor the client.
        async with asyncio.timeout(STATVFS_TIMEOUT_S):
            found = await asyncio.to_thread(os.statvfs, directory)
    except (OSError, TimeoutError):
        return UNKNOWN, UNKNOWN
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def data_directory(settings: Settings) -> Path | None:
    """Where records are stored, if in files of this host."""
    storage = settings.storage
    if not storage.data:
        return Path(storage.data_dir)
    scheme, _, path = storage.data.removeprefix("objects+").partition(":")
    if scheme != "file":
        return None
    return Path(path.removeprefix("//") if path.startswith("///") else path)
