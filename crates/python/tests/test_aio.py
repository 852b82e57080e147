"""Awaiting the store under asyncio, trio and anyio."""

import asyncio

import pytest

import qpair
from conftest import open_on_disk

RECORDS = 60_000


def run_asyncio(function, *arguments):
    return asyncio.run(function(*arguments))


def run_trio(function, *arguments):
    return pytest.importorskip("trio").run(function, *arguments)


def run_anyio(function, *arguments):
    return pytest.importorskip("anyio").run(function, *arguments)


everywhere = pytest.mark.parametrize("run", [run_asyncio, run_trio, run_anyio])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A table with several times the records that the store's memory takes."""
    path = str(tmp_path_factory.mktemp("aio") / "store.qpair")
    with open_on_disk(path) as store:
        table = store.table("t")
        table.load(((b"%06d" % number, b"%06d" % number * 50) for number in range(RECORDS)), sorted=True)
        yield table


def key(number):
    return b"%06d" % (number * 7919 % RECORDS)


@everywhere
def test_the_calls(table, run):
    async def main():
        a = table.aio
        assert a.sync is table
        assert await a.put(b"a", b"1") is False and await a.put(b"a", b"2") is True
        assert await a.get(b"a") == b"2" and await a.get(b"none") is None
        assert await a.insert(b"a", b"3") is False and await a.insert(b"b", b"3") is True
        assert await a.compare_and_swap(b"b", b"3", b"4") is True
        assert await a.multi_get([b"a", b"none", bytearray(b"b")]) == [b"2", None, b"4"]
        assert await a.delete(b"a") is True and await a.delete(b"a") is False
        with pytest.raises(TypeError):
            await a.get("text")
        with pytest.raises(qpair.KeyTooLong):
            await a.put(b"k" * 70_000, b"")
        await a.put(b"large", bytes(100_000))
        assert await a.get(b"large") == bytes(100_000)

    run(main)
    assert sorted(table) == [b"b", b"large"]


@everywhere
def test_many_tasks_wait_at_once(large, run):
    async def look(numbers):
        for number in numbers:
            assert await large.aio.get(key(number)) == key(number) * 50

    async def main_asyncio():
        await asyncio.gather(*[look(range(task, 4_000, 256)) for task in range(256)])

    async def main_trio():
        import trio

        async with trio.open_nursery() as nursery:
            for task in range(256):
                nursery.start_soon(look, range(task, 4_000, 256))

    async def main_anyio():
        import anyio

        async with anyio.create_task_group() as group:
            for task in range(256):
                group.start_soon(look, range(task, 4_000, 256))

    run({run_asyncio: main_asyncio, run_trio: main_trio, run_anyio: main_anyio}[run])


def test_gather_takes_the_results_of_calls_as_they_are(large):
    async def main():
        values = await asyncio.gather(*[large.aio.get(key(number)) for number in range(500)])
        assert values == [key(number) * 50 for number in range(500)]

    asyncio.run(main())


@everywhere
def test_ranges(large, run):
    async def main():
        found = [record async for record in large.aio.range(b"000100", b"003100")]
        assert found == [(b"%06d" % number, b"%06d" % number * 50) for number in range(100, 3_100)]
        found = [key async for key, _ in large.aio.prefix(b"01234", reverse=True)]
        assert found == [b"01234%d" % digit for digit in range(9, -1, -1)]
        assert [record async for record in large.aio.range(b"9", b"1")] == []
        # As many records as the first part has, and the first two.
        for count in (16, 16 + 64):
            assert len([record async for record in large.aio.range(stop=b"%06d" % count)]) == count

    run(main)


@everywhere
def test_a_batch(store, table, run):
    async def main():
        batch = store.batch()
        batch.put(table, b"a", b"1")
        await table.aio.write(batch)
        assert len(batch) == 0

    run(main)
    assert table[b"a"] == b"1"


def test_cancelled_tasks_take_nothing_with_them(large):
    async def main():
        tasks = [asyncio.ensure_future(large.aio.get(key(number))) for number in range(200)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        values = await asyncio.gather(*tasks, return_exceptions=True)
        for number, value in enumerate(values):
            assert value == key(number) * 50 or isinstance(value, asyncio.CancelledError) and number % 2 == 0

    for _ in range(3):
        asyncio.run(main())


def test_trio_cancels(large):
    trio = pytest.importorskip("trio")

    async def main():
        for number in range(50):
            with trio.move_on_after(0):
                await large.aio.get(key(number))
        assert await large.aio.get(key(7)) == key(7) * 50

    trio.run(main)


def test_loops_in_turn_and_in_threads(large):
    import threading

    async def look(first):
        for number in range(first, first + 100):
            assert await large.aio.get(key(number)) == key(number) * 50

    for turn in range(5):
        asyncio.run(look(turn * 100))
    loops = [asyncio.new_event_loop(), asyncio.new_event_loop()]
    for turn in range(6):
        loops[turn % 2].run_until_complete(look(1_000 + turn * 100))
    for loop in loops:
        loop.close()
    failed = []

    def work(first):
        try:
            asyncio.run(look(first))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(10_000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_misuse(large, table):
    async def twice():
        waiting = table.aio.put(b"k", b"v")
        await waiting
        with pytest.raises(RuntimeError, match="once|before"):
            await waiting

    asyncio.run(twice())
    # Nothing begins that nobody awaits.
    table.aio.put(b"unawaited", b"v")
    assert b"unawaited" not in table
    with pytest.raises(RuntimeError, match="asyncio or trio"):
        table.aio.put(b"k", b"v").__await__()


def test_closing_while_tasks_wait(path):
    async def main():
        store = open_on_disk(path)
        table = store.table("t")
        table.load(((b"%06d" % number, b"v" * 300) for number in range(RECORDS)), sorted=True)
        tasks = [asyncio.ensure_future(table.aio.get(key(number))) for number in range(300)]
        await asyncio.sleep(0)
        store.close()
        values = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(value == b"v" * 300 or isinstance(value, qpair.Closed) for value in values), values
        with pytest.raises(qpair.Closed):
            await table.aio.get(b"k")

    asyncio.run(main())
