"""Stores for the tests, in memory where nothing has to survive."""

import pathlib
import subprocess
import sys
import textwrap

import pytest

import qpair


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "store.qpair")


@pytest.fixture
def store():
    """An open store in memory."""
    with qpair.open("ram:size=64MiB", memory="16MiB", workers=1) as store:
        yield store


@pytest.fixture
def table(store):
    return store.table("t")


@pytest.fixture
def program():
    """Runs a program in another interpreter, and returns what it printed."""

    def run(text: str, *arguments: str, timeout: float = 60) -> str:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "panicked" not in done.stderr, done.stderr
        return done.stdout

    return run


def open_on_disk(path: str, **options):
    """Opens a store on a file; the file system of the tests may have no direct I/O."""
    return qpair.open(path, memory="8MiB", workers=1, buffered=True, **options)
