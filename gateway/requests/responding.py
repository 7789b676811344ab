"""The completion of an inline request that makes its response of what the shard has decided."""

from collections.abc import Callable

from gateway.completion import Completion
from ledger.requests import LedgerResult


class Responding:
    """`respond` makes the response message of the result."""

    __slots__ = ("_completion", "_respond")

    def __init__(self, completion: Completion[object], respond: Callable[[LedgerResult], object]) -> None:
        self._completion = completion
        self._respond = respond

    def done(self) -> bool:
        return self._completion.done()

    def set_result(self, result: LedgerResult, /) -> None:
        try:
            response = self._respond(result)
        except Exception as error:
            self._completion.set_exception(error)
        else:
            self._completion.set_result(response)

    def set_exception(self, error: Exception, /) -> None:
        self._completion.set_exception(error)
