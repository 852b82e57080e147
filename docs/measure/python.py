#!/usr/bin/env python3
"""The Python package beside lmdb, rocksdict and sqlite3, in interleaved rounds: nanoseconds a call, medians and spread, and as JSON.

  python -m venv v && v/bin/pip install WHEEL lmdb rocksdict
  v/bin/python docs/measure/python.py --dir /mnt/drive --out figures.json                       the figures
  v/bin/python docs/measure/python.py --dir /tmp/x --records 20000 --cold-records 50000 --scan-records 50000 --rounds 2      does it run?

In each round each engine does each task once, in turn, the order of the engines shifted by one. The tasks:

- load: records in order from a generator into a new store; qpair also unsorted (`load, any order`).
- get, put: random keys of a store that is in memory. Puts are in transactions or batches of --batch, which are written and not flushed;
  `put, durable batches` and `put, one by one` (not flushed) are qpair's alone. `get, own transaction`: lmdb once more, with a transaction each.
- await get: the same keys by `await table.aio.get` in one task: found at once.
- scan in memory; scan: all records, by the iterator of the engine; the second of --scan-records and a store that was just opened.
- cold get: random keys of a store of --cold-records, with --memory bytes for pages and direct I/O (qpair), or the same limit for cache (rocksdict,
  sqlite3); lmdb has the page cache, so run this in a control group with a limit (systemd-run -p MemoryMax=...) or its figures are
  those of memory. One thread: lmdb, rocksdict, sqlite3, qpair; `256 tasks`: qpair by asyncio, the others by 16 threads of run_in_executor.

Sizes are records of 16 + --value-bytes bytes. Every figure has the spread of its rounds; a figure is not worth more than that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--dir", help="where the stores are made [default: a temporary folder]")
parser.add_argument("--records", type=int, default=200_000, help="of the tasks in memory")
parser.add_argument("--calls", type=int, default=200_000, help="gets and puts of a round")
parser.add_argument("--scan-records", type=int, default=10_000_000)
parser.add_argument("--cold-records", type=int, default=10_000_000)
parser.add_argument("--cold-calls", type=int, default=20_000)
parser.add_argument("--tasks", type=int, default=256)
parser.add_argument("--memory", type=int, default=64 << 20, help="bytes, of the cold tasks")
parser.add_argument("--value-bytes", type=int, default=120)
parser.add_argument("--batch", type=int, default=1_000, help="puts of a transaction or batch")
parser.add_argument("--workers", type=int, default=1, help="of qpair")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--engines", default="qpair,lmdb,rocksdict,sqlite3")
parser.add_argument("--only", default="", help="tasks whose name contains this")
parser.add_argument("--buffered", action="store_true", help="qpair by the page cache: for file systems without direct I/O")
parser.add_argument("--out", help="write all rounds as JSON")
options = parser.parse_args()


def key(number: int) -> bytes:
    return b"%016d" % number


def records(count: int):
    value = bytes(range(256))[: options.value_bytes] if options.value_bytes <= 256 else bytes(options.value_bytes)
    for number in range(count):
        yield key(number), value


VALUE = next(records(1))[1]


class Qpair:
    def __init__(self, folder: str, count: int, cold: bool) -> None:
        import qpair

        memory = options.memory if cold else max(256 << 20, 3 * count * (16 + options.value_bytes))
        self.store = qpair.open(
            os.path.join(folder, "qpair"),
            memory=memory,
            workers=options.workers,
            durability="async",
            buffered=options.buffered,
        )
        self.table = self.store.table("t")

    def load(self, pairs) -> None:
        self.table.load(pairs, sorted=True)

    def load_unsorted(self, pairs) -> None:
        self.store.table("unsorted").load(pairs)

    def get(self, keys) -> None:
        get = self.table.get
        for one in keys:
            get(one)

    def put(self, keys) -> None:
        table = self.table
        for at in range(0, len(keys), options.batch):
            with self.store.transaction(durability="async") as tx:
                put = tx.put
                for one in keys[at : at + options.batch]:
                    put(table, one, VALUE)

    def put_batch(self, keys) -> None:
        table = self.table
        for at in range(0, len(keys), options.batch):
            with self.store.batch() as batch:
                put = batch.put
                for one in keys[at : at + options.batch]:
                    put(table, one, VALUE)

    def put_alone(self, keys) -> None:
        put = self.table.put
        for one in keys:
            put(one, VALUE)

    def await_get(self, keys) -> None:
        async def main():
            get = self.table.aio.get
            for one in keys:
                await get(one)

        asyncio.run(main())

    def tasks_get(self, keys) -> None:
        get = self.table.aio.get

        async def work(part):
            for one in part:
                await get(one)

        async def main():
            await asyncio.gather(*[work(keys[number :: options.tasks]) for number in range(options.tasks)])

        asyncio.run(main())

    def scan(self) -> int:
        return sum(1 for _ in self.table.items())

    def close(self) -> None:
        self.store.close()


class Other:
    """What has no calls for asyncio is called by threads."""

    def tasks_get(self, keys) -> None:
        async def work(loop, pool, part):
            for one in part:
                await loop.run_in_executor(pool, self.get, [one])

        async def main():
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(16) as pool:
                await asyncio.gather(*[work(loop, pool, keys[n :: options.tasks]) for n in range(options.tasks)])

        asyncio.run(main())


class Lmdb(Other):
    def __init__(self, folder: str, count: int, cold: bool) -> None:
        import lmdb

        size = max(64 << 20, 8 * count * (32 + options.value_bytes))
        self.environment = lmdb.open(os.path.join(folder, "lmdb"), map_size=size, sync=False, readahead=not cold)

    def load(self, pairs) -> None:
        with self.environment.begin(write=True) as tx, tx.cursor() as cursor:
            cursor.putmulti(pairs, append=True)
        self.environment.sync(True)

    def get(self, keys) -> None:
        with self.environment.begin() as tx:
            get = tx.get
            for one in keys:
                get(one)

    def get_in_own_transaction(self, keys) -> None:
        begin = self.environment.begin
        for one in keys:
            with begin() as tx:
                tx.get(one)

    def put(self, keys) -> None:
        for at in range(0, len(keys), options.batch):
            with self.environment.begin(write=True) as tx:
                for one in keys[at : at + options.batch]:
                    tx.put(one, VALUE)

    def scan(self) -> int:
        with self.environment.begin() as tx, tx.cursor() as cursor:
            return sum(1 for _ in cursor)

    def close(self) -> None:
        self.environment.close()


class Rocksdict(Other):
    def __init__(self, folder: str, count: int, cold: bool) -> None:
        from rocksdict import BlockBasedOptions, Cache, Options, Rdict

        self.batch = __import__("rocksdict").WriteBatch
        opened, blocks = Options(raw_mode=True), BlockBasedOptions()
        opened.create_if_missing(True)
        if cold:
            blocks.set_block_cache(Cache(options.memory))
            opened.set_use_direct_reads(not options.buffered)
        opened.set_block_based_table_factory(blocks)
        self.store = Rdict(os.path.join(folder, "rocksdict"), opened)

    def load(self, pairs) -> None:
        batch, size = self.batch(raw_mode=True), 0
        for one, value in pairs:
            batch.put(one, value)
            size += 1
            if size == 10_000:
                self.store.write(batch)
                batch, size = self.batch(raw_mode=True), 0
        self.store.write(batch)
        self.store.flush()

    def get(self, keys) -> None:
        get = self.store.get
        for one in keys:
            get(one)

    def put(self, keys) -> None:
        for at in range(0, len(keys), options.batch):
            batch = self.batch(raw_mode=True)
            for one in keys[at : at + options.batch]:
                batch.put(one, VALUE)
            self.store.write(batch)

    def scan(self) -> int:
        return sum(1 for _ in self.store.items())

    def close(self) -> None:
        self.store.close()


class Sqlite(Other):
    def __init__(self, folder: str, count: int, cold: bool) -> None:
        self.path = os.path.join(folder, "sqlite")
        self.store = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        pages = (options.memory if cold else 1 << 30) // 1024
        self.store.execute("pragma journal_mode=wal")
        self.store.execute("pragma synchronous=off")
        self.store.execute(f"pragma cache_size=-{pages}")
        self.store.execute("create table if not exists t (k blob primary key, v blob) without rowid")

    def load(self, pairs) -> None:
        self.store.execute("begin")
        self.store.executemany("insert into t values (?, ?)", pairs)
        self.store.execute("commit")

    def get(self, keys) -> None:
        run = self.store.execute
        for one in keys:
            run("select v from t where k = ?", (one,)).fetchone()

    def put(self, keys) -> None:
        for at in range(0, len(keys), options.batch):
            self.store.execute("begin")
            for one in keys[at : at + options.batch]:
                self.store.execute("insert or replace into t values (?, ?)", (one, VALUE))
            self.store.execute("commit")

    def scan(self) -> int:
        return sum(1 for _ in self.store.execute("select k, v from t order by k"))

    def close(self) -> None:
        self.store.close()


ENGINES = {"qpair": Qpair, "lmdb": Lmdb, "rocksdict": Rocksdict, "sqlite3": Sqlite}
rounds: dict[tuple[str, str], list[tuple[float, float]]] = {}


def timed(task: str, engine: str, calls: int, run) -> None:
    """Notes the time of a call and the processor time of the process, of all its threads, in nanoseconds."""
    if options.only not in task and task != "load":
        return
    begun, cpu = time.perf_counter_ns(), time.process_time_ns()
    run()
    if options.only in task:
        times = (time.perf_counter_ns() - begun) / calls, (time.process_time_ns() - cpu) / calls
        rounds.setdefault((task, engine), []).append(times)


def wanted(*tasks: str) -> bool:
    return any(options.only in task for task in tasks)


def in_memory(names: list[str], folder: str, number: int) -> None:
    """One round of the tasks in memory: a new store for each engine."""
    order = list(range(options.records))
    random.Random(number).shuffle(order)
    keys = [key(order[at % len(order)]) for at in range(options.calls)]
    for name in names:
        engine = ENGINES[name](folder, options.records, False)
        timed("load", name, options.records, lambda: engine.load(records(options.records)))
        if name == "qpair" and wanted("load, any order"):
            pairs = [(key(at), VALUE) for at in order]
            timed("load, any order", name, len(pairs), lambda: engine.load_unsorted(pairs))
        # What a load has just written need not be in memory yet.
        engine.scan()
        timed("get", name, len(keys), lambda: engine.get(keys))
        if name == "lmdb":
            timed("get, own transaction", name, len(keys), lambda: engine.get_in_own_transaction(keys))
        timed("put", name, len(keys), lambda: engine.put(keys))
        timed("scan in memory", name, options.records, lambda: check(engine.scan(), options.records))
        if name == "qpair":
            timed("put, durable batches", name, len(keys), lambda: engine.put_batch(keys))
            timed("put, one by one", name, len(keys) // 10, lambda: engine.put_alone(keys[: len(keys) // 10]))
            timed("await get", name, len(keys), lambda: engine.await_get(keys))
            timed(f"await get, {options.tasks} tasks", name, len(keys), lambda: engine.tasks_get(keys))
        engine.close()
        remove(folder)


def large(names: list[str], folder: str) -> None:
    """The scan and the cold lookups: stores are loaded once, and opened in turn."""
    for count, cold, tasks in ((options.scan_records, False, ("scan",)), (options.cold_records, True, ("cold get",))):
        if not wanted(*tasks) or not count:
            continue
        for name in names:
            engine = ENGINES[name](folder, count, cold)
            engine.load(records(count))
            engine.close()
        for number in range(options.rounds):
            for name in turned(names, number):
                engine = ENGINES[name](folder, count, cold)
                if not cold:
                    timed("scan", name, count, lambda: check(engine.scan(), count))
                else:
                    choose = random.Random(number)
                    keys = [key(choose.randrange(count)) for _ in range(options.cold_calls)]
                    timed("cold get", name, len(keys), lambda: engine.get(keys))
                    keys = [key(choose.randrange(count)) for _ in range(options.cold_calls)]
                    timed(f"cold get, {options.tasks} tasks", name, len(keys), lambda: engine.tasks_get(keys))
                engine.close()
        remove(folder)


def check(found: int, expected: int) -> None:
    if found != expected:
        sys.exit(f"a scan found {found} records, not {expected}")


def turned(names: list[str], number: int) -> list[str]:
    return names[number % len(names) :] + names[: number % len(names)]


def remove(folder: str) -> None:
    for entry in os.scandir(folder):
        shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)


def main() -> None:
    names = options.engines.split(",")
    folder = tempfile.mkdtemp(prefix="python-measure-", dir=options.dir)
    try:
        memory_tasks = ("load", "load, any order", "get", "put", "await get", "scan in memory")
        for number in range(options.rounds if wanted(*memory_tasks) else 0):
            in_memory(turned(names, number), folder, number)
        large(names, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tasks = dict.fromkeys(task for task, _ in rounds)
    print(f"ns a call: median of {options.rounds} rounds (smallest to largest), processor time; Python {platform.python_version()}")
    for task in tasks:
        print(f"{task}:")
        for name in names:
            times = rounds.get((task, name))
            if times:
                wall, cpu = zip(*times)
                spread = f"({min(wall):.0f} to {max(wall):.0f})"
                print(f"  {name:10} {statistics.median(wall):10.0f}   {spread:22} {statistics.median(cpu):10.0f}")
    if options.out:
        report = {
            "python": sys.version,
            "kernel": platform.release(),
            "options": vars(options),
            "ns_per_call_wall_and_cpu": [{"task": task, "engine": name, "rounds": times} for (task, name), times in rounds.items()],
        }
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


main()
