"""A journal is reached through its port alone: no other module than its adapter makes its keys, but for the
names of entries with batches, which are objects of the ledger."""

import pytest

from tests.support.versions import ROOT

KINDS = ("journal/", "journal-start")
NAMED_IN = {
    "adapters/journals/metadata.py": KINDS,
    # The table of the kinds of keys, and the locators of entries with batches.
    "ledger/keys.py": KINDS,
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_a_journal_are_made_in_one_module(kind: str) -> None:
    naming = {
        str(path.relative_to(ROOT))
        for package in ("gateway", "ledger", "adapters", "pipeline", "bench", "tools")
        for path in (ROOT / package).rglob("*.py")
        if kind in path.read_text()
    }
    assert naming == {path for path, kinds in NAMED_IN.items() if kind in kinds}
