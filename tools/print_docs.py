"""Prints what the code says once: settings, protocol, states of groups and transactions, example
configuration, file map.

python tools/print_docs.py           write the pages named below, of ARCHITECTURE.md the file map
python tools/print_docs.py --check   say which of them are not as they would be written; exit code 1
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, get_args

from msgspec import Meta

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gateway.config import ENVIRONMENT_PREFIX, SETTINGS, Setting
from gateway.groups.classic.states import MEANINGS, TRANSITIONS, State
from gateway.internal.apis import HANDLERS as INTERNAL_HANDLERS
from gateway.router import HANDLERS, NOT_SERVED_BELOW, Pipelined
from gateway.wire.apis import FIRST_FLEXIBLE, INTERNAL_RANGES, RANGES, AnyApi, ApiKey
from tools.file_map import with_file_map
from tools.transactions_page import transactions_page

ROOT: Final = Path(__file__).resolve().parent.parent
WIDTH: Final = 100
UNITS: Final = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
TIMES: Final = ((3_600_000, "h"), (60_000, "min"), (1000, "s"))
SECTIONS: Final[Mapping[str, str]] = {
    "listeners": "Where clients connect, and the addresses that they get.",
    "tls": "Of all SSL:// listeners. SIGHUP reads the files again, for new connections; if a file cannot be "
    "used, those that were loaded before stay in force.",
    "internal": "The internal listener, for jobs that rewrite what is stored: who connects may change all "
    "data.",
    "storage": "Where data is stored.",
    "ledger": "When drafts are written, and how long things are kept.",
    "limits": "Every bound has a default. A client beyond one waits or is closed; the others are served.",
    "housekeeping": "Work in the background.",
    "cache": "Memory for reading.",
    "metrics": "What /metrics of the admin address has ([metrics.md](metrics.md)).",
    "traces": "Traces of Produce requests ([operations.md](operations.md#traces)).",
    "admin": "Health, metrics and version pages, without authentication unless `admin.tls` asks for "
    "certificates: keep them on loopback. The console, which takes a token.",
    "log": "Events on stderr.",
    "broker": "Broker configs under Kafka's names.",
    "quotas": "How usage is measured for client quotas, under the names of Kafka's broker configs.",
    "groups": "Consumer groups, under the names of Kafka's broker configs.",
    "transactions": "Transactions, under the names of Kafka's broker configs "
    "([transactions.md](transactions.md)).",
}

_LINK: Final = re.compile(r"\[[^]]*\]\(([^)]*)\)")
"""Of Markdown, where a page beside it is meant."""
INTERNAL_HEAD: Final = (
    "Printed from the table in `gateway/internal/apis.py`. These APIs are served on the internal listener "
    "alone (settings `internal.*`), with ApiVersions, to jobs that rewrite what is stored. Those below 20000 "
    "are of KIP-1164. All are flexible; their fields are in `gateway/wire/messages/internal`."
)
GROUPS_HEAD: Final = """# Consumer groups

Printed from `gateway/groups/classic/states.py` by `tools/print_docs.py`; a test holds them together.

The classic protocol: members join, the coordinator decides a generation, one member (the leader) assigns
partitions to all, and each gets its share. Names and responses are those of Apache Kafka, with which the
tests compare them."""

GROUPS_TAIL: Final = """## What is durable

The journal has each group's members with all their protocols, its generation, protocol, leader and
assignments. Unlike Kafka's coordinator, which stores a group when its leader has assigned, this one stores
the generation before it responds to any JoinGroup, and again with the assignments before it responds to any
SyncGroup. After a restart a group continues in its generation: members that come back within their session
timeout send heartbeats, commit and fetch as before.

Waits and unanswered requests are volatile: member ids that were assigned but have not joined, a rebalance
under way, and the time since a member's last heartbeat. Their timeouts start again in full.

## Committed offsets

They are in the journal by topic id: an offset of a deleted topic is never used for a later topic of the same
name. A commit gets its response when it is durable. An offset expires `groups.offsets.retention.minutes`
after its commit; in an empty group, not before that time has passed since the group became empty. In a group
with members only offsets of topics that no consumer of the group reads expire. A group without members and
offsets is removed. This is checked every `groups.offsets.retention.check.interval.ms`.

## Where it differs from Kafka

- Among protocols with the same number of votes the leader's preferred one is chosen; Kafka's choice depends
  on the order of a hash map. The next leader is the member that joined first; in Kafka it may be any.
