"""Topics made and deleted by an admin client, for tests of something else."""

from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ADMIN_TIMEOUT_S = 15.0


def create_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Name -> partitions. Errors: KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = admin.create_topics(
        [NewTopic(name, count, 1) for name, count in topics.items()], request_timeout=ADMIN_TIMEOUT_S
    )
    for done in created.values():
        done.result(ADMIN_TIMEOUT_S)


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.delete_topics(list(names), request_timeout=ADMIN_TIMEOUT_S).values():
        done.result(ADMIN_TIMEOUT_S)
