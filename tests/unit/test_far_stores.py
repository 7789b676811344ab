"""Far stores by URL: which are opened, with one client a bucket, and what is said of a URL that is wrong."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.journals.guarded import GuardedJournal
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.open import (
    FarOptions,
    FarStores,
    StoreUrls,
    UnknownStore,
    open_blobs,
    open_journal,
    open_metadata,
    open_segments,
    urls_in,
)
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, timed_metadata
from ledger.ports import Appended, PutOutcome, Unknown
from tests.support.s3_servers import ENVIRONMENT

WAIT_S = 60.0
ENDPOINT = "?endpoint=http://127.0.0.1:1&region=us-east-1"
DATA = Path("data")


@pytest.mark.parametrize(
    ("opening", "url", "says"),
    [
        (open_metadata, "s3://", "this one names no bucket"),
        (open_metadata, "s3:bucket/x", "this one names no bucket"),
        (open_segments, "s3://user:secret@bucket/x", "an S3 URL holds no credentials"),
        (open_blobs, "s3://bucket/x?secret_key=secret", "an S3 URL has no option 'secret_key'"),
        (open_blobs, "s3://bucket/x?endpoint=secret", "the endpoint of an S3 URL is http://HOST:PORT"),
        (open_blobs, "s3://bucket/x?endpoint=http://[secret", "an S3 URL is s3://BUCKET/PREFIX"),
        (open_metadata, "s3://bucket:secret/x", "an S3 URL is s3://BUCKET/PREFIX"),
        (open_metadata, "etcd:host/x", r"the URL of an etcd is etcd://HOST"),
        (open_metadata, "etcd://host", r"the URL of an etcd is etcd://HOST"),
        (open_metadata, "etcd://user:secret@host/x", "names no user and no password"),
        (
            open_metadata,
            "etcd://user:1/secret@host/x",
            "the prefix in the URL of an etcd has parts of letters",
        ),
        (open_metadata, "etcd://user:secret/1@host/x", r"is not HOST:PORT"),
        (open_metadata, "etcd://host/x?password=secret", "no options after its prefix"),
        (open_metadata, "filer://host", "the URL of a filer is filer://HOST"),
        (open_metadata, "filer://user:secret@host/x", "the URL of a filer is filer://HOST"),
        (open_metadata, "filer://user:1/secret@host/x", "the directory in the URL of a filer has parts of"),
    ],
)
def test_a_url_of_a_wrong_form_is_one_sentence_without_what_may_be_secret(
    opening: Callable[[str], object], url: str, says: str
) -> None:
    with pytest.raises(UnknownStore, match=says) as refused:
        opening(url)
    text = str(refused.value).replace("secret_key", "")
    assert "secret" not in text and "\n" not in text


@pytest.mark.parametrize("opening", [open_segments, open_blobs])
@pytest.mark.parametrize("url", ["etcd://host/x", "filer://host/x", "objects+s3://bucket/x"])
def test_a_store_of_another_port_is_not_taken(opening: Callable[[str], object], url: str) -> None:
    with pytest.raises(UnknownStore, match=r"^this build has no .* store for .*; it knows .*s3://BUCKET"):
        opening(url)


@pytest.mark.parametrize("style", [True, False])
def test_options_that_do_not_fit_the_url_are_a_sentence_too(aws_environment: None, style: bool) -> None:
    far = FarStores(FarOptions(s3_path_style=style))
    url = f"s3://bucket/x{ENDPOINT}"
    if style:
        far.blobs(url)
    else:
        with pytest.raises(UnknownStore, match="keep path style on"):
            far.blobs(url)


async def test_one_client_for_each_bucket_however_many_stores_are_in_it(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adapters.s3 import bucket

    opened: list[object] = []
    original = bucket.open_bucket

    def counting(address: Any, **options: Any) -> Any:
        opened.append(address)
        return original(address, **options)

    monkeypatch.setattr(bucket, "open_bucket", counting)
    far = FarStores()
    stores: list[Any] = [
        open_metadata(f"s3://one/metadata{ENDPOINT}", far=far),
        open_segments(f"s3://one/data{ENDPOINT}", far=far),
        open_blobs(f"s3://one/data{ENDPOINT}", far=far),
        open_blobs(f"s3://two/data{ENDPOINT}", far=far),
    ]
    assert [str(address) for address in opened] == [
        "s3://one/ at http://127.0.0.1:1",
        "s3://two/ at http://127.0.0.1:1",
    ]
    for store in stores:
        await store.close()


async def test_uploads_that_cannot_be_proved_for_whatever_reason_end_no_gateway(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adapters.s3 import bucket

    async def fails(*_: object) -> None:
        raise KeyError("UploadId")

    monkeypatch.setattr(bucket.S3Bucket, "prove_multipart", fails)
    far = FarStores()
    blobs = far.blobs(f"s3://one/data{ENDPOINT}")
    await far.prove_uploads()
    await blobs.close()


def test_a_password_is_in_no_text_of_the_options() -> None:
    assert "secret" not in repr(FarOptions(etcd_user="user", etcd_password="secret"))


@pytest.mark.parametrize(
    ("missing", "arguments", "says"),
    [
        ("obstore", ["--data", f"s3://bucket/x{ENDPOINT}"], "pip install 'dragoman[s3]'"),
        ("boto3", ["--metadata", f"s3://bucket/x{ENDPOINT}"], "pip install 'dragoman[s3]'"),
        ("grpc", ["--metadata", "etcd://127.0.0.1:1/x"], "pip install 'dragoman[etcd]'"),
        ("google.protobuf", ["--metadata", "filer://127.0.0.1:1/x"], "pip install 'dragoman[seaweedfs]'"),
    ],
)
def test_a_missing_extra_ends_with_2_and_the_line_that_installs_it(
    tmp_path: Path, missing: str, arguments: list[str], says: str
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from gateway.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "--listen", "PLAINTEXT://127.0.0.1:0", "--admin", ""]
    finished = subprocess.run(
        [*command, *arguments],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert finished.returncode == 2, finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("dragoman: ")]
    assert missing in line and line.endswith(says)


def test_the_packages_of_the_extras_are_not_loaded_without_such_a_url() -> None:
    code = (
        "import sys, gateway.assembly; "
        "sys.exit(bool({'boto3', 'botocore', 'obstore', 'grpc', 'google.protobuf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S).returncode == 0


@pytest.mark.parametrize("library", ["obstore", "grpc"])
def test_a_command_ends_before_threads_of_a_library_meet_the_end_of_python(library: str) -> None:
    code = (
        "import atexit, sys, types; from gateway.cli.main import main; "
        f"sys.modules[{library!r}] = types.ModuleType({library!r}); "
        "atexit.register(print, 'Python ends'); sys.argv = ['dragoman', 'doctor', '--data-dir', 'nowhere']; "
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("dragoman: there is no ledger in nowhere")


HERE = f"sqlite:{DATA / 'image.db'}"


@pytest.mark.parametrize(
    ("metadata", "data", "image", "expected", "is_here"),
    [
        ("", "", "", HERE, True),
        ("sqlite:/m/db", "file:/d", "", HERE, True),
        ("sqlite:/m/db", "file:/d", "none", None, False),
        ("", "file:/d", "none", None, True),
        ("memory:", "", "", None, True),
        ("memory:", "memory:", "", None, False),
        ("s3://b/m", "s3://b/d", "", None, False),
        ("s3://b/m", "s3://b/d", "none", None, False),
        ("s3://b/m", "s3://b/d", "sqlite:/scratch/image.db", "sqlite:/scratch/image.db", False),
        ("etcd://h/p", "s3://b/d", "", None, False),
        ("etcd://h/p", "", "", HERE, True),
        ("etcd://h/p", "file:/d", "", HERE, True),
        ("etcd://h/p", "memory:", "", None, False),
        ("", "s3://b/d", "", HERE, True),
        ("filer://h/r", "s3://b/d", "", None, False),
    ],
)
def test_an_image_and_a_data_directory_are_there_only_with_something_local(
    metadata: str, data: str, image: str, expected: str | None, is_here: bool
) -> None:
    urls = urls_in(DATA, metadata, data, image)
    assert urls.image == expected
    assert urls.directory == (DATA if is_here else None)


def test_only_metadata_in_memory_does_not_last() -> None:
    def lasts(metadata: str) -> bool:
        return StoreUrls(metadata, "s3://b/d", "s3://b/d", None, None).is_lasting

    assert not lasts("memory:")
    assert lasts("s3://b/m") and lasts("etcd://h/p") and lasts("sqlite:x")


class Guarding(MemoryMetadata):
    """As etcd: creates an entry and compares `start` in one step."""

    def __init__(self, outcome: PutOutcome | None = None) -> None:
        super().__init__(exclusive=False)
        self.guarded = 0
        self._outcome = outcome

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        self.guarded += 1
        return self._outcome or await self.put(key, value, None)


async def test_a_journal_over_a_store_that_guards_is_the_guarded_one_and_is_timed() -> None:
    metrics, store = Metrics(), Guarding()
    journal = open_journal(timed_metadata(store, StoreWatch(metrics)))
    assert isinstance(journal, GuardedJournal)
    appended = await journal.append(0, b"entry")
    assert appended == Appended(counts=True) and store.guarded == 1
    assert b'dragoman_store_seconds_count{op="put",store="metadata"} 1.0' in metrics.render()


async def test_an_unknown_guarded_append_shows_in_the_health_of_the_store() -> None:
    watch = StoreWatch(Metrics())
    timed: Any = timed_metadata(Guarding(Unknown("no response")), watch)
    await timed.create_guarded("journal/0/00", b"entry", "journal-start/0", None)
    assert "no response" in str(watch.health.failing())


def test_a_journal_over_any_other_store_is_the_plain_one() -> None:
    journal = open_journal(timed_metadata(MemoryMetadata(), StoreWatch(Metrics())))
    assert type(journal) is MetadataJournal
