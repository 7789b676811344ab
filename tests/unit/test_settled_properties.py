"""Settled ledgers in the midst of all that changes a ledger, against a model of which one is the newest."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.image import all_rows
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.uploads import ObjectKind
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.requests import Request
from ledger.rows import digest
from ledger.settled.requests import Named, NameSettled
from ledger.settled.state import SettledLedgers
from ledger.swaps.requests import ReleasePin, TakePin
from ledger.swaps.state import Pins
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.settling import JOB, naming_of
from tests.support.swapping import swap_of

REQUESTS = ("commit", "name", "name", "late", "delete", "drain", "swap", "pin", "pin", "release", "floor")
STEPS = (
    *REQUESTS,
    "plan",
    "forget",
    "entry",
    "entry",
    "recreate",
    "restart",
    "image",
    "image steps",
    "image fails",
)


class History:
    """A ledger, and which settled ledger of each live partition should be the newest."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.ledger = JournalledLedger()
        self.newest: dict[tuple[bytes, int], NameSettled] = {}
        self.planned: list[NameSettled] = []
        self.topics = self.objects = self.named = 0
        self.create()

    def create(self) -> None:
        self.topics += 1
        self.topic = topic_id(self.topics)
        self.ledger.submit(CreateTopic(f"t{self.topics}", self.topic, 2, {}))

    def step(self, name: str) -> None:
        ledger, dice = self.ledger, self.dice
        ledger.now_ms += dice.randrange(3)
        match name:
            case "recreate":
                ledger.submit(DeleteTopic(self.topic))
                self.newest = {}
                self.create()
            case "restart":
                ledger.restart(dice.choice(["image", "snapshot", "journal"]))
            case "image":
                ledger.write_image()
            case "image steps":
                ledger.begin_image()
                ledger.continue_image(dice.randrange(12))
            case "image fails":
                ledger.end_image(fails=True)
            case "plan":
                self.planned += filter(None, [self.naming()])
            case "entry":
                self.submit(*filter(None, [self.request(dice.choice(REQUESTS)) for _ in range(4)]))
            case _:
                self.submit(*filter(None, [self.request(name)]))

    def log(self) -> PartitionLog:
        return self.ledger.state.topics.by_id[self.topic].partitions[self.dice.randrange(2)]

    def naming(self) -> NameSettled | None:
        if JOB not in self.ledger.state.part(Pins):
            return None
        return naming_of(self.ledger.state, self.log(), self.ledger.now_ms, attempt=self.dice.randrange(3))

    def request(self, name: str) -> Request | None:
        if name == "name":
            return self.naming()
        if name == "late":
            return self.dice.choice(self.planned) if self.planned else None
        return self.other(name)

    def other(self, name: str) -> Request | None:
        dice, log = self.dice, self.log()
        match name:
            case "commit":
                self.objects += 1
                batches = [commit_batch(self.topic, log.index, 100 * at) for at in range(dice.randint(1, 3))]
                return CommitFile(locator(self.objects, self.ledger.now_ms), 300, batches)
            case "delete":
                return DeleteRecords(self.topic, log.index, dice.randint(log.log_start, log.high_watermark))
            case "drain":
                return DrainRuns(dice.randint(1, 5))
            case "swap":
                runs = list(log.runs())
                return swap_of(log, runs, self.ledger.now_ms) if runs else None
            case "pin" | "release":
                return (TakePin if name == "pin" else ReleasePin)(JOB)
            case "floor":
                return RaiseFloor(self.ledger.now_ms - dice.randrange(4))
        due = self.ledger.state.objects.due_garbage(self.ledger.now_ms, 0)
        return ForgetObjects([stored.number for stored in due])

    def submit(self, *requests: Request) -> None:
        for request, result in zip(requests, self.ledger.submit(*requests), strict=True):
            if not isinstance(request, NameSettled) or not isinstance(result, Named):
                continue
            self.named += 1
            place = request.topic_id, request.partition
            before = self.newest.get(place)
            if result.duplicate:
                assert before == request
            elif before is not None:
                ages = [(each.high_watermark, each.entry) for each in (before, request)]
                assert ages == sorted(ages)
            self.newest[place] = request

    def check(self) -> None:
        state = self.ledger.state
        found = {}
        for number, known in state.part(SettledLedgers).items():
            log = state.logs[number]
            found[log.topic_id, log.index] = state.objects.locator(known.object_number)
        assert found == {place: request.files.locator for place, request in self.newest.items()}
        kept = {
            stored.locator
            for stored in state.objects.by_number.values()
            if stored.kind == ObjectKind.SETTLED and not stored.closed
        }
        assert kept == set(found.values())

    def check_bytes(self) -> None:
        self.ledger.write_image()
        now = digest(all_rows(self.ledger.state))
        for state in (self.ledger.from_journal(), self.ledger.from_image(), self.ledger.from_snapshot()):
            assert digest(all_rows(state)) == now
        assert self.ledger.image == {(row.section, row.key): row.value for row in all_rows(self.ledger.state)}


def lived(seed: int, steps: list[str]) -> History:
    history = History(Random(seed))
    for name in steps:
        history.step(name)
        history.check()
    history.check_bytes()
    return history


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), min_size=10, max_size=40))
def test_each_partition_has_the_newest_one_and_all_others_are_garbage(seed: int, steps: list[str]) -> None:
    lived(seed, steps)


def test_such_histories_name_many() -> None:
    assert sum(lived(seed, Random(seed).choices(STEPS, k=150)).named for seed in range(3)) > 10
