"""Closing, forks, threads, and the end of the interpreter."""

import gc
import threading

import pytest

import qpair
from conftest import open_on_disk


def test_closed_handles_are_errors(path):
    store = open_on_disk(path)
    table = store.table("t")
    table.load((b"%05d" % number, b"v") for number in range(5_000))
    tx, snapshot, batch = store.transaction(), store.snapshot(), store.batch()
    tx.put(table, b"k", b"v")
    rows, begun, of_snapshot = table.items(), iter(table.items()), iter(snapshot.range(table))
    next(begun), next(of_snapshot)
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store) and "closed" in repr(table)
    calls = [
        lambda: table[b"k"],
        lambda: table.put(b"k", b"v"),
        lambda: b"k" in table,
        lambda: len(table),
        lambda: table.multi_get([b"k"]),
        lambda: table.load([(b"k", b"v")]),
        lambda: list(rows),
        lambda: list(begun),
        lambda: list(of_snapshot),
        lambda: tx.get(table, b"k"),
        lambda: tx.commit(),
        lambda: snapshot.get(table, b"k"),
        lambda: batch.put(table, b"k", b"v"),
        lambda: batch.write(),
        lambda: table.aio.get(b"k"),
        lambda: table.aio.put(b"k", b"v"),
        lambda: store.table("t"),
        lambda: store.transaction(),
        lambda: store.snapshot(),
        lambda: store.transact(lambda tx: None),
        lambda: store.metrics(),
        lambda: store.backup(path + ".backup"),
    ]
    for call in calls:
        with pytest.raises(qpair.Closed) as raised:
            call()
        assert raised.value.kind == "Closed"
    # The file is free though the handles are there, and the transaction was not committed.
    with open_on_disk(path) as store:
        assert b"k" not in store["t"] and len(store["t"]) == 5_000


def test_a_store_lives_as_long_as_its_handles(path):
    table = open_on_disk(path).table("t")
    gc.collect()
    table[b"k"] = b"v"
    with pytest.raises(qpair.Busy) as raised:
        open_on_disk(path)
    assert raised.value.hint is not None or "open" in str(raised.value)
    del table
    gc.collect()
    with open_on_disk(path) as store:
        assert store["t"][b"k"] == b"v"


def test_closing_races_with_other_threads(path):
    for turn in range(5):
        store = open_on_disk(path)
        table = store.table("t")
        if turn == 0:
            table.load(((b"%06d" % number, bytes(300)) for number in range(50_000)), sorted=True)
        failed, begun = [], threading.Barrier(4)

        def work():
            begun.wait()
            try:
                while True:
                    for number in range(0, 50_000, 97):
                        table.get(b"%06d" % number)
                    table.put(b"x", b"y")
                    list(table.range().limit(2_000))
            except qpair.Closed:
                pass
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        store.close()
        for thread in threads:
            thread.join()
        assert failed == []


def test_other_threads_run_while_one_waits(store, table):
    table[b"k"] = b"v"
    holder = store.transaction()
    holder.lock(table, b"k")
    thread = threading.Thread(target=table.put, args=(b"k", b"w"))
    thread.start()
    # This thread could not go on if the other one had kept the interpreter.
    holder.rollback()
    thread.join()
    assert table[b"k"] == b"w"


def test_closing_releases_a_thread_that_waits_for_a_row(path):
    store = qpair.open("ram:size=16MiB", memory="8MiB", workers=1)
    table = store.table("t")
    table[b"k"] = b"v"
    holder, waiter, ended = store.transaction(), store.transaction(), []
    holder.lock(table, b"k")

    def wait():
        try:
            waiter.lock(table, b"k")
            waiter.commit()
        except qpair.Error as error:
            ended.append(error.kind)

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    thread.join(30)
    assert not thread.is_alive() and ended in (["Closed"], [])


