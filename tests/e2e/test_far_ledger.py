"""`dragoman ledger ...` on far stores: shown, backed up and restored, also to and from a bucket."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import running_gateway
from gateway.cli.exits import Exit
from gateway.cli.ledger import backup, restore, show
from gateway.cli.offline_state import warn_of_writer
from gateway.cli.output import UsageError
from gateway.config import load_settings
from gateway.settings import Settings
from ledger.state import LedgerState
from tests.e2e.client_confluent import ConfluentClient
from tests.support.far_stores import FarPlace
from tests.support.s3_servers import BUCKET, S3Server

ON_LOOPBACK: Mapping[str, object] = {"listeners.listen": ("PLAINTEXT://127.0.0.1:0",), "admin.listen": ""}
TOPIC = "shown"


def settings_of(place: FarPlace) -> Settings:
    return load_settings({**place.settings(), **ON_LOOPBACK, "log.level": "warning"}, {})


def serve_once(place: FarPlace, topic: str = "") -> str:
    """Start a gateway, create the topic, and stop it again. Returns the id of the cluster."""

    async def run() -> str:
        async with running_gateway(settings_of(place)) as gateway:
            if topic:
                client = ConfluentClient(str(gateway.bound[0]))
                await asyncio.to_thread(client.create_topic, topic, 2)
            return gateway.services.cluster_id

    return asyncio.run(run())


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON, after the log."""
    out = capsys.readouterr().out
    return json.loads(out[out.index("{\n") :])


@pytest.mark.parametrize("far", ["bucket"], indirect=True)
def test_a_ledger_in_a_bucket_is_shown_backed_up_and_restored(
    far: FarPlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(far)
    with pytest.raises(UsageError, match=r"there is no ledger in s3://"):
        show(settings, True)
    cluster_id = serve_once(far, TOPIC)
    capsys.readouterr()
    assert show(settings, True) is Exit.OK
    shown = printed(capsys)
    assert shown["cluster_id"] == cluster_id
    assert [topic["name"] for topic in shown["topics"]] == [TOPIC]
    in_bucket = far.data.replace("/data?", "/backup?")
    assert backup(settings, in_bucket, True) is Exit.OK
    assert backup(settings, str(tmp_path / "backup"), True) is Exit.OK
    with pytest.raises(UsageError, match="--to is where the data is"):
        backup(settings, far.data, True)
    with pytest.raises(UsageError, match=r"holds a ledger: .*another place \(--metadata\)"):
        restore(settings, in_bucket, True)
    for number, source in enumerate((in_bucket, str(tmp_path / "backup"))):
        again = replace(far, metadata=far.metadata.replace("/metadata?", f"/restored-{number}?"))
        assert restore(settings_of(again), source, True) is Exit.OK
        assert serve_once(again) == cluster_id
        capsys.readouterr()
        show(settings_of(again), True)
        assert [topic["name"] for topic in printed(capsys)["topics"]] == [TOPIC]


def test_a_ledger_is_backed_up_while_its_gateway_runs(
    moto_s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = FarPlace("bucket", moto_s3.url(), moto_s3.url())

    async def run() -> None:
        async with running_gateway(settings_of(place)) as gateway:
            client = ConfluentClient(str(gateway.bound[0]))
            await asyncio.to_thread(client.create_topic, TOPIC, 2)
            done = await asyncio.to_thread(backup, settings_of(place), str(tmp_path), True)
            assert done is Exit.OK

    asyncio.run(run())
    restored = settings_of(FarPlace("bucket", moto_s3.url(), place.data))
    assert restore(restored, str(tmp_path), True) is Exit.OK
    capsys.readouterr()
    show(restored, True)
    assert [topic["name"] for topic in printed(capsys)["topics"]] == [TOPIC]


def test_metadata_and_records_may_have_the_same_url(
    moto_s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = moto_s3.url()
    same = FarPlace("bucket", url, url)
    cluster_id = serve_once(same, TOPIC)
    assert serve_once(same) == cluster_id
    capsys.readouterr()
    show(settings_of(same), True)
    shown = printed(capsys)
    assert [topic["name"] for topic in shown["topics"]] == [TOPIC]
    # Nothing of the metadata is taken for an object of records.
    assert shown["objects"]["orphans"] == [] and shown["objects"]["live"] == 0


def test_a_gateway_without_an_image_claims_its_data_all_the_same(moto_s3: S3Server) -> None:
    url = moto_s3.url()
    serve_once(FarPlace("bucket", url, url))
    prefix = url.partition("?")[0].removeprefix(f"s3://{BUCKET}/")
    found = moto_s3.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/claim/")
    assert found["KeyCount"] == 1


async def test_a_gateway_that_writes_meanwhile_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    journal = MetadataJournal(MemoryMetadata(exclusive=False), 0)
    state = LedgerState()
    await warn_of_writer(journal, state)
    assert capsys.readouterr().err == ""
    await journal.append(state.applied, b"an entry")
    await warn_of_writer(journal, state)
    assert "A gateway writes to this ledger" in capsys.readouterr().err
