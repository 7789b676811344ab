"""What the lifecycle rules of a bucket do to the objects of a prefix, as boto3 returns the rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ledger.keys import KEY_PARTS

ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects cannot be read before they are restored."""
MAX_NAME: Final = 60
PROOF: Final = "proof"
"""The kind of the keys that a proof (adapters/proof.py) writes and deletes."""

Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Of one prefix."""

    harms: Sequence[str]
    """What rules do to objects that are needed, one sentence each."""
    expires_noncurrent: bool
    """A rule removes old versions."""
    aborts_uploads: bool
    """A rule removes unfinished uploads in parts."""


def lifecycle_of(rules: Sequence[Rule], prefix: str) -> Lifecycle:
    """`prefix` of all keys: empty, or with a `/` at the end."""
    covering = [rule for rule in rules if rule.get("Status") == "Enabled" and _covers(rule, prefix)]
    everywhere = [rule for rule in covering if prefix.startswith(_prefix_of(rule))]
    return Lifecycle(
        [harm for rule in covering for harm in _harms(rule)],
        any("NoncurrentVersionExpiration" in rule for rule in everywhere),
        any("AbortIncompleteMultipartUpload" in rule for rule in everywhere),
    )


def is_own(key: str, prefix: str) -> bool:
    """A key of a store with this prefix, also one of its proof."""
    kind = key.removeprefix(prefix).partition("/")[0]
    return key.startswith(prefix) and (kind in KEY_PARTS or kind == PROOF)


def _covers(rule: Rule, prefix: str) -> bool:
    """It may concern objects of these stores, which have no tags."""
    if _wants_tags(rule):
        return False
    low = _prefix_of(rule)
    return any(low.startswith(kind) or kind.startswith(low) for kind in _folders(prefix))


def _folders(prefix: str) -> Iterator[str]:
    """Of the keys that are needed."""
    for kind, parts in KEY_PARTS.items():
        if kind != PROOF:
            yield f"{prefix}{kind}/" if parts > 1 else f"{prefix}{kind}"


def _filter(rule: Rule) -> Mapping[str, Any]:
    found: Mapping[str, Any] = rule.get("Filter") or {}
    inner: Mapping[str, Any] = found.get("And") or {}
    return {**found, **inner}


def _prefix_of(rule: Rule) -> str:
    """Old rules have it beside the filter."""
    return str(_filter(rule).get("Prefix") or rule.get("Prefix") or "")


def _wants_tags(rule: Rule) -> bool:
    return bool(_filter(rule).get("Tag") or _filter(rule).get("Tags"))


def _harms(rule: Rule) -> Iterator[str]:
    expiration = rule.get("Expiration") or {}
    if "Days" in expiration or "Date" in expiration:
        yield f"{_named(rule)} deletes objects{_when(expiration)}, acknowledged records among them"
    for transition in rule.get("Transitions") or ():
        if (storage := transition.get("StorageClass")) in ARCHIVES:
            yield f"{_named(rule)} moves objects to {storage}{_when(transition)}, where they cannot be read"


def _named(rule: Rule) -> str:
    where = _prefix_of(rule)
    below = f"below {where[:MAX_NAME]!r}" if where else "of the whole bucket"
    name = str(rule.get("ID") or "")[:MAX_NAME]
    return f"its lifecycle rule {name!r} {below}" if name else f"a lifecycle rule {below}"


def _when(action: Mapping[str, Any]) -> str:
    days = action.get("Days")
    return f" {days} days old" if days is not None else f" from {str(action.get('Date'))[:10]} on"
