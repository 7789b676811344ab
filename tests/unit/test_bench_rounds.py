"""Which figures of a round are compared with which Kafka."""

from pathlib import Path

from rich.console import Console

from bench.case import Case, Figures
from bench.results import DRAGOMAN, KAFKA
from bench.run import Bench, Options
from bench.servers import SYNCED_KAFKA, BenchServer, TlsEndpoint


class NamedServer:
    """A server that is only named."""

    host = bootstrap = ""
    port = pid = 0
    tls = TlsEndpoint("", Path())

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def remove(self) -> None: ...


def measured(acked: tuple[str, ...]) -> dict[str, dict[str, list[float]]]:
    values = {KAFKA: 1.0, SYNCED_KAFKA: 8.0, DRAGOMAN: 2.0}

    def run(server: BenchServer, *_: object) -> dict[str, Figures]:
        return {name: {"mb_s": values[server.name]} for name in ("produce", "catchup")}

    bench = Bench(Options(1, True, [], 0.0, Path(), Path()), Console(quiet=True))
    bench.run_round(Case(("produce", "catchup"), "", run, acked), [NamedServer(name) for name in values], 0)
    return bench.results.values


def test_what_is_acknowledged_is_compared_with_both() -> None:
    assert measured(("produce",)) == {
        "produce.mb_s": {KAFKA: [1.0], DRAGOMAN: [2.0]},
        "produce_synced.mb_s": {KAFKA: [8.0], DRAGOMAN: [2.0]},
        "catchup.mb_s": {KAFKA: [1.0], DRAGOMAN: [2.0]},
    }


def test_a_kafka_that_syncs_is_spared_what_has_no_acknowledgement() -> None:
    assert not any("synced" in figure for figure in measured(()))
