"""qpair: an ordered key-value store on files and block devices.

>>> import qpair, tempfile, os
>>> path = os.path.join(tempfile.mkdtemp(), "store.qpair")
>>> with qpair.open(path, memory="64MiB") as store:
...     users = store.table("users")
...     users[b"ada"] = b"1815"
...     with store.transaction() as tx:
...         tx.put(users, b"alan", b"1912")
...     list(users.prefix(b"a"))
[(b'ada', b'1815'), (b'alan', b'1912')]
"""

from __future__ import annotations

import atexit
import collections.abc
import os
import warnings
from typing import Any

from . import _loops, _qpair
from ._arrow import load_arrow, load_parquet
from ._errors import (
    Busy,
    Closed,
    Conflict,
    Corrupt,
    Denied,
    Error,
    Exists,
    Full,
    Interrupted,
    Invalid,
    Io,
    KeyTooLong,
    Limit,
    Member,
    NoMemory,
    NotAStore,
    NotFound,
    OpenWarning,
    Panicked,
    ReadOnly,
    SnapshotLost,
    TimedOut,
    TooLarge,
    Unclean,
    Unsupported,
    ValueTooLong,
    Version,
)
from ._qpair import (
    AsyncRange,
    AsyncTable,
    Awaitable,
    Batch,
    Range,
    Savepoint,
    Snapshot,
    Store,
    Table,
    Transaction,
)
from ._tools import advise, bench_io, study

__version__: str = _qpair.VERSION

__all__ = [
    "AsyncRange",
    "AsyncTable",
    "Awaitable",
    "Batch",
    "Busy",
    "Closed",
    "Conflict",
    "Corrupt",
    "Denied",
    "Error",
    "Exists",
    "Full",
    "Interrupted",
    "Invalid",
    "Io",
    "KeyTooLong",
    "Limit",
    "Member",
    "NoMemory",
    "NotAStore",
    "NotFound",
    "OpenWarning",
    "Panicked",
    "Range",
    "ReadOnly",
    "Savepoint",
    "Snapshot",
    "SnapshotLost",
    "Store",
    "Table",
    "TimedOut",
    "TooLarge",
    "Transaction",
    "Unclean",
    "Unsupported",
    "ValueTooLong",
    "Version",
    "__version__",
    "advise",
    "bench_io",
    "load_arrow",
    "load_parquet",
    "open",
    "study",
]


def open(path: Any, /, memory: int | str | None = None, **options: Any) -> Store:
    """Opens a store, or creates it.

    ``path`` is a file, a block device or a specifier of a device such as ``"ram:size=64MiB"``; a list of them is
    striped over. Sizes are numbers of bytes or text such as ``"64MiB"``.

    - ``memory``: for pages. By default 256 MiB, or less if the limits of the process leave less.
    - ``workers``: threads of the store, by default one for each core.
    - ``io``: ``"auto"``, ``"io_uring"``, ``"libaio"`` or ``"posix"``.
    - ``durability``: ``"sync"`` (a change returns when it survives power loss), ``"group"`` or ``"async"``.
    - ``encryption_key`` (32 bytes) or ``key_file`` (a file with them, or their 64 hexadecimal digits): the key of an
      encrypted store; with it a new store is encrypted.
    - ``create``, ``read_only``, ``at_checkpoint``, ``beside_writer``, ``format``, ``force``, ``buffered``, ``page_size``,
      ``stripe_unit``, ``depth``, ``reads``, ``log``, ``log_device``, ``log_flushed``, ``checkpoint_bytes``,
      ``checkpoint_every`` (seconds), ``readers_bytes_max``, ``versions_bytes_max``, ``history_bytes_max``,
      ``transaction_bytes_max``, ``lock_timeout`` (seconds), ``huge_pages``, ``prefault``, ``memory_up_to``,
      ``publish`` (True, or the path of a socket): as in ``qpair::Options``.

    With ``read_only`` beside a process that has the store open for writing, the store shows its newest checkpoint, and
    no later change: ``opened["beside_writer"]``. Open it again to see a newer one.
    ``beside_writer`` does so whether or not there is such a process, and keeps none from writing the store meanwhile.

    What the store does otherwise than asked, or not as fast as it could, is an ``OpenWarning``: another interface than
    io_uring, a file that cannot be written, more memory than there is.
    """
    store = _qpair.open(path, memory=memory, **options)
    opened = store.opened
    told = [f"{name} cannot be used here: {reason}" for name, reason in opened["passed_over"]]
    if told:
        told = [f"the store uses {opened['interface']}: {'; '.join(told)}"]
    if opened["not_writable"] is not None:
        told.append(f"the store was opened for reading only: {opened['not_writable']}")
    if opened["memory_warning"] is not None:
        told.append(opened["memory_warning"])
    if opened["not_published"] is not None:
        told.append(f"the store is not published: {opened['not_published']}")
    for text in told:
        warnings.warn(text, OpenWarning, stacklevel=2)
    return store


def _after_fork_in_child() -> None:
    _qpair.after_fork_in_child()
    _loops.after_fork_in_child()


def _at_exit() -> None:
    _qpair.close_all()
    _qpair.wait_for_threads()


collections.abc.MutableMapping.register(Table)
os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
