"""What is built below `.cache` is built once, whole, and by one process at a time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import made_once as module
from tests.support.made_once import made_once


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_of_several_that_want_it_one_makes_it(cache: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.mkdir()
        (path / "whole").touch()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: made_once("thing", make), range(4)))
    assert found == [cache / "thing"] * 4
    assert len(made) == 1 and (cache / "thing" / "whole").exists()


def test_what_fails_leaves_nothing_and_is_tried_again(cache: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        made_once("thing", fail)
    assert not (cache / "thing").exists()
    assert made_once("thing", lambda path: path.touch()).exists()
