"""The exceptions of qpair: one class for each kind of error of the engine."""

from __future__ import annotations


class Error(Exception):
    """An error of a store.

    Its text is a sentence for people, with the hint. For programs there are the class, and

    - ``kind``: the name of the kind in the engine, such as ``"NoSpace"``;
    - ``context``: the text without the cause and the hint;
    - ``hint``: what to do, or None;
    - ``remedy``: the name of a remedy that a program can offer, such as ``"Repair"``, or None.
    """

    kind: str = "Error"
    context: str = ""
    hint: str | None = None
    remedy: str | None = None


class Invalid(Error, ValueError):
    """An argument is out of range, or the call is not allowed here."""


class KeyTooLong(Invalid):
    """A key is longer than the store takes: see ``Store.key_len_max``."""


class ValueTooLong(Invalid):
    """A value is longer than 16 MiB."""


class NotFound(Error):
    """There is no such store or table. A missing key is a ``KeyError``."""


class Exists(Error):
    """A table of this name exists, or a device has other content."""


class Denied(Error):
    """Permission denied."""


class Busy(Error):
    """The store is open elsewhere."""


class NotAStore(Error):
    """The devices do not hold a store of this software."""


class Version(Error):
    """The store is of a version, or has features, that this software does not know."""


class Unclean(Error):
    """The store was not closed, and cannot be recovered as it is opened."""


class Member(Error):
    """A device of the store is missing, or is in the place of another one."""


class Corrupt(Error):
    """The bytes read differ from those that were written."""


class Full(Error):
    """No space is left on the device."""


class NoMemory(Error, MemoryError):
    """The memory of the store is too small for the request."""


class Unsupported(Error):
    """The machine does not support the request."""


class Limit(Error):
    """A limit of the process or machine is too small."""


class ReadOnly(Error):
    """The store was opened for reading only, or became so by a failed write."""


class Io(Error):
    """The device failed."""


class Closed(Error):
    """The store, table, transaction or snapshot is closed."""


class Conflict(Error):
    """Another transaction was in the way: try again. ``Store.transact`` does."""


class TimedOut(Error, TimeoutError):
    """A row was locked by another transaction for longer than ``lock_timeout``."""


class TooLarge(Error):
    """A transaction has more changes than its memory takes."""


class SnapshotLost(Error):
    """A snapshot was given up, because the older values for it took too much memory."""


class Interrupted(Error):
    """The operation was asked to end early."""


class Panicked(Error):
    """The engine failed because of a bug. The store can be used when it is opened again."""


class OpenWarning(UserWarning):
    """A store was opened in another way than its options say: see ``Store.opened``."""


_CLASSES: dict[str, type[Error]] = {
    cls.__name__: cls
    for cls in (
        Invalid, KeyTooLong, ValueTooLong, NotFound, Exists, Denied, Busy, NotAStore, Version, Unclean, Member, Corrupt,
        NoMemory, Unsupported, Limit, ReadOnly, Io, Closed, Conflict, TimedOut, TooLarge, SnapshotLost, Interrupted,
        Panicked,
    )
}  # fmt: skip
_CLASSES["NoSpace"] = Full


def make(kind: str, message: str, context: str, hint: str | None, remedy: str | None) -> Error:
    """Returns the exception for an error of the engine."""
    error = _CLASSES.get(kind, Error)(message)
    error.kind, error.context, error.hint, error.remedy = kind, context, hint, remedy
    return error
