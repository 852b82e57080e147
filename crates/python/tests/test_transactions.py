"""Transactions, snapshots and batches."""

import threading

import pytest

import qpair


def test_a_block_commits_or_rolls_back(store, table):
    with store.transaction() as tx:
        tx.put(table, b"a", b"1")
        assert tx.get(table, b"a") == b"1" and table.get(b"a") is None
    assert table[b"a"] == b"1"
    with pytest.raises(ZeroDivisionError):
        with store.transaction() as tx:
            tx.put(table, b"a", b"2")
            1 / 0
    assert table[b"a"] == b"1"
    with pytest.raises(qpair.Closed):
        tx.get(table, b"a")
    with pytest.raises(qpair.Closed, match="ended"):
        tx.commit()
    tx.rollback()


def test_the_calls_of_a_transaction(store, table):
    table.update({b"%d" % number: b"v" for number in range(10)})
    with store.transaction(name="calls", isolation="serializable", lock_timeout=1.5) as tx:
        assert [info[1] for info in store.transactions()] == ["calls"]
        assert tx.insert(table, b"0", b"w") is False and tx.insert(table, b"x", b"w") is True
        assert tx.delete(table, b"1") is True and tx.delete(table, b"1") is False
        assert tx.compare_and_swap(table, b"2", b"v", b"w") is True
        assert tx.get_for_update(table, b"3") == b"v" and tx.get(table, b"none", b"d") == b"d"
        tx.lock(table, b"4")
        point = tx.savepoint()
        assert tx.delete_range(table, b"5", b"8") == 3
        assert list(tx.range(table, b"4").only_keys()) == [b"4", b"8", b"9", b"x"]
        tx.rollback_to(point)
        assert list(reversed(tx.range(table, b"4", b"7").only_keys())) == [b"6", b"5", b"4"]
        assert list(tx.prefix(table, b"x")) == [(b"x", b"w")]
    assert table[b"2"] == b"w" and b"1" not in table and b"5" in table


def test_a_long_range_in_a_transaction_and_a_snapshot(store, table):
    table.load((b"%05d" % number, b"v") for number in range(5_000))
    expected = [b"%05d" % number for number in range(5_000)]
    with store.transaction() as tx, store.snapshot() as snapshot:
        # The first read takes the transaction's snapshot.
        assert tx.get(table, b"00000") == b"v"
        table.clear()
        for of in (tx, snapshot):
            assert list(of.range(table).only_keys()) == expected
            assert list(reversed(of.range(table).only_keys())) == expected[::-1]
            assert list(of.prefix(table, b"01").only_keys().limit(1_000)) == expected[1_000:2_000]
    assert not table


def test_transact_runs_again_after_conflicts(store, table):
    table[b"n"] = b"0"
    runs = []

    def add(tx):
        runs.append(1)
        tx.put(table, b"n", b"%d" % (int(tx.get(table, b"n")) + 1))
        return "done"

    def work():
        for _ in range(50):
            assert store.transact(add) == "done"

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table[b"n"] == b"200" and len(runs) >= 200


def test_a_conflict_that_python_sees_runs_again_too(store, table):
    table[b"n"] = b"0"
    runs = []

    def change(tx):
        runs.append(1)
        tx.get(table, b"n")
        if len(runs) == 1:
            other = threading.Thread(target=table.put, args=(b"n", b"5"))
            other.start()
            other.join()
        tx.put(table, b"n", b"7")

    store.transact(change)
    assert len(runs) == 2 and table[b"n"] == b"7"
    runs.clear()
    with pytest.raises(qpair.Conflict, match="attempts") as raised:
        store.transact(change, attempts_max=1)
    assert raised.value.hint


