"""A gateway in which one step of applying a durable entry fails once, as for want of memory.

`DRAGOMAN_FAULT=remember_all:30 python -m tests.faults.failing_apply serve ...`; without the variable it is
the gateway as it is.
"""

import os
from collections.abc import Callable
from typing import Any

from gateway.cli.main import main
from ledger.objects.state import Objects, ObjectState
from ledger.partitions.state import PartitionLog

VARIABLE = "DRAGOMAN_FAULT"
MODULE = "tests.faults.failing_apply"
STEPS: dict[str, type] = {"remember_all": ObjectState, "append": PartitionLog, "register": Objects}


def fail_once(owner: type, name: str, number: int, after: bool) -> None:
    """The call with this number, counted from 1, raises MemoryError, before or after it had its effect."""
    step: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return step(*arguments)
        if after:
            step(*arguments)
        raise MemoryError(f"on purpose, in call {number} of {name}")

    setattr(owner, name, failing)


if __name__ == "__main__":
    fault = os.environ.pop(VARIABLE, "")
    if fault:
        name, number, when = fault.split(":")
        fail_once(STEPS[name], name, int(number), when == "after")
    main()
