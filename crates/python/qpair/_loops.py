"""The event loops that await the store: asyncio, and trio. anyio runs on one of them.

A loop has one queue of completions, whose descriptor it watches.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator
from typing import Any

from ._qpair import Queue

_get_running_loop = asyncio._get_running_loop


class _Here(threading.local):
    """The loop that awaited last in this thread, and its queue."""

    loop: object = None
    queue: Any = None


_here = _Here()


def begin() -> tuple[Any, Any]:
    """Returns the queue of the running loop, and a new future of it."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return _begin_trio(trio)
    loop = _get_running_loop()
    if loop is None:
        raise RuntimeError("await the calls of an AsyncTable in a task of asyncio or trio")
    if _here.loop is not loop:
        _watch_asyncio(loop)
    return _here.queue, loop.create_future()


# The open loops of asyncio and their queues, by identity: some loops cannot be referred to weakly.
_queues: dict[int, tuple[Any, Any]] = {}


def _watch_asyncio(loop: asyncio.AbstractEventLoop) -> None:
    known, queue = _queues.get(id(loop), (None, None))
    if known is not loop:
        queue = Queue()
        loop.add_reader(queue.fileno(), queue.drain)
        for number, (other, _) in list(_queues.items()):
            if other.is_closed():
                _queues.pop(number, None)
        _queues[id(loop)] = (loop, queue)
    _here.loop, _here.queue = loop, queue


class _TrioFuture:
    """The result that one task of trio waits for."""

    __slots__ = ("_task", "_over", "_trio")

    def __init__(self, trio: Any) -> None:
        self._trio, self._task, self._over = trio, trio.lowlevel.current_task(), False

    def done(self) -> bool:
        return self._over

    def set_result(self, value: Any) -> None:
        self._finish(sys.modules["outcome"].Value(value))

    def set_exception(self, error: BaseException) -> None:
        self._finish(sys.modules["outcome"].Error(error))

    def _finish(self, outcome: Any) -> None:
        self._over = True
        self._trio.lowlevel.reschedule(self._task, outcome)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._trio.lowlevel.wait_task_rescheduled(self._abort).__await__()

    def _abort(self, _raise_cancel: Any) -> Any:
        # The operation itself goes on; nobody takes its result.
        self._over = True
        return self._trio.lowlevel.Abort.SUCCEEDED


def _begin_trio(trio: Any) -> tuple[Any, Any]:
    token = trio.lowlevel.current_trio_token()
    if _here.loop is not token:
        _here.loop, _here.queue = token, Queue()
        trio.lowlevel.spawn_system_task(_drain_trio, trio, _here.queue)
    return _here.queue, _TrioFuture(trio)


async def _drain_trio(trio: Any, queue: Any) -> None:
    while True:
        await trio.lowlevel.wait_readable(queue.fileno())
        queue.drain()


def after_fork_in_child() -> None:
    """Forgets the parent's loops."""
    _queues.clear()
    _here.loop = _here.queue = None
