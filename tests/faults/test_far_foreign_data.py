"""Two clusters on one prefix of a bucket: the first has it, and the other is refused before it can delete."""

import asyncio
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import RunningGateway, running_gateway
from gateway.config import load_settings
from gateway.settings import Settings
from ledger.errors import StoreDamaged
from tests.support.s3_servers import BUCKET, S3Server


def settings_of(directory: Path, data: str) -> Settings:
    """With metadata of its own in the directory."""
    flags: dict[str, Any] = {
        "storage.data_dir": str(directory),
        "storage.data": data,
        "listeners.listen": "PLAINTEXT://127.0.0.1:0",
        "admin.listen": "",
    }
    return load_settings(flags, {})


def objects(server: S3Server, prefix: str) -> set[str]:
    found = server.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")
    return {one["Key"] for one in found.get("Contents", [])}


async def test_the_data_of_a_cluster_in_a_bucket_is_refused_to_another(
    weed_s3: S3Server, tmp_path: Path
) -> None:
    prefix = uuid.uuid4().hex
    data = weed_s3.url(prefix)
    async with running_gateway(settings_of(tmp_path / "first", data)) as gateway:
        cluster = gateway.services.cluster_id
    stored = await asyncio.to_thread(objects, weed_s3, prefix)
    assert f"{prefix}/cluster-id" in stored
    with pytest.raises(StoreDamaged, match=rf"belongs to another cluster \({cluster}\)"):
        async with running_gateway(settings_of(tmp_path / "second", data)):
            pass
    assert await asyncio.to_thread(objects, weed_s3, prefix) == stored
    async with running_gateway(settings_of(tmp_path / "first", data)) as gateway:
        assert gateway.services.cluster_id == cluster


async def test_of_two_clusters_that_begin_at_once_one_gets_the_prefix(
    weed_s3: S3Server, tmp_path: Path
) -> None:
    data = weed_s3.url(uuid.uuid4().hex)
    async with AsyncExitStack() as stack:

        async def start(name: str) -> RunningGateway:
            gateway = running_gateway(settings_of(tmp_path / name, data))
            return await stack.enter_async_context(gateway)

        results = await asyncio.gather(start("first"), start("second"), return_exceptions=True)
    started = [result for result in results if isinstance(result, RunningGateway)]
    refused = [result for result in results if not isinstance(result, RunningGateway)]
    assert len(started) == 1, results
    # By the id of the cluster, or by its claim, if the other was that far already.
    assert isinstance(refused[0], StoreDamaged)
