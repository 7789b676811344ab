"""A prompt request that has to wait after all: its coroutine in a task, which tells the reply."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.context import MessageReply, RequestContext


class Waiting:
    """One request that is awaited. Whoever holds it may cancel it; then the reply is not told."""

    __slots__ = ("_task",)

    def __init__(
        self, context: RequestContext, wait: Callable[[], Coroutine[Any, Any, object]], reply: MessageReply
    ) -> None:
        """`wait` is called when the task begins: not if it is cancelled before."""
        self._task = asyncio.get_running_loop().create_task(_run(context, wait, reply))

    def cancel(self) -> None:
        self._task.cancel()


async def _run(
    context: RequestContext, wait: Callable[[], Coroutine[Any, Any, object]], reply: MessageReply
) -> None:
    watch = context.handler_time
    try:
        response = await (wait() if watch is None else watch.timed(wait()))
    except Exception as error:
        reply.fail(error)
    else:
        reply.answer(response)
    finally:
        context.leave()
