"""Parameters of the console's requests, checked; and texts made of bytes that anybody has sent."""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from gateway.console.access import Denied
from gateway.console.paging import DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS, PageRequest
from gateway.console.record_scan import Cut, RecordFilter
from gateway.console.resets import TARGETS, Target

MAX_NUMBER: Final = 2**63 - 1
MAX_SEARCH_CHARS: Final = 1_000
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""All but tab and the ends of lines."""


def bad(detail: str) -> Denied:
    return Denied(400, "parameter", detail)


def number(query: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int:
    """Raises Denied, also where there is neither value nor default."""
    text = query.get(name, "")
    if not text:
        if default is None:
            raise bad(f"The parameter {name} is missing.")
        return default
    # int() takes blanks, underscores, other digits, and texts of any length.
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        raise bad(f"The parameter {name} is no number.")
    value = int(text)
    if not low <= value <= high:
        raise bad(f"The parameter {name} is not within {low} and {high}.")
    return value


def name_of(query: Mapping[str, str], name: str) -> str:
    value = query.get(name, "")
    if not value:
        raise bad(f"The parameter {name} is missing.")
    return value


def page_request(query: Mapping[str, str], sorts: Collection[str]) -> PageRequest:
    """Raises Denied."""
    sort = query.get("sort", "name")
    if sort not in sorts:
        raise bad(f"The parameter sort is none of {', '.join(sorted(sorts))}.")
    return PageRequest(
        search=query.get("search", "")[:MAX_SEARCH_CHARS],
        sort=sort,
        is_descending=query.get("order") == "desc",
        page=number(query, "page", 0, 0, 10**9),
        rows=number(query, "rows", DEFAULT_PAGE_ROWS, 1, MAX_PAGE_ROWS),
    )


def record_filter(query: Mapping[str, str]) -> RecordFilter:
    """`key` and `value`: a part of the bytes, as a text or as 0x and hexadecimal digits; `header`: NAME or
    NAME=PART."""
    header, _, part = query.get("header", "")[:MAX_SEARCH_CHARS].partition("=")
    return RecordFilter(
        _part(query.get("key", "")), _part(query.get("value", "")), header or None, _part(part)
    )


def _part(text: str) -> bytes | None:
    text = text[:MAX_SEARCH_CHARS]
    if text.startswith("0x"):
        with suppress(ValueError):
            return bytes.fromhex(text[2:])
    return text.encode("utf-8", "replace") or None


def positions(text: str, name: str) -> dict[int, int]:
    """PARTITION:OFFSET,... as a mapping. Raises Denied."""
    found: dict[int, int] = {}
    for one in filter(None, text.split(",")):
        index, colon, offset = one.partition(":")
        if not (colon and index.isdecimal() and offset.isdecimal() and len(one) <= 40 and one.isascii()):
            raise bad(f"The parameter {name} is no list of PARTITION:OFFSET.")
        found[int(index)] = min(int(offset), MAX_NUMBER)
    return found


def reset_target(to: object, value: object) -> Target:
    """Two fields of a body. Raises Denied."""
    # What is no text may not even be looked up in a set.
    if isinstance(to, str) and to in TARGETS and type(value) is int and -(2**62) <= value <= 2**62:
        return Target(to, value)
    raise bad(f"The field to is one of {', '.join(sorted(TARGETS))}; value is a number.")


def shown(cut: Cut | None) -> dict[str, Any] | None:
    """Bytes as a text where they are one, else in hexadecimal digits; null for null."""
    if cut is None:
        return None
    text = text_of(cut)
    form = {"hex": cut.data.hex()} if text is None else {"text": text}
    return {**form, "size": cut.size, "isCut": len(cut.data) < cut.size}


def text_of(cut: Cut) -> str | None:
    """None if the bytes are no UTF-8, or have characters that control a terminal."""
    data = cut.data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # Where it was cut within a character.
        if len(data) == cut.size or error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    return None if _CONTROLS.search(text) else text
