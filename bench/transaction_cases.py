"""The cases of transactions: how many are committed a second, what each costs, and when a reader of committed
records has what one wrote.

What a case gives was validated: all commits succeeded, and a reader of committed records had every record of
them, in the order of offsets.
"""

from collections.abc import Mapping, Sequence

from bench.case import Case, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import measure
from bench.servers import Server, delete_topic
from bench.stats import percentile

PRODUCERS = 4
PAYLOAD_BYTES = 100
WARM = 20
SHARES = {1: 1.0, 10: 0.5, 100: 0.1}
"""By partitions of a transaction: how many are measured, of those that the scale has."""


def transactions(partitions: int) -> Case:
    """Transactions with one record in each of so many partitions."""
    name = f"transactions_{partitions}"

    def run(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
        topic = new_topic(server, name, partitions)
        each = max(1, round(scale.transactions * SHARES[partitions]) // PRODUCERS)
        spec = servers_spec(
            server,
            topic,
            producers=PRODUCERS,
            partitions=partitions,
            transactions=each,
            warm_transactions=WARM,
            payload_bytes=PAYLOAD_BYTES,
        )
        measured = measure(server.pid, [("transact_read", spec), ("transact", spec)])
        delete_topic(server, topic)
        noise(measured.others_percent)
        read, committed = measured.results
        count = len(committed["times_ms"])
        return {
            name: {
                "transactions_s": count / committed["took_s"],
                "cpu_us_transaction": 1e6 * measured.cpu_s / count,
                "system_cpu_us_transaction": 1e6 * measured.system_cpu_s / count,
                "commit_p50_ms": percentile(committed["times_ms"], 50),
                "end_to_end_p50_ms": percentile(read["times_ms"], 50),
                "end_to_end_p99_ms": percentile(read["times_ms"], 99),
            }
        }

    title = f"{PRODUCERS} producers, transactions of {partitions} partitions"
    return Case((name,), title, run, (name,))


TRANSACTION_CASES: Sequence[Case] = tuple(transactions(partitions) for partitions in SHARES)
