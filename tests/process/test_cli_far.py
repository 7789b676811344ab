"""Stores elsewhere that will not do: one sentence, exit code 4 at the start, and what `doctor` says."""

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.s3.bucket import open_bucket
from gateway.coordination.claim import claim_data
from gateway.host import clock_ms
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.shards import open_shard
from tests.support.weed import REGION, SECRET_KEY

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
SERVE = ["serve", "--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0"]
DOCTOR = ["doctor"]
UNSAFE = ["--set", "storage.allow_unsafe_acks=true"]
ABSENT_BUCKET = "s3://absent-bucket/p?endpoint=ENDPOINT"
WAIT_S = 60.0
NO_SERVER = "127.0.0.1:1"
EXPIRY = {"ID": "cleaning", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
EXPIRES = "its lifecycle rule 'cleaning' of the whole bucket deletes objects 7 days old"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False)


def only_sentence(finished: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in finished.stderr
    assert SECRET_KEY not in finished.stderr
    # Other lines are of the log, and of nothing else: no warning of Python.
    assert "Warning" not in finished.stderr
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("dragoman: "))
    return line


def urls(metadata: str, data: str = "") -> list[str]:
    return ["--metadata", metadata, "--data", data or metadata]


def s3_url(server: S3Server, bucket: str, prefix: str) -> str:
    return f"s3://{bucket}/{prefix}?endpoint={server.endpoint}&region={REGION}"


@pytest.fixture
def own_bucket(moto_s3: S3Server) -> str:
    name = f"cli-{uuid.uuid4().hex}"
    moto_s3.boto3_client().create_bucket(Bucket=name)
    return name


@pytest.mark.parametrize(
    ("command", "metadata", "says"),
    [
        (SERVE, ABSENT_BUCKET, "there is no such bucket: create it, or correct the URL"),
        (DOCTOR, ABSENT_BUCKET, "there is no such bucket: create it, or correct the URL"),
        (SERVE, f"etcd://{NO_SERVER}/p", "no server listens there: start it"),
        (SERVE, f"filer://{NO_SERVER}/p", "no server listens there: start it"),
    ],
)
def test_a_store_that_is_not_there_ends_with_4(
    moto_s3: S3Server, command: Sequence[str], metadata: str, says: str
) -> None:
    data = s3_url(moto_s3, BUCKET, uuid.uuid4().hex)
    flags = [*urls(metadata.replace("ENDPOINT", moto_s3.endpoint), data), *UNSAFE]
    finished = run(*command, *flags)
    assert finished.returncode == 4, finished.stderr
    assert says in only_sentence(finished)


def test_a_bucket_that_deletes_records_is_refused_and_reported(moto_s3: S3Server, own_bucket: str) -> None:
    moto_s3.boto3_client().put_bucket_lifecycle_configuration(
        Bucket=own_bucket, LifecycleConfiguration={"Rules": [EXPIRY]}
    )
    stores = urls(s3_url(moto_s3, own_bucket, "p"))
    served = run(*SERVE, *stores)
    assert served.returncode == 4, served.stderr
    assert EXPIRES in only_sentence(served)
    checked = run("doctor", *stores, "--json")
    assert checked.returncode == 3, checked.stderr
    (finding,) = json.loads(checked.stdout)["findings"]
    assert finding.startswith(f"s3://{own_bucket}/p/ at {moto_s3.endpoint}: {EXPIRES}")
    assert moto_s3.boto3_client().list_objects_v2(Bucket=own_bucket)["KeyCount"] == 0


async def test_a_ledger_in_a_bucket_is_checked_with_its_bucket(moto_s3: S3Server, own_bucket: str) -> None:
    url = s3_url(moto_s3, own_bucket, "p")
    store = open_bucket(url, PATIENT).metadata()
    shard = await open_shard(store, None, None, 1, clock_ms)
    await shard.close()
    await store.close()
    client: Any = moto_s3.boto3_client()
    client.create_multipart_upload(Bucket=own_bucket, Key="p/snapshot/0/a")
    checked = run("doctor", *urls(url), "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    notes = json.loads(checked.stdout)["notes"]
    for note in (
        f"proof: the metadata in s3://{own_bucket}/ at {moto_s3.endpoint} keeps what the ledger rests on",
        f"proof: the data in s3://{own_bucket}/ at {moto_s3.endpoint} keeps what the ledger rests on",
        f"s3://{own_bucket}/p/ at {moto_s3.endpoint}: unfinished uploads: 1 that were begun more than a day "
        "ago aborted, 0 left",
        "journal: 1 entry is readable, begun from its first entry",
    ):
        assert note in notes


async def test_a_backup_is_refused_in_a_bucket_that_a_gateway_has_claimed(
    moto_s3: S3Server, own_bucket: str
) -> None:
    own, other = s3_url(moto_s3, own_bucket, "own"), s3_url(moto_s3, own_bucket, "other")
    for url in (own, other):
        bucket = open_bucket(url, PATIENT)
        store, blobs = bucket.metadata(), bucket.blobs()
        shard = await open_shard(store, blobs, None, 1, clock_ms)
        await claim_data(shard, blobs, is_lasting=True)
        await shard.close()
        await store.close()
    client: Any = moto_s3.boto3_client()
    before = client.list_objects_v2(Bucket=own_bucket)["KeyCount"]
    refused = run("ledger", "backup", "--to", other, *urls(own))
    assert refused.returncode == 2, refused.stderr
    assert "has the data of a gateway" in only_sentence(refused)
    assert client.list_objects_v2(Bucket=own_bucket)["KeyCount"] == before
    for _ in range(2):
        made = run("ledger", "backup", "--to", s3_url(moto_s3, own_bucket, "backup"), *urls(own))
        assert made.returncode == 0, made.stderr
