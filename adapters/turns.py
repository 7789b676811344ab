"""Turns: a bound on the requests of a store at a time; how long each waits is reported to its timer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledger.turns import TIMED_CALL


@asynccontextmanager
async def turn(places: asyncio.Semaphore) -> AsyncIterator[None]:
    """A place, once it is this request's turn: it is with the store then."""
    async with waited_for(places):
        call = TIMED_CALL.get()
        if call is not None:
            call.begins()
        try:
            yield
        finally:
            if call is not None:
                call.ends()


@asynccontextmanager
async def waited_for(places: asyncio.Semaphore) -> AsyncIterator[None]:
    """A place, of a bound that lies before that of the store."""
    call = TIMED_CALL.get()
    if call is None:
        await places.acquire()
    else:
        call.waits()
        try:
            await places.acquire()
        finally:
            call.passes()
    try:
        yield
    finally:
        places.release()
