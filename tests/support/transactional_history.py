"""What producers with transactional ids have done and heard, and everything in a log that contradicts it.

A transaction that was committed is there whole, and one that was not is never seen by a reader of what is
committed. Of one whose commit was requested and never answered, either is right. Values of records are
unique.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

Place = tuple[str, int]
"""Topic and partition."""
MAX_COMPLAINTS: Final = 20


class Outcome(Enum):
    OPEN = "open"
    """Its commit was not requested."""
    UNKNOWN = "unknown"
    """Its commit was requested."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Read(NamedTuple):
    """A record as it was read."""

    offset: int
    value: bytes


@dataclass(eq=False)
class Attempt:
    """One transaction of one producer.

    `ends_s`: when its timeout may have passed, in the seconds of its history. `consumed`: the offsets
    [first, end) of its input that are committed with it, each with one record of output.
    """

    transactional_id: str
    name: str
    begun_s: float
    ends_s: float
    consumed: tuple[int, int] = (0, 0)
    outcome: Outcome = Outcome.OPEN
    sent: defaultdict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    acked: defaultdict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))


class TransactionalHistory:
    """Of any number of producers. `wrong` has every contradiction."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.attempts: list[Attempt] = []
        self._by_value: dict[bytes, Attempt] = {}
        self.last_stable: defaultdict[Place, int] = defaultdict(int)
        """The greatest last stable offset that a reader has seen."""
        self._taking: Counter[str] = Counter()
        self._taken_s: defaultdict[str, float] = defaultdict(lambda: -1.0)

    def complain(self, reason: str) -> None:
        if len(self.wrong) < MAX_COMPLAINTS and reason not in self.wrong:
            self.wrong.append(reason)

    # What producers do

    def taking(self, transactional_id: str) -> None:
        """A producer begins with this id: it fences every other."""
        self._taking[transactional_id] += 1

    def taken(self, transactional_id: str, until_s: float) -> None:
        """It heard that it has, or did not hear; until then it may happen."""
        self._taking[transactional_id] -= 1
        self._taken_s[transactional_id] = max(self._taken_s[transactional_id], until_s)

    def begin(
        self, transactional_id: str, begun_s: float, ends_s: float, consumed: tuple[int, int] = (0, 0)
    ) -> Attempt:
        name = f"{transactional_id} #{len(self.attempts)}"
        attempt = Attempt(transactional_id, name, begun_s, ends_s, consumed)
        self.attempts.append(attempt)
        return attempt

    def resume(self, attempt: Attempt) -> None:
        """One that has begun in another history, of which nothing else has happened here yet."""
        name, begun_s, ends_s = attempt.name, attempt.begun_s, attempt.ends_s
        self.attempts.append(Attempt(attempt.transactional_id, name, begun_s, ends_s, attempt.consumed))

    def send(self, attempt: Attempt, place: Place, values: Sequence[bytes]) -> None:
        """Before the first request with these records."""
        attempt.sent[place] += values
        for value in values:
            assert self._by_value.setdefault(value, attempt) is attempt

    def conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        """Before its commit or abort is requested, and when it is certain."""
        attempt.outcome = outcome

    def acknowledge(self, attempt: Attempt, place: Place, base: int, values: Sequence[bytes]) -> None:
        attempt.acked[place].update(zip(range(base, base + len(values)), values, strict=True))

    def acknowledge_value(self, place: Place, offset: int, value: bytes) -> None:
        """One record, by its value alone."""
        self._by_value[value].acked[place][offset] = value

    # What readers see

    def see(self, place: Place, records: Iterable[Read], last_stable: int, seen_before: int) -> None:
        """By a reader of what is committed. `seen_before`: `last_stable` of the place before."""
        if last_stable < seen_before:
            self.complain(f"{place}: last stable offset {last_stable} after {seen_before}")
        self.last_stable[place] = max(self.last_stable[place], last_stable)
        for record in records:
            if record.offset >= last_stable:
                self.complain(f"{place}: offset {record.offset} is seen, last stable offset {last_stable}")
            attempt = self._by_value.get(record.value)
            if attempt is None:
                self.complain(f"{place}: {record.value!r} at {record.offset} was never sent")
            elif attempt.outcome in (Outcome.OPEN, Outcome.ABORTED):
                self.complain(
                    f"{place}: {record.value!r} of {attempt.name}, {attempt.outcome.value}, is seen"
                )

    def check_open(self, place: Place, last_stable: int, now_s: float) -> None:
        """No transaction that is surely open begins before the last stable offset."""
        for attempt in self.attempts:
            first = min(attempt.acked.get(place, ()), default=last_stable)
            if first < last_stable and self._is_surely_open(attempt, now_s):
                self.complain(f"{place}: {attempt.name} is open at {first}, last stable offset {last_stable}")

    def is_alone(self, transactional_id: str, since_s: float) -> bool:
        """Whether surely no producer has begun with this id since then, not even by a request that was lost.
        A zombie that does aborts what its successor has open."""
        return not self._taking[transactional_id] and self._taken_s[transactional_id] < since_s

    def _is_surely_open(self, attempt: Attempt, now_s: float) -> bool:
        """Its end was not requested, it is younger than its timeout, and no other producer has its id."""
        is_alone = self.is_alone(attempt.transactional_id, attempt.begun_s)
        return attempt.outcome is Outcome.OPEN and is_alone and now_s < attempt.ends_s

    # In the end

    def compare(
        self,
        everything: Mapping[Place, Sequence[Read]],
        committed: Mapping[Place, Sequence[Read]],
        offsets: Mapping[str, int],
    ) -> None:
        """What a reader of either kind finds in the end, and the offset of each transactional id's input
        that its group has committed (absent: none)."""
        for place, records in everything.items():
            self._compare_everything(place, records)
        seen: defaultdict[Attempt, Counter[tuple[Place, bytes]]] = defaultdict(Counter)
        for place, records in committed.items():
            by_offset = {record.offset: record.value for record in everything[place]}
            for record in records:
                attempt = self._by_value.get(record.value)
                if attempt is not None:
                    seen[attempt][place, record.value] += 1
                if by_offset.get(record.offset) != record.value:
                    self.complain(f"{place}: {record} is seen by readers of committed records alone")
        for attempt in self.attempts:
            self._compare_attempt(attempt, seen[attempt])
        for transactional_id in {attempt.transactional_id for attempt in self.attempts}:
            ends = [a for a in self.attempts if a.transactional_id == transactional_id and seen[a]]
            self._compare_input(transactional_id, ends, offsets.get(transactional_id, 0))

    def _compare_everything(self, place: Place, records: Sequence[Read]) -> None:
        offsets = [record.offset for record in records]
        if offsets != sorted(set(offsets)):
            self.complain(f"{place}: offsets do not ascend")
        for value, count in Counter(record.value for record in records).items():
            if count > 1:
                self.complain(f"{place}: {value!r} is stored {count} times")
            if value not in self._by_value:
                self.complain(f"{place}: {value!r} was never sent")
        stored = dict(records)
        for attempt in self.attempts:
            for offset, value in attempt.acked.get(place, {}).items():
                if stored.get(offset) != value:
                    self.complain(f"{place}: {value!r}, acknowledged at {offset}, is not there")
            found = [value for _, value in records if self._by_value.get(value) is attempt]
            if found != [value for value in attempt.sent.get(place, ()) if value in set(found)]:
                self.complain(f"{place}: records of {attempt.name} are not in the order of their producer")

    def _compare_attempt(self, attempt: Attempt, seen: Mapping[tuple[Place, bytes], int]) -> None:
        if any(count > 1 for count in seen.values()):
            self.complain(f"{attempt.name}: a record is seen twice")
        sent = {(place, value) for place, values in attempt.sent.items() for value in values}
        if attempt.outcome is Outcome.COMMITTED or (attempt.outcome is Outcome.UNKNOWN and seen):
            if set(seen) != sent:
                self.complain(
                    f"{attempt.name}, {attempt.outcome.value}: {len(seen)} of {len(sent)} records are seen"
                )
        elif seen:
            self.complain(f"{attempt.name}, {attempt.outcome.value}: {len(seen)} records are seen")

    def _compare_input(self, transactional_id: str, ended: Sequence[Attempt], committed: int) -> None:
        """Each offset of the input has one output, up to the one that is committed."""
        times: Counter[int] = Counter()
        for attempt in ended:
            times.update(range(*attempt.consumed))
        wanted = dict.fromkeys(range(committed), 1)
        if wrong := sorted(at for at in {*times, *wanted} if times[at] != wanted.get(at, 0)):
            self.complain(
                f"{transactional_id}: offset {wrong[0]} of the input has {times[wrong[0]]} outputs, "
                f"and {committed} are committed"
            )
