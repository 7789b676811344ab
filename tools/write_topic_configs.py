"""Prints docs/topic-configs.md from the table of topic configs: which have an effect here, which are kept.

python tools/write_topic_configs.py > docs/topic-configs.md
"""

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gateway.configs.topic_configs import TOPIC_CONFIGS, TopicConfig

KEPT_PREFIX = "Kept for tools; "

INTRODUCTION = """\
# Topic configs

Dragoman accepts every topic config of Apache Kafka 4.3.1, checks its value as Kafka does, keeps it over
restarts and describes it. Names that Kafka does not know and values that it does not allow are refused with
`INVALID_CONFIG`; so is `remote.storage.enable=true`, since there is no tiered storage.

This page is written by `python tools/write_topic_configs.py > docs/topic-configs.md`; a test compares.
"""
EFFECTS = """\
## With an effect

- Retention deletes whole *runs*, where Kafka deletes whole segments. A run is what one flush has written of a
  partition. It is deleted when its newest record is older than `retention.ms`, or when the partition holds
  `retention.bytes` without it. Runs are much smaller than segments: records with old timestamps in a new
  topic are deleted at the first check, where Kafka keeps them while a newer record is in their segment.
  Before you load history, raise `retention.ms`, or set `message.timestamp.type=LogAppendTime`. Retention is
  checked every `broker.log.retention.check.interval.ms`, and only for topics whose `cleanup.policy` has
  `delete`. Each check deletes all that is due. Partitions share files; a file is deleted after its last live
  batch is gone and a grace has passed (`ledger.orphan_grace_ms`).
- `message.timestamp.before.max.ms`, a `compression.type` other than the producer's and `compact` make the
  gateway open batches, which costs time; the others need only headers.
- Only `max.message.bytes` bounds a batch: one that is larger than `segment.bytes` is accepted, where Kafka
  refuses it with RECORD_LIST_TOO_LARGE.
- Levels of compression are fixed: gzip 6, zstd 3.
- Where a topic sets nothing, `max.message.bytes` is `broker.message.max.bytes`; the other defaults are
  Kafka's.
"""
KEPT = """\
## Kept for tools

Setting one of these changes what DescribeConfigs returns, and nothing else.
"""
BROKERS = """\
## How values are read

As Java reads them, except for three rare forms that are refused with `INVALID_CONFIG`: digits other than 0 to
9; a suffix, NaN or hexadecimal for `min.cleanable.dirty.ratio`; empty or overlong parts in lists of throttled
replicas.

## Configs of brokers and groups

`DescribeConfigs` returns a gateway's configs under Kafka's names. The defaults of topics (`log.retention.ms`,
`message.max.bytes`, `compression.type` and the others that Kafka can change in a running broker) are set
through `AlterConfigs` or `IncrementalAlterConfigs`, for one gateway or, with an empty name, for all; topics
that set nothing use them at once. The other configs are settings of the gateway, and changing them is refused
with `INVALID_REQUEST`. Configs of groups are kept and described; those of the new protocols have no
effect yet. Loggers and client metrics have no configs: `INVALID_REQUEST`. Any replication factor is
accepted and has no effect: durability is the backing store's.
"""


def page() -> str:
    configs = TOPIC_CONFIGS.values()
    effective = [config for config in configs if config.has_effect]
    kept = [config for config in configs if not config.has_effect]
    return "\n".join([INTRODUCTION, EFFECTS, table(effective), KEPT, table(kept), BROKERS])


def table(configs: Iterable[TopicConfig]) -> str:
    rows = [f"| `{c.name}` | {c.type.name.lower()} | {value(c.default)} | {about(c.doc)} |" for c in configs]
    return "\n".join(["| config | type | default | what it does |", "|---|---|---|---|", *rows, ""])


def value(default: str) -> str:
    return f"`{default}`" if default else "empty"


def about(doc: str) -> str:
    if not doc.startswith(KEPT_PREFIX):
        return doc
    reason = doc.removeprefix(KEPT_PREFIX)
    return reason[:1].upper() + reason[1:]


if __name__ == "__main__":
    sys.stdout.write(page())
