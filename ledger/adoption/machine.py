"""Adoptions, as a machine of the registry."""

from ledger.adoption.apply import runs_adopted, topic_adoption, topic_deleted
from ledger.adoption.decide import adopt_runs, adopt_topic
from ledger.adoption.records import RUNS_ADOPTED, TOPIC_ADOPTION, RunsAdopted, TopicAdoption
from ledger.adoption.requests import AdoptRuns, AdoptTopic
from ledger.adoption.rows import SECTIONS
from ledger.machine import Machine
from ledger.topics.records import TopicDeleted

ADOPTION = Machine(
    decide={AdoptTopic: adopt_topic, AdoptRuns: adopt_runs},
    formats=(TOPIC_ADOPTION, RUNS_ADOPTED),
    apply={
        TopicAdoption: topic_adoption,
        RunsAdopted: runs_adopted,
        # After the topics have applied it.
        TopicDeleted: topic_deleted,
    },
    sections=SECTIONS,
    growing=frozenset({AdoptTopic, AdoptRuns}),
)
