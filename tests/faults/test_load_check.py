"""The check that the fault suites use sees each way in which a log can be wrong."""

from tests.faults.load import Ack, Found, problems

PLACE = ("t", 0)


def log_of(*names: str) -> list[Found]:
    return [Found(offset, f"{name}:x".encode(), 0) for offset, name in enumerate(names)]


def acked(name: str, offset: int) -> Ack:
    return Ack(0, PLACE, offset, f"{name}:x".encode())


def test_a_log_that_holds_every_acked_record_at_its_offset_is_right() -> None:
    assert problems({PLACE: log_of("a/0", "b/0", "a/2")}, [acked("a/2", 2), acked("a/0", 0)]) == []


def test_a_missing_acked_record_is_seen() -> None:
    assert problems({PLACE: log_of("a/0")}, [acked("a/1", 1)]) == [
        "('t', 0): acked a/1 at offset 1 is missing"
    ]


def test_an_acked_record_in_a_partition_that_is_gone_is_seen() -> None:
    assert len(problems({}, [acked("a/0", 0)])) == 1


def test_an_offset_that_holds_other_bytes_than_were_acked_is_seen() -> None:
    (problem,) = problems({PLACE: log_of("a/0", "b/0")}, [acked("a/1", 1)])
    assert "was acked for a/1, holds b'b/0:x'" in problem


def test_an_offset_that_was_acked_twice_is_seen() -> None:
    assert "('t', 0): offset 0 was acked twice" in problems({PLACE: log_of("a/0")}, [acked("a/0", 0)] * 2)


def test_a_record_that_is_there_twice_is_seen() -> None:
    (problem,) = problems({PLACE: log_of("a/0", "a/1", "a/1")}, [])
    assert "a/1 at offset 2 comes after 1" in problem


def test_records_of_one_producer_out_of_order_are_seen() -> None:
    (problem,) = problems({PLACE: log_of("a/1", "b/0", "a/0")}, [])
    assert "a/0 at offset 2 comes after 1" in problem


def test_a_gap_in_the_offsets_is_seen() -> None:
    found = [Found(0, b"a/0:x", 0), Found(2, b"a/1:x", 0)]
    assert problems({PLACE: found}, []) == ["('t', 0): the record after offset 0 has offset 2"]
