"""The promises of ImageStore, kept by every backend."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.open import open_image
from ledger.errors import StoreError
from ledger.partitions.rows import PARTITION
from ledger.ports import ImageStore
from ledger.rows import META, Row
from tests.contract.killed import killed_writer
from tests.contract.writer import content, nonce_of, rows_of

BACKENDS = ["sqlite:{dir}/image"]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.format(dir=tmp_path))


@pytest.fixture
async def image(url: str) -> AsyncIterator[ImageStore]:
    image = open_image(url)
    yield image
    await image.close()


def in_order(loaded: tuple[Sequence[Row], bytes] | None) -> tuple[list[Row], bytes]:
    assert loaded is not None
    return sorted(loaded[0]), loaded[1]


async def test_there_is_no_image_before_the_first_write(image: ImageStore) -> None:
    assert await image.load() is None
    assert await image.rows() == ([], b"")
    assert await image.load() is None


async def test_what_was_written_is_loaded_with_its_nonce(image: ImageStore) -> None:
    rows = [Row(META, b"", b""), Row(META, b"\0k", bytes(range(256))), Row(PARTITION, b"\0k", b"other")]
    await image.write(rows, b"nonce")
    assert in_order(await image.load()) == (rows, b"nonce")
    assert in_order(await image.rows()) == (rows, b"nonce")


async def test_a_row_replaces_the_one_of_its_section_and_key(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1"), Row(META, b"b", b"1"), Row(PARTITION, b"a", b"1")], b"1")
    await image.write([Row(META, b"a", b"2")], b"2")
    left = [Row(META, b"a", b"2"), Row(META, b"b", b"1"), Row(PARTITION, b"a", b"1")]
    assert in_order(await image.load()) == (left, b"2")


async def test_a_row_without_a_value_is_removed_and_may_be_missing_already(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1"), Row(META, b"b", b"1")], b"1")
    gone = [Row(META, b"a", None), Row(META, b"absent", None)]
    for _ in range(2):
        await image.write(gone, b"2")
        assert in_order(await image.load()) == ([Row(META, b"b", b"1")], b"2")


async def test_a_write_without_rows_changes_the_nonce(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1")], b"1")
    await image.write([], b"2")
    assert in_order(await image.load()) == ([Row(META, b"a", b"1")], b"2")


async def test_a_cleared_image_has_nothing_and_takes_rows_again(image: ImageStore) -> None:
    await image.clear()
    assert await image.load() is None
    await image.write([Row(META, b"a", b"1")], b"1")
    await image.clear()
    assert await image.load() is None
    await image.write([Row(META, b"b", b"2")], b"2")
    assert in_order(await image.load()) == ([Row(META, b"b", b"2")], b"2")


async def test_a_removed_image_is_gone_until_one_is_written(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1")], b"1")
    for _ in range(2):
        await image.remove()
        assert await image.load() is None
    await image.write([Row(META, b"b", b"2")], b"2")
    assert in_order(await image.load()) == ([Row(META, b"b", b"2")], b"2")


async def test_calls_take_effect_in_the_order_in_which_they_were_made(image: ImageStore) -> None:
    writes = [image.write([Row(META, b"a", b"%d" % number)], b"%d" % number) for number in range(10)]
    await asyncio.gather(*writes)
    assert in_order(await image.load()) == ([Row(META, b"a", b"9")], b"9")


async def test_an_image_of_many_rows_comes_back_whole(image: ImageStore) -> None:
    rows = [Row(PARTITION, number.to_bytes(4, "big"), content(number)) for number in range(3_000)]
    await image.write(rows, b"1")
    assert in_order(await image.load()) == (rows, b"1")


async def test_a_write_that_fails_changes_nothing(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1")], b"1")
    unwritable: list[Row] = [Row(META, b"a", b"2"), Row(META, object(), b"2")]  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await image.write(unwritable, b"2")
    assert in_order(await image.load()) == ([Row(META, b"a", b"1")], b"1")


async def test_closing_is_idempotent_and_refuses_further_calls(image: ImageStore) -> None:
    await image.write([Row(META, b"a", b"1")], b"1")
    await image.close()
    await image.close()
    with pytest.raises(StoreError):
        await image.write([Row(META, b"a", b"2")], b"2")


async def test_it_names_its_place(image: ImageStore, tmp_path: Path) -> None:
    assert str(tmp_path) in image.location


async def test_what_was_written_is_there_after_closing_and_opening(url: str) -> None:
    first = open_image(url)
    await first.write([Row(META, b"a", b"1")], b"1")
    await first.close()
    second = open_image(url)
    assert in_order(await second.load()) == ([Row(META, b"a", b"1")], b"1")
    await second.close()


async def test_no_write_is_there_in_part_after_kill_9(url: str) -> None:
    acknowledged = killed_writer("images", url, 300)
    image = open_image(url)
    rows, nonce = in_order(await image.load())
    await image.close()
    last = int(nonce)
    assert last >= max(line["number"] for line in acknowledged)
    assert rows == rows_of(last) and nonce == nonce_of(last)
