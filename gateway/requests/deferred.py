"""An inline request that must wait: its coroutine runs in a task, which calls the completion."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.completion import Completion
from gateway.requests.context import RequestContext


def defer(
    context: RequestContext, wait: Callable[[], Coroutine[Any, Any, object]], completion: Completion[object]
) -> asyncio.Task[None]:
    """`wait` is called when the task begins: not if it is cancelled before."""
    return asyncio.get_running_loop().create_task(_run(context, wait, completion))


async def _run(
    context: RequestContext, wait: Callable[[], Coroutine[Any, Any, object]], completion: Completion[object]
) -> None:
    watch = context.handler_time
    try:
        response = await (wait() if watch is None else watch.timed(wait()))
    except Exception as error:
        completion.set_exception(error)
    else:
        completion.set_result(response)
    finally:
        context.end()
