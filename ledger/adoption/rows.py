"""Image rows of adoptions, from feature level 4 on. The key is the topic id, and the value
`B is open | 16s digest | URL of the place`."""

from collections.abc import Iterable, Sequence

from ledger.adoption.requests import DIGEST_BYTES
from ledger.adoption.state import Adoption, Adoptions
from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.state import LedgerState
from ledger.types import TOPIC_ID_BYTES, TopicId

ADOPTION = 17
_PLACE_AT = 1 + DIGEST_BYTES


def _keys(state: LedgerState) -> Iterable[TopicId]:
    return state.part(Adoptions)


def _encode(state: LedgerState, topic_id: TopicId) -> bytes | None:
    adoption = state.part(Adoptions).get(topic_id)
    if adoption is None:
        return None
    return bytes([adoption.is_open]) + adoption.digest + adoption.place.encode()


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    adoptions = state.part(Adoptions)
    for key, value in rows:
        if len(key) != TOPIC_ID_BYTES or len(value) <= _PLACE_AT:
            raise StoreDamaged("the row of an adoption in an image does not have its length")
        adoptions[TopicId(key)] = Adoption(value[_PLACE_AT:].decode(), value[1:_PLACE_AT], bool(value[0]))


SECTIONS = (Section(ADOPTION, _keys, bytes, TopicId, _encode, _restore),)