def test_a_fork_is_refused(program, path):
    said = program(
        """
        import os, sys, qpair
        store = qpair.open(sys.argv[1], memory="8MiB", workers=1, buffered=True)
        table = store.table("t")
        table[b"k"] = b"v"
        tx, snapshot, rows = store.transaction(), store.snapshot(), iter(table.items())
        tx.put(table, b"l", b"v")
        child = os.fork()
        if child == 0:
            calls = [lambda: table[b"k"], lambda: table.put(b"k", b"w"), lambda: tx.commit(), lambda: next(rows),
                     lambda: snapshot.get(table, b"k"), lambda: store.table("u"), lambda: table.aio.get(b"k")]
            for call in calls:
                try:
                    call()
                    print("no error")
                except qpair.Invalid as error:
                    assert "fork" in str(error) and "after the fork" in error.hint, error
            assert store.closed
            store.close()
            del tx, snapshot, rows, table, store
            # A store of its own works.
            with qpair.open(sys.argv[1] + ".child", memory="8MiB", workers=1, buffered=True) as own:
                own.table("t")[b"k"] = b"child"
                print("child", own["t"][b"k"].decode(), flush=True)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        table[b"k"] = b"w"
        tx.commit()
        store.close()
        with qpair.open(sys.argv[1], memory="8MiB", workers=1, buffered=True) as store:
            print("parent", dict(store["t"]))
        """,
        path,
    )
    assert said == "child child\nparent {b'k': b'w', b'l': b'v'}\n"


def test_multiprocessing_by_fork(program):
    said = program(
        """
        import multiprocessing, qpair
        store = qpair.open("ram:size=16MiB", memory="8MiB", workers=1)
        table = store.table("t")
        def work(number):
            try:
                table[b"k"]
            except qpair.Error as error:
                return error.kind
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(2)))
        """
    )
    assert said == "['Invalid', 'Invalid']\n"


@pytest.mark.parametrize("left", ["nothing", "table", "iterators", "threads", "asyncio"])
def test_the_end_of_the_interpreter_closes_stores(program, path, left):
    program(
        """
        import asyncio, sys, threading, time, qpair
        path, left = sys.argv[1:]
        store = qpair.open(path, memory="8MiB", workers=1, buffered=True)
        table = store.table("t")
        table.load(((b"%06d" % number, bytes(300)) for number in range(30_000)), sorted=True)
        table[b"k"] = b"v"
        if left == "nothing":
            del table, store
        elif left == "table":
            del store
        elif left == "iterators":
            rows, tx, snapshot = iter(table.items()), store.transaction(), store.snapshot()
            next(rows), tx.put(table, b"l", b"v"), next(iter(snapshot.range(table)))
        elif left == "threads":
            def work(number):
                while True:
                    table.get(b"%06d" % (number * 7919 % 30_000))
                    table.put(b"x", b"y")
                    number += 1
            for number in range(4):
                threading.Thread(target=work, args=(number,), daemon=True).start()
            threading.excepthook = lambda arguments: None
            time.sleep(0.1)
        else:
            async def main():
                for number in range(100):
                    asyncio.ensure_future(table.aio.get(b"%06d" % (number * 7919 % 30_000)))
                await asyncio.sleep(0)
            asyncio.run(main())
        """,
        path,
        left,
    )
    # A store that was closed has nothing to recover.
    with open_on_disk(path) as store:
        assert store["t"][b"k"] == b"v" and b"l" not in store["t"]
        assert store.metrics_text().count("recovered_commits") and recovered(store) == 0


def recovered(store):
    found = [value for name, value in store.metrics().items() if "recovered_commits" in name]
    return found[0]


def test_errors_have_hints(path):
    with pytest.raises(qpair.NotFound) as raised:
        qpair.open(path, create=False)
    error = raised.value
    assert error.kind == "NotFound" and path in str(error) and error.context and error.context in str(error)
    if error.hint:
        assert error.hint in str(error)
    with open(path, "wb") as file:
        file.write(b"text" * 10_000)
    with pytest.raises(qpair.NotAStore) as raised:
        qpair.open(path)
    assert raised.value.hint and raised.value.hint in str(raised.value)


def test_options_are_checked(path):
    for options, error in [
        ({"memory": "much"}, ValueError),
        ({"memory": -1}, OverflowError),
        ({"memory": []}, TypeError),
        ({"memory": "4KiB"}, qpair.NoMemory),
        ({"page_size": 1000}, qpair.Invalid),
        ({"io": "magic"}, ValueError),
        ({"durability": "perhaps"}, ValueError),
        ({"lock_timeout": -1.0}, ValueError),
        ({"workers": "two"}, TypeError),
        ({"wrong": 1}, TypeError),
    ]:
        with pytest.raises(error):
            qpair.open(path, **options)
    with pytest.raises(TypeError):
        qpair.open(7)
    with pytest.raises(TypeError):
        qpair.open()


