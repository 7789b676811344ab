"""The text exposition format of Prometheus for series by topic, partition and group: lines by family."""

from collections.abc import Iterator, Mapping
from typing import Final

MAX_LABEL: Final = 249
"""Characters of a label's value: as many as the name of a topic may have."""


class Families:
    """Series of several families. All lines of a family are printed together, as the format wants it."""

    def __init__(self, families: Mapping[str, tuple[str, str]]) -> None:
        """`families`: type and help text by name; without `_total` in the name of a counter."""
        self._families = families
        self._lines: dict[str, list[str]] = {name: [] for name in families}
        self.count = 0
        """Series so far."""

    def add(self, name: str, labels: str, value: int) -> None:
        """`labels` as they are printed between the braces."""
        suffix = "_total" if self._families[name][0] == "counter" else ""
        self._lines[name].append(f"{name}{suffix}{{{labels}}} {value}\n")
        self.count += 1

    def text(self) -> Iterator[bytes]:
        """Family by family; those without series are left out."""
        for name, (kind, help_text) in self._families.items():
            lines = self._lines[name]
            if lines:
                # In this version of the format the type of a counter has the name of its samples.
                suffix = "_total" if kind == "counter" else ""
                head = f"# HELP {name}{suffix} {help_text}\n# TYPE {name}{suffix} {kind}\n"
                yield f"{head}{''.join(lines)}".encode()


def is_label(value: str) -> bool:
    """Whether a text that a client has chosen can be a label's value: it is not long, and has no characters
    that a scrape may not have."""
    return len(value) <= MAX_LABEL and value.isprintable()


def quoted(value: str) -> str:
    """The value of a label, for which `is_label` is true."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
