"""Keys for the contract suites: those that every store takes, and those that some store could not keep."""

from collections.abc import Iterator

from ledger.keys import KEY_PARTS

SOUND_KEYS = [
    "X",
    "Y-",
    "_",
    "-",
    "0",
    "a",
    "a-",
    "a.b",
    "a0",
    "a_",
    "ab",
    "b/-",
    "b/c",
    "b/_",
    "b-",
    "c." + "d" * 198,
]
"""No two differ in case alone: some file systems could not keep both. Ids in keys are lower-case."""
NO_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "./a",
    ".a",
    "a/.b",
    "a b",
    "a%",
    "a'\"",
    "a~",
    "a:b",
    "a\\b",
    "a\n",
    "a\0b",
    "\x01",
    "\u00e4",
    "\u20ac",
    "\uffff",
    "\U0001f600",
    "\ud800",
    "x" * 201,
    "/".join(["x" * 199] * 6),
]
"""S3 of SeaweedFS takes a//b for a/b and refuses a/../b; a file system folds or reserves some of the rest."""


def keys_of_another_depth(kind: str) -> Iterator[str]:
    """Keys that would be folders of keys of this kind, or be in one of them as a folder."""
    parts = KEY_PARTS[kind]
    for count in {*range(1, parts), parts + 1}:
        yield "/".join([kind, *["0"] * (count - 1)])
