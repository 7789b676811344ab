"""Consumer groups as transcripts. `pytest --renew-transcripts` writes them again; then read the diff."""

from pathlib import Path

import pytest

from tests.scenarios.group_play import Play
from tests.scenarios.stores import real_store
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FILER_S3, far_place
from tests.support.transcript import read_transcript, write_transcript
from tests.support.virtual_time import run_virtually

TRANSCRIPTS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_group_does_what_its_transcript_says(path: Path, renew_transcripts: bool) -> None:
    written = path.read_text()
    blocks = read_transcript(written)
    played = write_transcript(run_virtually(lambda: Play().run(blocks)))
    if renew_transcripts:
        path.write_text(played)
    else:
        assert played == written, "if that is as it should be: pytest --renew-transcripts"


@pytest.mark.parametrize("row", [ETCD_S3, BUCKET_ALONE, FILER_S3])
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_group_does_the_same_over_a_real_far_store(
    path: Path, row: str, request: pytest.FixtureRequest
) -> None:
    blocks = read_transcript(path.read_text())
    with real_store(far_place(request, row).metadata) as store:
        played = run_virtually(lambda: Play(store).run(blocks))
    # Where two are answered at one moment, each after a proof, either may be the first.
    assert [sorted(block.outcome) for block in played] == [sorted(block.outcome) for block in blocks]


def test_each_required_scenario_has_a_transcript() -> None:
    wanted = {
        "cooperative_hand_over",
        "fencing",
        "join",
        "leader_dies",
        "restart_mid_rebalance",
        "slow_member",
        "static_bounce",
    }
    assert wanted <= {path.stem for path in TRANSCRIPTS}


def test_a_transcript_is_written_as_it_was_read() -> None:
    text = "# Why\n\n# What\na joins\n----\n   0.000s  a does not join\n\nwait 1s\n----\n"
    assert write_transcript(read_transcript(text)) == text


def test_a_block_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="a joins"):
        read_transcript("a joins\nb joins\n")