- A JoinGroup or SyncGroup that is replaced by a later one of the same member gets REBALANCE_IN_PROGRESS.
  In Kafka it gets no response.
- The number of members of a group is bounded (`groups.group.max.size`, 10,000; Kafka: none), with member ids
  that were assigned but have not joined, and so is the size of their metadata (`limits.group_bytes`).
- Kafka's error for a full group, GROUP_MAX_SIZE_REACHED, is returned for every bound: for those two, and for
  `limits.groups`, `limits.members_bytes` and `limits.offset_bytes`, which hold for all groups together. The
  log names the setting (`group.limit_reached`, once a minute). A state that could not be stored is
  `group.not_stored`, with the reason.
- An empty group that never had a generation is removed with its last pending member; Kafka keeps it until it
  checks for expired offsets. A group that only commits is removed with its last offset, and at once if its
  first commit could not be stored.
- In an empty group an offset that was committed after its last member had left stays its full time; Kafka
  counts only from the moment when the group became empty.
- DescribeGroups returns no assignments while the generation has none; Kafka returns those of the one before.
- Every gateway serves every group and every transactional id, so FindCoordinator names the one that
  receives it.
- `limits.groups` (100,000; Kafka: none) also counts groups that only commit, and groups with configs. At the
  bound new groups are refused, and existing ones are served. An id of more than 1,024 characters is taken
  only while there are fewer groups than a 32nd of that.