def test_stores_over_several_files(tmp_path):
    members = [tmp_path / "a.qpair", tmp_path / "b.qpair"]
    options = dict(memory="8MiB", workers=1, buffered=True, durability="group", lock_timeout=5, page_size="8KiB")
    with qpair.open(members, **options) as store:
        store.table("t")[b"k"] = b"v"
        assert store.opened["created"] and store.opened["interface"]
        assert store.backup(tmp_path / "copy.qpair") > 0
        assert store.compact()[1] > 0
    assert all(member.exists() for member in members)
    with qpair.open(tmp_path / "copy.qpair", memory="8MiB", workers=1, buffered=True, read_only=True) as copy:
        assert copy.read_only and dict(copy["t"]) == {b"k": b"v"}
        with pytest.raises(qpair.ReadOnly):
            copy["t"][b"k"] = b"w"


def test_a_store_is_read_beside_its_writer(tmp_path):
    path = tmp_path / "s"
    options = dict(memory="8MiB", workers=1, buffered=True)
    with qpair.open(path, readers_bytes_max="64MiB", checkpoint_every=3600, **options) as writer:
        assert not writer.opened["beside_writer"]
        writer.table("t")[b"k"] = b"1"
        writer.checkpoint()
        with qpair.open(path, read_only=True, **options) as before:
            assert before.read_only and before.opened["beside_writer"]
            writer["t"][b"k"] = b"2"
            writer.checkpoint()
            writer["t"][b"k"] = b"3"
            assert before["t"][b"k"] == b"1"
            with qpair.open(path, read_only=True, **options) as newer:
                assert newer["t"][b"k"] == b"2"
            with pytest.raises(qpair.ReadOnly):
                before["t"][b"k"] = b"4"
        with pytest.raises(qpair.Busy):
            qpair.open(path, **options)
    with qpair.open(path, beside_writer=True, **options) as closed:
        assert closed["t"][b"k"] == b"3"
        with qpair.open(path, **options) as writer:
            writer["t"][b"k"] = b"5"
            assert closed["t"][b"k"] == b"3"


def test_without_io_uring_a_store_falls_back_and_says_so(program, path):
    said = program(
        """
        import ctypes, struct, sys, warnings
        # As the seccomp profiles of containers do: io_uring_setup is not permitted.
        code = b"".join(struct.pack("HBBI", *part) for part in
                        [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)])
        program = ctypes.create_string_buffer(code)
        class Fprog(ctypes.Structure):
            _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(Fprog(4, ctypes.addressof(program))), 0, 0) == 0
        import qpair
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with qpair.open(sys.argv[1], memory="8MiB", workers=1, buffered=True) as store:
                store.table("t")[b"k"] = b"v"
                assert store.opened["passed_over"][0][0] == "io_uring", store.opened
                print(store.opened["interface"])
        assert [warning.category for warning in told] == [qpair.OpenWarning], told
        assert "io_uring cannot be used here" in str(told[0].message) and told[0].filename == "<string>"
        try:
            qpair.open(sys.argv[1], io="io_uring", buffered=True)
        except (qpair.Unsupported, qpair.Denied, qpair.Limit) as error:
            print("refused")
        """,
        path,
    )
    assert said.split() in (["libaio", "refused"], ["posix", "refused"])


def test_a_file_that_cannot_be_written_is_opened_for_reading(program):
    said = program(
        """
        import os, tempfile, warnings, qpair
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            path = os.path.join(folder, "store.qpair")
            with qpair.open(path, memory="8MiB", workers=1, buffered=True) as store:
                store.table("t")[b"k"] = b"v"
            os.chmod(path, 0o444)
            child = os.fork()
            if child == 0:
                if os.geteuid() == 0:
                    os.setuid(65534)
                if not os.access(path, os.R_OK):
                    print("skip", flush=True)
                    os._exit(0)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    with qpair.open(path, memory="8MiB", workers=1, buffered=True) as store:
                        assert store.read_only and dict(store["t"]) == {b"k": b"v"}
                        try:
                            store["t"][b"k"] = b"w"
                        except qpair.ReadOnly:
                            print(*[warning.message for warning in told], flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    if said == "skip\n":
        pytest.skip("another user cannot read the folder of the tests")
    assert "opened for reading only" in said
