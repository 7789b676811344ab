"""Shards over a metadata store, and the journal of an open one with its store."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

from adapters.journals.metadata import MetadataJournal
from gateway.coordination import opening
from gateway.coordination.shard import Shard
from ledger.ports import Journal, MetadataStore

P = ParamSpec("P")


def _over_a_store(
    opened: Callable[Concatenate[Journal, P], Coroutine[Any, Any, Shard]],
) -> Callable[Concatenate[MetadataStore, P], Coroutine[Any, Any, Shard]]:
    def over_a_store(
        store: MetadataStore, /, *args: P.args, **options: P.kwargs
    ) -> Coroutine[Any, Any, Shard]:
        return opened(MetadataJournal(store, 0), *args, **options)

    return over_a_store


open_shard = _over_a_store(opening.open_shard)
"""As `gateway.coordination.opening.open_shard`, with the journal in the store that is given in its place."""


def journal_of(shard: Shard) -> MetadataJournal:
    """Its store may be looked at, and replaced by one that fails."""
    assert isinstance(shard.journal, MetadataJournal)
    return shard.journal