The bound holds for all clients together: the protocol does not say which client a group belongs to, and
committed offsets must stay for their time, as consumers come back for them. So one client that may connect
can use up all groups, with one OffsetCommit each, until `groups.offsets.retention.minutes` have passed.
Against this, let only trusted clients connect (`tls.client_auth=required`, docs/tls.md), delete such groups
(`dragoman groups list`, `dragoman groups delete`), and raise the bound.
"""


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Printed from `gateway/settings.py` by `tools/print_docs.py`; a test holds them together.",
        "",
        "A value comes from a flag of `dragoman serve` (`--set section.key=value`), else the environment "
        f"(`{ENVIRONMENT_PREFIX}SECTION_KEY`), else the TOML file of `--config`, else the default. Lists are "
        "separated by commas in flags and environment. An unknown name or a value out of bounds ends with "
        "exit code 2 and the most similar name that exists. A variable that resembles no setting is logged "
        "(`settings.unknown_variable`) and has no effect; those that Kubernetes sets for its Services are "
        "ignored. Sizes are bytes, times are milliseconds.",
        "",
    ]
    for section, settings in _by_section():
        lines += [f"## {section}", "", SECTIONS[section], ""]
        lines += [
            "| setting | default | allowed | environment | what it is |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_settings_row(setting) for setting in settings]
        lines.append("")
    return "\n".join(lines)


def protocol_page() -> str:
    missing = [key for key in RANGES if key not in HANDLERS]
    lines = [
        "# Protocol",
        "",
        "Printed from the table of handlers in `gateway/router.py` by `tools/print_docs.py`; a test holds "
        "them together. An API that is not in the first table is not advertised, and a request of it closes "
        "its connection, as in Kafka.",
        "",
        "| API | key | versions | Apache Kafka 4.3.1 | flexible from | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key in sorted(HANDLERS):
        served = RANGES[key]
        flexible = FIRST_FLEXIBLE.get(key)
        row = [_api_name(key), int(key), _versions(served), _versions(RANGES[key])]
        row += ["" if flexible is None or flexible > served[1] else flexible, _remark(key)]
        lines.append(_row(row))
    lines += ["", "## Not supported yet", "", "| API | key | Apache Kafka 4.3.1 |", "| --- | --- | --- |"]
    lines += [_row([_api_name(key), int(key), _versions(RANGES[key])]) for key in sorted(missing)]
    lines += [
        "",
        "## Internal listener",
        "",
        INTERNAL_HEAD,
        "",
        "| API | key | versions |",
        "| --- | --- | --- |",
    ]
    lines += [
        _row([_api_name(key), int(key), _versions(INTERNAL_RANGES[key])]) for key in sorted(INTERNAL_HANDLERS)
    ]
    return "\n".join([*lines, ""])


def groups_page() -> str:
    lines = [GROUPS_HEAD, "", "```mermaid", "stateDiagram-v2", "    [*] --> Empty"]
    # Mermaid ends a statement at a semicolon and a name at a colon.
    labels = [one.when.replace(";", ",").replace(":", ",") for one in TRANSITIONS]
    lines += [
        f"    {one.source} --> {one.target}: {label}" for one, label in zip(TRANSITIONS, labels, strict=True)
    ]
    lines += ["    Dead --> [*]", "```", "", "| state | |", "| --- | --- |"]
    lines += [f"| {state} | {MEANINGS[state]} |" for state in State]
    lines += ["", "| from | to | when |", "| --- | --- | --- |"]
    lines += [f"| {one.source} | {one.target} | {one.when} |" for one in TRANSITIONS]
    return "\n".join([*lines, "", GROUPS_TAIL])


def embedded_toml() -> str:
    lines = [
        "# One gateway on one host, its data in a directory: the default deployment.",
        "#",
        "#     dragoman serve --config config/embedded.toml",
        "#",
        "# Every setting is here with its default, so that this file changes nothing until it is edited.",
        "# Printed by tools/print_docs.py; docs/settings.md has the bounds.",
    ]
    for section, settings in _by_section():
        lines += ["", *_comment(_LINK.sub("docs/\\1", SECTIONS[section])), f"[{section}]"]
        for setting in settings:
            lines += _comment(f"{setting.doc}{_readable(setting)}.")
            if setting.is_secret:
                lines.append(f"# {setting.key}: {setting.environment_name} in the environment")
            else:
                lines.append(f"{setting.key} = {_toml(setting.default)}")
    return "\n".join([*lines, ""])


def architecture() -> str:
    return with_file_map((ROOT / "ARCHITECTURE.md").read_text("utf-8"))


def _by_section() -> Iterator[tuple[str, list[Setting]]]:
    for section, settings in groupby(SETTINGS.values(), key=lambda setting: setting.section):
        yield section, list(settings)


def _settings_row(setting: Setting) -> str:
    default = _toml(setting.default).strip("[]").replace('"', "")
    shown = f"`{default}`{_readable(setting)}" if default else ""
    return _row([f"`{setting.name}`", shown, _allowed(setting), f"`{setting.environment_name}`", setting.doc])


def _allowed(setting: Setting) -> str:
    kind, meta = _type_and_meta(setting)
    if kind is bool:
        return "true, false"
    if meta.pattern is not None:
        return meta.pattern.strip("^$").strip("()").replace("|", ", ").replace("\\.", ".")
    if meta.ge is not None and meta.le is not None:
        return f"{meta.ge} to {meta.le}"
    if setting.is_list:
        return f"{meta.min_length or 0} to {meta.max_length} of them"
    return "text" if not meta.min_length else "text, not empty"


def _type_and_meta(setting: Setting) -> tuple[Any, Meta]:
    kind, *extras = get_args(setting.type)
    return kind, next(extra for extra in extras if isinstance(extra, Meta))


def _readable(setting: Setting) -> str:
    """A large number once more, in units."""
    value, key = setting.default, setting.key.replace(".", "_")
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    units = TIMES if key.endswith("_ms") else UNITS if key.endswith("_bytes") else ()
    for size, unit in units:
        if value >= size and value % size == 0:
            return f" ({value // size} {unit})"
    return ""


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case tuple():
            return f"[{', '.join(_toml(part) for part in value)}]"
    return f'"{value}"'


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2)]


def _remark(key: ApiKey) -> str:
    remarks = []
    if key in NOT_SERVED_BELOW:
        remarks.append(
            f"versions below {NOT_SERVED_BELOW[key]} are listed, as by Kafka, since clients look for them, "
            "but never answered"
        )
    if isinstance(HANDLERS[key], Pipelined):
        remarks.append("requests of a connection overlap; responses keep their order")
    return "; ".join(remarks)


def _api_name(key: AnyApi) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


def _versions(bounds: tuple[int, int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]}-{bounds[1]}"


def _row(cells: list[Any]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/settings.md": settings_page,
    "docs/protocol.md": protocol_page,
    "docs/groups.md": groups_page,
    "docs/transactions.md": transactions_page,
    "config/embedded.toml": embedded_toml,
    "ARCHITECTURE.md": architecture,
}


def outdated(root: Path = ROOT) -> list[str]:
    """Pages whose file is absent or says something else."""
    return [
        name
        for name, page in PAGES.items()
        if not (root / name).exists() or (root / name).read_text("utf-8") != page()
    ]


def main(arguments: list[str]) -> int:
    wrong = outdated()
    if arguments == ["--check"]:
        for name in wrong:
            print(f"{name} is not what the code says: run python tools/print_docs.py", file=sys.stderr)
        return 1 if wrong else 0
    for name in wrong:
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(PAGES[name](), "utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
