"""Prints docs/topic-configs.md from the table of topic configs: which have an effect here, which are kept.

python tools/write_topic_configs.py > docs/topic-configs.md
"""

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gateway.topics.configs import TOPIC_CONFIGS, TopicConfig

KEPT_PREFIX = "Kept for tools; "

INTRODUCTION = """\
# Topic configs

Dragoman accepts every topic config of Apache Kafka 4.3.1, checks its value as Kafka does, keeps it over
restarts and describes it. Names that Kafka does not know and values that it does not allow are refused with
`INVALID_CONFIG`; so is `remote.storage.enable=true`, since there are no tiers to promise.

This page is written by `python tools/write_topic_configs.py > docs/topic-configs.md`; a test compares.
"""
EFFECTS = """\
## With an effect

- Retention lets go of whole stretches of batches that one flush has put together into the store, where
  Kafka lets go of whole segments: a stretch goes when its newest record is older than `retention.ms`, or
  when the partition holds `retention.bytes` without it. A stretch is much smaller than a segment: records
  with old times of their own in a young topic go at the first look, where Kafka keeps them as long as a
  newer record is in their segment. Raise `retention.ms` before you load history, or stamp by
  `message.timestamp.type=LogAppendTime`. It looks every `broker.log.retention.check.interval.ms`. Topics
  whose `cleanup.policy` lacks `delete` lose nothing by it. Bytes leave the disk with the last live batch of
  the file they share with others, after a grace (`ledger.orphan_grace_ms`).
- `message.timestamp.before.max.ms`, a `compression.type` other than the producer's and `compact` make the
  gateway open batches, which costs time; the others look at headers alone.
- `max.message.bytes` alone bounds a batch: one that is larger than `segment.bytes` is taken, where Kafka
  refuses it with RECORD_LIST_TOO_LARGE.
- Levels of compression are fixed: gzip 6, zstd 3.
- Where a topic sets nothing, `max.message.bytes` is `broker.message.max.bytes`; the other defaults are
  Kafka's.
"""
KEPT = """\
## Kept for tools

Setting one of these changes what is described, and nothing else.
"""
BROKERS = """\
## How values are read

As Java reads them, but for three ways of writing that hardly anybody uses and that are refused with
`INVALID_CONFIG`: digits other than 0 to 9; a suffix, NaN or hexadecimal for `min.cleanable.dirty.ratio`;
empty or overlong parts in lists of throttled replicas.

## Configs of brokers and groups

`DescribeConfigs` tells a gateway's configs under Kafka's names. The defaults of topics (`log.retention.ms`,
`message.max.bytes`, `compression.type` and the others that Kafka can change in a running broker) are set
through `AlterConfigs` or `IncrementalAlterConfigs`, for one gateway or, with an empty name, for all; topics
that set nothing follow at once. The other configs come from the settings at the start, and changing them is
refused with `INVALID_REQUEST`. Groups take and describe their configs; those of the new protocols have no
effect yet. Loggers and client metrics have no configs: `INVALID_REQUEST`. Any replication factor is
accepted and means nothing: durability is the backing store's.
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