def test_transact_passes_exceptions_on(store, table):
    kept = []

    def fail(tx):
        tx.put(table, b"k", b"v")
        kept.append(tx)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        store.transact(fail)
    assert b"k" not in table
    with pytest.raises(qpair.Closed):
        kept[0].get(table, b"k")
    with pytest.raises(RuntimeError, match="return to commit"):
        store.transact(lambda tx: tx.commit())
    with pytest.raises(TypeError):
        store.transact(7)
    with pytest.raises(TypeError, match="no option 'wrong'"):
        store.transact(fail, wrong=1)
    with pytest.raises(ValueError, match="isolation"):
        store.transaction(isolation="none")


def test_closing_within_transact(path):
    store = qpair.open("ram:size=16MiB", memory="8MiB", workers=1)
    table = store.table("t")

    def close(tx):
        tx.put(table, b"k", b"v")
        store.close()

    with pytest.raises(qpair.Closed):
        store.transact(close)
    assert store.closed


def test_a_row_lock_times_out(store, table):
    table[b"k"] = b"v"
    with store.transaction() as tx:
        tx.lock(table, b"k")
        with pytest.raises(qpair.TimedOut) as raised, store.transaction(lock_timeout=0.01) as other:
            other.lock(table, b"k")
        assert isinstance(raised.value, TimeoutError)


def test_a_transaction_of_two_threads_at_once_is_refused(store, table):
    table[b"k"] = b"v"
    holder, waiter = store.transaction(), store.transaction()
    holder.lock(table, b"k")

    def wait():
        while True:
            try:
                return waiter.lock(table, b"k")
            except qpair.Invalid:
                pass  # The other thread was first.

    thread = threading.Thread(target=wait)
    thread.start()
    refused = None
    while refused is None:
        try:
            waiter.get(table, b"other")
        except qpair.Invalid as error:
            refused = error
    assert "another thread" in str(refused) and refused.hint
    holder.rollback()
    thread.join()
    waiter.rollback()


def test_a_transaction_that_a_thread_still_uses_is_not_committed(store, table):
    table[b"k"] = b"v"
    holder = store.transaction()
    holder.lock(table, b"k")
    threads = []

    def leave(tx):
        def wait():
            while True:
                try:
                    return tx.lock(table, b"k")
                except qpair.TimedOut:
                    return
                except qpair.Invalid:
                    pass  # The other thread was first.

        tx.put(table, b"other", b"v")
        threads.append(threading.Thread(target=wait))
        threads[0].start()
        while True:
            try:
                tx.get(table, b"other")
            except qpair.Invalid:
                return

    with pytest.raises(qpair.Invalid, match="another thread"):
        store.transact(leave, lock_timeout=0.5)
    threads[0].join()
    holder.rollback()
    assert b"other" not in table
    # Its locks are gone too.
    assert table.put(b"other", b"w") is False


def test_snapshots_stay(store, table):
    table[b"k"] = b"1"
    snapshot = store.snapshot()
    table[b"k"] = b"2"
    assert snapshot.get(table, b"k") == b"1" and snapshot.get(table, b"l", 5) == 5
    assert isinstance(snapshot.timestamp, int)
    assert (b"k", b"1") in snapshot.range(table)
    snapshot.release()
    snapshot.release()
    with pytest.raises(qpair.Closed):
        snapshot.get(table, b"k")


def test_batches_are_all_or_nothing(store, table):
    other = store.table("other")
    with store.batch() as batch:
        batch.put(table, b"a", b"1")
        batch.put(other, b"b", b"2")
        batch.delete(table, b"none")
        assert len(batch) == 3 and not table
    assert table[b"a"] == b"1" and other[b"b"] == b"2" and len(batch) == 0
    with pytest.raises(ZeroDivisionError), store.batch() as batch:
        batch.put(table, b"c", b"1")
        1 / 0
    assert b"c" not in table
    with qpair.open("ram:size=16MiB", memory="8MiB", workers=1) as foreign:
        with pytest.raises(qpair.Invalid, match="another store"), store.batch() as batch:
            batch.put(table, b"d", b"1")
            batch.put(foreign.table("t"), b"d", b"1")
        assert b"d" not in table
