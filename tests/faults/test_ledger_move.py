"""`dragoman ledger move`: a client goes on over the new stores; killed at every step the move goes on."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint
from gateway.cli.exits import Exit
from gateway.cli.ledger_move import MoveOptions, move_ledger
from gateway.cli.output import UsageError
from gateway.config import load_settings
from gateway.coordination.claim import MoveState, newest_claim, verify_data, verify_place
from gateway.coordination.recovery import recover
from gateway.offline.doctor import Diagnosis, check_batches, check_objects
from gateway.settings import Settings
from gateway.store_assembly import opened_stores
from ledger.errors import StoreDamaged
from tests.faults.load import Load, problems, read_all
from tests.support.data_files import damage_last_batch, files_with_records, object_of
from tests.support.far_stores import FarPlace
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
KILLED = [sys.executable, "-m", "tests.faults.move_killed"]
WAIT_S, MANY_WAIT_S = 60.0, 300.0
PARTITIONS = 2
QUICK_GROUPS = ["--set", "groups.group.initial.rebalance.delay.ms=0"]
MORE_THAN_ITS_CHANGES = 15
OK, STORE, IN_USE = 0, 4, 5


def dragoman(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=WAIT_S)


def exit_codes(jobs: Sequence[tuple[int, list[str]]]) -> list[int]:
    """Of moves that die after a number of changes each; 0: not at all."""
    finished = subprocess.run(
        KILLED, input=json.dumps(jobs), capture_output=True, text=True, timeout=MANY_WAIT_S, cwd=ROOT
    )
    assert finished.returncode == OK, finished.stderr
    return [int(code) for code in json.loads(finished.stdout)]


def refusal(gateway: Gateway) -> tuple[int, str]:
    gateway.log_path.unlink(missing_ok=True)
    gateway.launch()
    code = gateway.wait_for_exit()
    (said,) = [line for line in gateway.log_tail().splitlines() if line and not line.startswith("{")]
    return code, said


def until_acknowledged(load: Load, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(load.acks) < count:
        assert time.monotonic() < deadline and not load.failures, load.failures
        time.sleep(0.02)


def read_in_group(bootstrap: str, count: int) -> list[tuple[int, int]]:
    """The next records of the group, as (partition, offset). What it has read is committed."""
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["moved"])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline
            for message in consumer.consume(count - len(found), 1.0):
                assert message.error() is None, message.error()
                found.append((int(message.partition() or 0), int(message.offset() or 0)))
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def topic_id(gateway: Gateway) -> object:
    with Endpoint(Contact(gateway.bootstrap)) as endpoint:
        return endpoint.topics(["moved"])["moved"].topic_id


@pytest.mark.parametrize("far", [pytest.param("bucket", marks=pytest.mark.full), "etcd+s3"], indirect=True)
def test_clients_go_on_over_far_stores_and_the_old_directory_refuses(
    gateway_factory: GatewayFactory, far: FarPlace
) -> None:
    old = gateway_factory(QUICK_GROUPS)
    old.start()
    at = ["-b", old.bootstrap]
    assert dragoman("topics", "create", "moved", "-p", str(PARTITIONS), *at).returncode == OK
    load = Load(old.bootstrap, "idempotent", "moved", PARTITIONS, pause_s=0.005).start()
    until_acknowledged(load, 200)
    before, known = read_in_group(old.bootstrap, 100), topic_id(old)
    # In the middle of what the producer sends.
    old.terminate()
    arguments = ["ledger", "move", "--data-dir", str(old.data_dir)]
    arguments += ["--to-metadata", far.metadata, "--to-data", far.data]
    moved = dragoman(*arguments, "--json")
    assert moved.returncode == OK, moved.stderr
    done = json.loads(moved.stdout)
    assert done["moved"] and done["groups"] == 1 and done["committed_offsets"] >= 1
    assert "dragoman serve --metadata" in moved.stderr and far.data in moved.stderr
    code, said = refusal(old)
    assert code == STORE and "was moved" in said and far.data in said

    new = gateway_factory(
        [*far.options(), *QUICK_GROUPS], listen=f"PLAINTEXT://{old.bootstrap}", data_dir=Path("data")
    )
    new.start()
    until_acknowledged(load, len(load.acks) + 200)
    load.finish()
    assert not load.failures
    assert topic_id(new) == known
    after = read_in_group(new.bootstrap, 100)
    assert not set(before) & set(after)
    for partition in range(PARTITIONS):
        offsets = [offset for number, offset in [*before, *after] if number == partition]
        assert offsets == list(range(len(offsets)))
    assert problems(read_all(new.bootstrap, {"moved": PARTITIONS}), load.acks) == []


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stopped gateway with 300 records."""
    gateway = Gateway(tmp_path_factory.mktemp("written"))
    gateway.start()
    try:
        at = ["-b", gateway.bootstrap]
        assert dragoman("topics", "create", "t", "-p", "3", *at).returncode == OK
        lines = "".join(f"{number}\n" for number in range(300))
        assert dragoman("produce", "t", *at, stdin=lines).returncode == OK
        # In a copy a damaged last frame of the log is one that a loss of power has torn.
        assert dragoman("topics", "create", "later", *at).returncode == OK
    finally:
        gateway.terminate()
    return gateway.data_dir


def arguments_of(root: Path) -> list[str]:
    target = ["--to-metadata", f"sqlite:{root}/new/m.db", "--to-data", f"objects+file:{root}/new/objects"]
    return ["ledger", "move", "--data-dir", str(root / "data"), *target]


