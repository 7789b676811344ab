"""The comparison finds what it should: an error code, a record byte, a field too few."""

import copy
from typing import Any

import pytest

from gateway.wire.apis import ApiKey
from tests.differential.comparing import Allowed, Kind, differences, read_allowed
from tests.differential.conftest import ALLOWED

ANSWER: dict[str, Any] = {
    "outcome": "answered in version 9",
    "responses": [
        {
            "name": "t",
            "topic_id": "<id of t>",
            "partition_responses": [
                {"index": 0, "error_code": 0, "error_message": None, "records": [{"bytes": "00ff"}]}
            ],
        }
    ],
}


def found(change: str, value: Any, allowed: list[Allowed]) -> list[str]:
    """The paths of differences that are not allowed, after one change to the partition or the topic."""
    changed = copy.deepcopy(ANSWER)
    topic = changed["responses"][0]
    partition = topic["partition_responses"][0]
    (partition if change in partition else topic)[change] = value
    every = differences("any", [ApiKey.PRODUCE], [ANSWER], [changed])
    return [one.path for one in every if not any(entry.covers(one) for entry in allowed)]


@pytest.mark.parametrize(
    ("change", "value", "path"),
    [
        ("error_code", 87, "responses[].partition_responses[].error_code"),
        ("records", [{"bytes": "00fe"}], "responses[].partition_responses[].records[].bytes"),
        ("records", [], "responses[].partition_responses[].records"),
        ("index", "0", "responses[].partition_responses[].index"),
        ("name", "u", "responses[].name"),
        ("topic_id", "00" * 16, "responses[].topic_id"),
        ("partition_responses", None, "responses[].partition_responses"),
    ],
)
def test_a_changed_field_is_a_difference_that_no_entry_allows(change: str, value: Any, path: str) -> None:
    assert found(change, value, read_allowed(ALLOWED)) == [path]


def test_a_text_may_differ_where_it_is_allowed_to() -> None:
    path = "responses[].partition_responses[].error_message"
    entry = Allowed("PRODUCE", path, Kind.TEXT, "own words")
    assert found("error_message", "no", [entry]) == []
    assert found("error_message", "no", []) == [path]
    assert found("error_message", 5, [entry]) == [path]
    assert found("error_message", "no", [Allowed("FETCH", path, Kind.TEXT, "own words")]) == [path]


@pytest.mark.parametrize("wrong", ["<id of t>", "<zero>", "", -1, None])
def test_an_id_that_is_known_or_none_is_not_just_another_id(wrong: Any) -> None:
    entry = Allowed("PRODUCE", "responses[].topic_id", Kind.ID, "random")
    changed = [{"responses": [{"topic_id": wrong}]}]
    (other,) = differences("any", [ApiKey.PRODUCE], [{"responses": [{"topic_id": "ab"}]}], changed)
    assert not entry.covers(other)


@pytest.mark.parametrize(
    "entry",
    [
        'api = "FETCH"\nfield = "error_code"\nkind = "id"\nreason = "no"',
        'api = "FETCH"\nfield = "responses[].partitions[].records"\nkind = "text"\nreason = "no"',
        'api = "FETCH"\nfield = "session_id"\nkind = "id"\nreason = ""',
        'api = "FETCH"\nfield = "session_id"\nkind = "mood"\nreason = "no"',
        'api = "FETSCH"\nfield = "session_id"\nkind = "id"\nreason = "no"',
        'api = "FETCH"\nkind = "id"\nreason = "no"',
    ],
    ids=["error code", "records", "no reason", "no such kind", "no such API", "no field"],
)
def test_an_entry_that_allows_too_much_is_refused(tmp_path: Any, entry: str) -> None:
    path = tmp_path / "allowed.toml"
    path.write_text(f"[[allowed]]\n{entry}\n")
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_allowed(path)
