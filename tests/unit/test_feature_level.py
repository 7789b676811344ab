"""The feature level: what a journal may hold, raised for ever by an operator's word."""

import pytest

from gateway.settings import NEWEST_FEATURE_LEVEL
from ledger.cluster.owners import Owners
from ledger.cluster.requests import BecomeOwner, Description
from ledger.image import all_rows, format_version, restore
from ledger.journal import decode_entry
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions.requests import CommitFile
from ledger.records import FIRST_LEVEL, NEWEST_LEVEL
from ledger.rows import META, digest
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

UPLOADER = Uploader(1, b"a" * 16)


def commit(number: int) -> CommitFile:
    batches = [commit_batch(topic_id(1), 0, at * 100) for at in range(3)]
    return CommitFile(locator(number, 1_000_000), 300, batches, upload=Upload(UPLOADER, number, number - 1))


def become_owner(ledger: JournalledLedger, level: int) -> None:
    ledger.submit(BecomeOwner(1, bytes(16), "", level))


def filled(level: int) -> JournalledLedger:
    ledger = JournalledLedger(level)
    ledger.submit(CreateTopic("t", topic_id(1), 2, {}))
    for number in range(1, 10):
        ledger.submit(commit(number))
    ledger.write_image()
    return ledger


def kinds(entry: bytes) -> list[str]:
    return [type(record).__name__ for record in decode_entry(entry, "entry").records]


def test_a_new_journal_begins_with_the_newest_level_and_another_keeps_its_own() -> None:
    ledger = JournalledLedger(0)
    assert ledger.state.feature_level == NEWEST_LEVEL
    assert kinds(ledger.entries[0]) == ["ClusterCreated", "FeatureLevelRaised", "OwnerChanged"]
    old = filled(FIRST_LEVEL)
    assert kinds(old.entries[0]) == ["ClusterCreated", "OwnerChanged"]
    become_owner(old, 0)
    assert old.state.feature_level == FIRST_LEVEL
    assert kinds(old.entries[-1]) == ["OwnerChanged"]


def test_the_setting_knows_the_newest_level() -> None:
    assert NEWEST_FEATURE_LEVEL == NEWEST_LEVEL


def test_a_level_is_raised_once_and_never_lowered() -> None:
    ledger = filled(FIRST_LEVEL)
    for _ in range(2):
        become_owner(ledger, 2)
        assert ledger.state.feature_level == 2
    assert [kinds(entry) for entry in ledger.entries[-2:]] == [
        ["FeatureLevelRaised", "OwnerChanged"],
        ["OwnerChanged"],
    ]
    become_owner(ledger, 1)
    assert ledger.state.feature_level == 2
    assert kinds(ledger.entries[-1]) == ["OwnerChanged"]


def test_below_level_2_nothing_of_it_is_written() -> None:
    """So that the version of Dragoman before can take the ledger over again."""
    ledger = filled(FIRST_LEVEL)
    for entry in ledger.entries:
        # Type, version and length of each record, after the head of the entry.
        pos = 40
        while pos < len(entry):
            assert entry[pos] < 21 and entry[pos + 1] == 0
            pos += 6 + int.from_bytes(entry[pos + 2 : pos + 6], "big")
    rows = list(all_rows(ledger.state))
    assert rows[0].section == META and (rows[0].value or b"")[:2] == b"\0\3"
    assert max(row.section for row in rows) < 11


def test_when_the_level_is_raised_the_image_is_written_again_as_a_whole() -> None:
    ledger = filled(FIRST_LEVEL)
    assert format_version(ledger.state.feature_level) == 3
    become_owner(ledger, 2)
    # write_image compares what the image says with the state.
    ledger.write_image()
    assert ledger.image[META, b""][:2] == b"\0\4"
    ledger.submit(commit(10))
    ledger.write_image()
    restored = restore(all_rows(ledger.state))
    assert (restored.feature_level, restored.image_level) == (2, 2)
    assert digest(all_rows(restored)) == digest(all_rows(ledger.state))


def test_level_3_writes_no_row_again_but_the_first() -> None:
    ledger = filled(2)
    become_owner(ledger, 3)
    before = dict(ledger.image)
    ledger.write_image()
    assert {key for key, value in ledger.image.items() if before[key] != value} == {(META, b"")}
    assert ledger.state.image_level == 3


def test_an_image_that_could_not_be_written_in_the_new_format_is_written_later() -> None:
    ledger = filled(FIRST_LEVEL)
    become_owner(ledger, 2)
    ledger.begin_image()
    ledger.end_image(fails=True)
    ledger.submit(commit(10))
    ledger.write_image()
    assert ledger.image[META, b""][:2] == b"\0\4"


@pytest.mark.parametrize(("level", "raised"), [(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)])
def test_journal_image_and_snapshot_give_the_same_state_across_the_raise(level: int, raised: int) -> None:
    ledger = filled(level)
    become_owner(ledger, raised)
    ledger.submit(commit(10), commit(11))
    for state in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert state.feature_level == raised
        assert digest(all_rows(state)) == digest(all_rows(ledger.state))


def test_an_image_of_a_build_whose_owners_did_not_describe_themselves_says_what_the_journal_does() -> None:
    ledger = filled(NEWEST_LEVEL)
    for number in range(12):
        described = Description(f"host-{number}", "a") if number > 1 else None
        ledger.submit(BecomeOwner(number, bytes(16), "", described=described))
        ledger.write_image()
    epochs = ledger.state.part(Owners).epochs
    assert [epoch.gateway for epoch in epochs] == list(range(4, 12))
    for state in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert state.part(Owners).epochs == epochs
        assert digest(all_rows(state)) == digest(all_rows(ledger.state))