async def starts_with_all(data_dir: Path, metadata: str = "", data: str = "") -> bool:
    """Whether a gateway may start on these stores; then all records must be there."""
    urls = {"storage.data_dir": str(data_dir), "storage.metadata": metadata, "storage.data": data}
    if not data_dir.exists():
        return False
    async with opened_stores(load_settings(urls, {})) as stores:
        try:
            await verify_place(stores.journal, stores.blobs)
            state = (await recover(stores.journal, None, stores.blobs)).state
            await verify_data(stores.journal, stores.blobs, state)
        except StoreDamaged:
            return False
        if not state.applied:
            return False
        diagnosis = Diagnosis()
        await check_objects(state, stores.segments, diagnosis)
        await check_batches(state, stores.segments, diagnosis, whole=True)
        assert diagnosis.findings == []
        assert sum(log.high_watermark for log in state.topics.by_name["t"].partitions) == 300
        return True


async def state_of_move(data_dir: Path) -> MoveState | None:
    async with opened_stores(load_settings({"storage.data_dir": str(data_dir)}, {})) as stores:
        _, claim = await newest_claim(stores.blobs, 0)
        return claim.move.state if claim is not None and claim.move is not None else None


async def places_that_start(root: Path) -> list[bool]:
    new = root / "new"
    return [
        await starts_with_all(root / "data"),
        await starts_with_all(new, f"sqlite:{new}/m.db", f"objects+file:{new}/objects"),
    ]


async def test_killed_after_each_change_one_place_starts_and_the_command_goes_on(
    written: Path, tmp_path: Path
) -> None:
    roots = [tmp_path / str(number) for number in range(1, MORE_THAN_ITS_CHANGES)]
    for root in roots:
        shutil.copytree(written, root / "data")
    codes = exit_codes([(number, arguments_of(root)) for number, root in enumerate(roots, 1)])
    killed = [root for root, code in zip(roots, codes, strict=True) if code == -signal.SIGKILL]
    assert codes == [-signal.SIGKILL] * len(killed) + [OK] * (len(roots) - len(killed))
    assert 8 < len(killed) < len(roots)
    in_doubt = [root for root in killed if not await only_one_place_starts(root)]
    # After the claim of the old place, and after each of the three changes with which the journal begins.
    assert len(in_doubt) == 4
    old = str(in_doubt[0] / "data")
    refused = dragoman("serve", "--data-dir", old, "--listen", "PLAINTEXT://127.0.0.1:0")
    assert refused.returncode == STORE and "run the same `dragoman ledger move` again" in refused.stderr

    cancelled = in_doubt.pop()
    rest = [root for root in killed if root != cancelled]
    jobs = [(0, arguments_of(root)) for root in rest] + [(0, [*arguments_of(cancelled), "--cancel"])]
    assert set(exit_codes(jobs)) == {OK}
    for root in rest:
        assert await places_that_start(root) == [False, True]
    assert await places_that_start(cancelled) == [True, False]


async def only_one_place_starts(root: Path) -> bool:
    """False: none does, as a move is at its last step."""
    places = await places_that_start(root)
    if await state_of_move(root / "data") is MoveState.LEAVING and not any(places):
        return False
    assert sorted(places) == [False, True]
    return True


def settings_in(root: Path) -> Settings:
    return load_settings({"storage.data_dir": str(root / "data")}, {})


def test_a_move_names_what_is_wrong_and_changes_nothing(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(written, tmp_path / "data")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    settings = settings_in(tmp_path)
    metadata, objects = f"sqlite:{tmp_path}/new/m.db", f"objects+file:{tmp_path}/new/objects"
    for to_metadata, to_data, said in (
        (f"sqlite:{tmp_path}/data/m.db", objects, "a directory that the ledger is in"),
        (metadata, f"objects+file:{tmp_path}/data", "a directory that the ledger is in"),
        (metadata, f"file:{tmp_path}/new", "copy the data directory"),
        ("etcd://user:secret@host/p", objects, "holds no credentials"),
        ("memory:", objects, "ends with the process"),
        (metadata, "objects+memory:", "ends with the process"),
    ):
        with pytest.raises(UsageError, match=said) as raised:
            move_ledger(settings, MoveOptions(to_metadata, to_data))
        assert "secret" not in str(raised.value)
    assert move_ledger(settings, MoveOptions(metadata, objects, dry_run=True, as_json=True)) is Exit.OK
    out = capsys.readouterr().out
    planned = json.loads(out[out.index("{\n") :])
    assert not planned["moved"] and planned["partitions"] == 4 and planned["objects"] == 1
    with pytest.raises(UsageError, match="no move is at its last step"):
        move_ledger(settings, MoveOptions(metadata, objects, cancel=True))
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_damaged_object_ends_with_findings_until_that_is_accepted(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(written, tmp_path / "data")
    path = files_with_records(tmp_path / "data")[-1]
    damage_last_batch(path)
    damaged = path.read_bytes()
    options = MoveOptions(f"sqlite:{tmp_path}/new/m.db", f"objects+file:{tmp_path}/new/objects")
    assert move_ledger(settings_in(tmp_path), options) is Exit.FINDINGS
    said = capsys.readouterr().err
    assert path.name in said and "CRC" in said and "Nothing has moved" in said
    assert move_ledger(settings_in(tmp_path), replace(options, accept_damage=True)) is Exit.OK
    assert path.name in capsys.readouterr().err
    assert (tmp_path / "new" / "objects" / "blobs" / object_of(path)).read_bytes() == damaged


def test_a_move_beside_a_gateway_ends_with_5(gateway: Gateway, tmp_path: Path) -> None:
    target = arguments_of(tmp_path)[4:]
    refused = dragoman("ledger", "move", "--data-dir", str(gateway.data_dir), *target)
    assert refused.returncode == IN_USE and str(gateway.pid) in refused.stderr
