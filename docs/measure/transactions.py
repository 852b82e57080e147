#!/usr/bin/env python3
"""qpair beside RocksDB, WiredTiger and LMDB: TPC-C, YCSB, durable commits and inserts, taking turns on one file system.

    cargo build --release
    (cd crates/peers && cargo build --release)
    docs/measure/transactions.py --dir /some/folder > report.md
    docs/measure/transactions.py --dir /some/folder tpcc commit      these parts only

The parts: tpcc (out of memory), tpcc-memory, ycsb, commit, insert. Each store is loaded once in a part, and is removed at its
end: the largest part needs about 40 GB. Peers serve a client with a thread; how many threads serve each best is found by short
runs before the rounds. Then all run once in each round, in an order that turns. Medians, with the least and the most.
Leave the machine alone meanwhile. LMDB's memory is limited by a cgroup, which takes root; the report says if it could not be.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ("rocksdb", "wiredtiger", "lmdb")
THREADS = (1, 2, 4, 16)


def say(*words):
    print(*words, flush=True)


def note(*words):
    print(*words, file=sys.stderr, flush=True)


class Case:
    """One row of a table: a program and how it is called; its reports of all rounds."""

    def __init__(self, name, promise, command, store, threads=None):
        self.name, self.promise, self.command, self.store, self.threads = name, promise, command, store, threads
        self.reports, self.failed = [], None

    @property
    def is_peer(self):
        return self.name in PEERS

    def run(self, *words, threads=None):
        """Runs it once; the report, or None: it failed, and is left out from now on."""
        command = [*self.command, "--store", self.store, "--json", *map(str, words)]
        threads = threads or self.threads
        if threads:
            command += ["--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.failed = next((line for line in done.stderr.splitlines() if line.strip()), f"status {done.returncode}")
            note(f"{' '.join(command)}: {self.failed}")
            return None
        return json.loads(done.stdout)

    def remove(self):
        if os.path.isdir(self.store):
            shutil.rmtree(self.store)
        elif os.path.exists(self.store):
            os.remove(self.store)

    def values(self, figure):
        return [value for value in (figure(report) for report in self.reports) if value is not None]


def number(value, digits):
    return f"{value:,.{digits}f}"


def spread(values, digits=0):
    if not values:
        return ""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{number(middle, digits)} ({number(low, digits)} to {number(high, digits)})"


def middle(values, digits=1):
    return number(statistics.median(values), digits) if values else ""


def ratios(case, other, rate):
    """Round by round."""
    return [rate(a) / rate(b) for a, b in zip(case.reports, other.reports) if rate(b)]


class Bench:
    """The options of all parts, and how a part runs."""

    def __init__(self, options):
        self.options = options
        self.everything = []

    def case(self, part, workload, name, promise, words=(), variant=""):
        """`promise`: sync, async or none, which is without a log."""
        store = os.path.join(self.options.dir, f"{part}-{name}-{promise}{variant}")
        if name == "qpair":
            durability = {"sync": "group", "async": "async", "none": "async"}[promise]
            command = [self.options.qpair, "bench", workload[0], *workload[1], "--durability", durability]
            command += ["--no-log"] if promise == "none" else []
            return Case(name, promise, [*command, *words], store + ".qpair")
        subcommand = "insert" if "--insert" in workload[1] else workload[0]
        command = [self.options.peers, subcommand, "--engine", name]
        return Case(name, promise, [*command, "--durability", promise, *words], store)

    def best_threads(self, case, rate, words, short):
        """How many threads serve a peer best."""
        found = {}
        for threads in THREADS:
            report = case.run(*words, *short, threads=threads)
            if report is None:
                return
            found[threads] = rate(report)
        case.threads = max(found, key=found.get)
        note(f"{case.name}, {case.promise}: " + ", ".join(f"{n} threads {value:,.0f}/s" for n, value in found.items()))

    def rounds(self, part, cases, words, before_each=None):
        for turn in range(self.options.rounds):
            order = cases[turn % len(cases):] + cases[:turn % len(cases)]
            for case in order:
                if case.failed:
                    continue
                if before_each:
                    before_each(case)
                report = case.run(*words(case))
                if report is not None and not case.is_peer and case.promise == "sync" and report["commits_per_flush"] is None \
                        and case.reports == [] and part != "ycsb C":
                    # What never flushed is not durable, whatever it was asked for.
                    case.failed = "no flush of the log was counted: its commits are not durable"
                elif report is not None:
                    case.reports.append(report)
                    self.everything.append({"part": part, "round": turn, "command": case.command, "threads": case.threads, "report": report})
            note(f"{part}: round {turn + 1} of {self.options.rounds}")

    def close(self, cases):
        for case in cases:
            if case.failed:
                say(f"{case.name}, {case.promise}: left out, as it failed: {case.failed}\n")
        if not self.options.keep:
            for case in cases:
                case.remove()


def clients(case, ours):
    return f"{case.threads} thread{'s' if case.threads != 1 else ''}" if case.is_peer else ours


PROMISE = {"sync": "durable", "async": "log not flushed", "none": "no log"}


def compare(cases, rate, promise):
    """A line on qpair against the best peer that promises the same."""
    same = [case for case in cases if case.promise == promise and case.reports]
    ours = next((case for case in same if case.name == "qpair"), None)
    peers = [case for case in same if case.is_peer]
    if not ours or not peers:
        return
    best = max(peers, key=lambda case: statistics.median(case.values(rate)))
    say(f"{PROMISE[promise].capitalize()}: qpair makes {spread(ratios(ours, best, rate), 2)} times what {best.name} makes, the best of the peers.\n")


def settings(cases):
    """How each was opened, once."""
    say("\n<details><summary>Settings</summary>\n")
    for case in cases:
        if case.reports:
            say(f"- {case.name}, {PROMISE[case.promise]}: {case.reports[0]['store']}")
    say("\n</details>\n")


def tpcc(bench, part, warehouses, memory, title):
    options = bench.options
    say(f"## {title}\n")
    ours = ["--workers", options.workers, "--tasks", options.tasks]
    common = ["--warehouses", warehouses, "--memory", memory]
    cases = [
        bench.case(part, ("tpcc", []), name, promise, [*map(str, common), *(map(str, ours) if name == "qpair" else [])])
        for name in ("qpair", *PEERS) for promise in ("sync", "none")
    ]

    def rate(report):
        return report["tx_per_s"]

    for case in cases:
        case.remove()
        case.run("--seconds", 0) if case.is_peer else case.run("--load-only")
        if case.is_peer and not case.failed:
            bench.best_threads(case, rate, [], ["--seconds", options.short, "--warm-up", options.short])
    bench.rounds(part, cases, lambda case: ["--seconds", options.seconds, "--warm-up", options.warm_up])
    for case in cases:
        if options.check and not case.failed:
            report = case.run("--seconds", 0.1, "--warm-up", 0, "--check")
            if report is not None and any(condition["broken"] for condition in report["check"]["conditions"]):
                say(f"**{case.name}, {case.promise}: conditions of TPC-C do not hold.**\n")
    say("No think time, not audited. Latency is that of new orders, with all attempts.\n")
    say("| | commits | clients | tx/s | tpmC | p50 ms | p99 ms | conflicts | commits/flush | CPU us/tx | store GiB |")
    say("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        if not case.reports:
            continue
        conflicts = case.values(lambda r: 100 * sum(t["conflicts"] for t in r["types"].values()) / sum(t["count"] for t in r["types"].values()))
        say(f"| {case.name} | {PROMISE[case.promise]} | {clients(case, f'{options.workers} workers of {options.tasks} tasks')} "
            f"| {spread(case.values(rate))} | {middle(case.values(lambda r: r['tpmc']), 0)} "
            f"| {middle(case.values(lambda r: r['latency_us']['new_order']['p50'] / 1000), 2)} "
            f"| {middle(case.values(lambda r: r['latency_us']['new_order']['p99'] / 1000), 1)} "
            f"| {middle(conflicts)} % | {middle(case.values(lambda r: r['commits_per_flush']))} "
            f"| {middle(case.values(lambda r: r['cpu_us_per_tx']))} "
            f"| {middle(case.values(lambda r: r['store_bytes'] / 2**30 if r['store_bytes'] else None), 2)} |")
    say()
    for promise in ("sync", "none"):
        compare(cases, rate, promise)
    log_on, log_off = cases[0], cases[1]
    if log_on.reports and log_off.reports:
        say(f"qpair with durable commits against qpair without a log: {spread(ratios(log_on, log_off, rate), 2)}.")
    settings(cases)
    bench.close(cases)


def ycsb(bench):
    options = bench.options
    say(f"## YCSB, {options.records:,} records of 1 KB over {options.memory} of memory, durable commits\n")
    common = ["--records", str(options.records), "--memory", options.memory]
    cases = [
        bench.case("ycsb", ("ycsb", []), name, "sync",
                   [*common, *(["--workers", str(options.workers), "--tasks", str(options.tasks)] if name == "qpair" else [])])
        for name in ("qpair", *PEERS)
    ]

    def rate(report):
        return report["ops_per_s"]

    for case in cases:
        case.remove()
        case.run("--workload", "C", "--seconds", 0) if case.is_peer else case.run("--workload", "C", "--load-only")
    say("| workload | | clients | operations/s | p50 us | p99 us | CPU us/operation | qpair / best peer |")
    say("|---|---|---|---|---|---|---|---|")
    # D and E insert, and come last.
    for workload in ("C", "B", "A", "F", "E", "D"):
        words = ["--workload", workload]
        for case in cases:
            case.reports = []
            if case.is_peer and not case.failed:
                bench.best_threads(case, rate, words, ["--seconds", options.short, "--warm-up", options.short])
        bench.rounds(f"ycsb {workload}", cases,
                     lambda case, words=words: [*words, "--seconds", options.seconds, "--warm-up", options.warm_up])
        peers = [case for case in cases if case.is_peer and case.reports]
        best = max(peers, key=lambda case: statistics.median(case.values(rate)), default=None)
        for case in cases:
            if not case.reports:
                continue

            def latency(report, quantile):
                # Of the kind that the workload has most of.
                kinds = report["kinds"].values()
                return max(kinds, key=lambda kind: kind["count"])["latency_us"][quantile]

            ratio = spread(ratios(case, best, rate), 2) if best and not case.is_peer else ""
            say(f"| {workload} | {case.name} | {clients(case, f'{options.workers} workers of {options.tasks} tasks')} "
                f"| {spread(case.values(rate))} | {middle(case.values(lambda r: latency(r, 'p50')), 0)} "
                f"| {middle(case.values(lambda r: latency(r, 'p99')), 0)} | {middle(case.values(lambda r: r['cpu_us_per_op']))} | {ratio} |")
    say("\nLatency is that of the kind of operations that a workload has most of.\n")
    settings(cases)
    bench.close(cases)


def commit(bench):
    options = bench.options
    say("## Durable updates of single rows, 100,000 rows of 128 bytes\n")
    cases = []
    for count in (1, 16, 256):
        case = bench.case("commit", ("commit", []), "qpair", "sync", ["--clients", str(count), "--memory", "256MiB"], f"-{count}")
        case.label = f"{count} client{'s' if count > 1 else ''}"
        if count == 1:
            case.command[case.command.index("group")] = "sync"
        cases.append(case)
    for name in PEERS:
        for count in THREADS:
            case = bench.case("commit", ("commit", []), name, "sync", ["--memory", "256MiB"], f"-{count}")
            case.threads, case.label = count, f"{count} thread{'s' if count > 1 else ''}"
            cases.append(case)
    for case in cases:
        case.remove()
    baseline = [str(options.short)]

    def words(case):
        more = [] if case.is_peer else ["--baseline", *baseline]
        return ["--seconds", options.seconds, "--warm-up", 1, *more]

    bench.rounds("commit", cases, words)
    say("| | clients | commits/s | p50 us | p99 us | commits/flush | CPU us/commit | p50 over a bare write and flush |")
    say("|---|---|---|---|---|---|---|---|")
    for case in cases:
        if case.reports:
            say(f"| {case.name} | {case.label} | {spread(case.values(lambda r: r['commits_per_s']))} "
                f"| {spread(case.values(lambda r: r['latency_us']['p50']))} | {middle(case.values(lambda r: r['latency_us']['p99']), 0)} "
                f"| {middle(case.values(lambda r: r['commits_per_flush']))} | {middle(case.values(lambda r: r['cpu_us_per_commit']))} "
                f"| {spread(case.values(lambda r: r.get('p50_over_baseline')), 2)} |")
    bare = [value for case in cases for value in case.values(lambda r: (r.get("baseline") or {}).get("latency_us", {}).get("p50"))]
    if bare:
        say(f"\nA bare write of 4 KiB and a flush, on the same files in the same minutes: {spread(bare)} us.\n")
    settings([case for case in cases if case.label.startswith("1 ")])
    bench.close(cases)


def insert(bench):
    options = bench.options
    say(f"## Random-order inserts of {options.inserts:,} rows, 100 a transaction, no flush, 1 GiB of memory\n")
    cases = []
    for promise in ("async", "none"):
        words = ["--rows", "100", "--memory", "1GiB"]
        cases.append(bench.case("insert", ("commit", ["--insert"]), "qpair", promise,
                                [*words, "--clients", "64", "--workers", str(options.workers)]))
        cases += [bench.case("insert", ("commit", ["--insert"]), name, promise, words) for name in PEERS]

    def rate(report):
        return report["rows_per_s"]

    for case in (case for case in cases if case.is_peer):
        found = {}
        for threads in (1, 2, 4):
            case.remove()
            report = case.run("--records", options.inserts // 4, threads=threads) if not case.failed else None
            if report is not None:
                found[threads] = rate(report)
        if found:
            case.threads = max(found, key=found.get)
    bench.rounds("insert", cases, lambda case: ["--records", options.inserts], before_each=lambda case: case.remove())
    say("| | commits | clients | rows/s | CPU us/row | store GiB |")
    say("|---|---|---|---|---|---|")
    for case in cases:
        if case.reports:
            say(f"| {case.name} | {PROMISE[case.promise]} | {clients(case, '64 clients')} | {spread(case.values(rate))} "
                f"| {middle(case.values(lambda r: r['cpu_us_per_commit'] / r['rows_per_tx']), 2)} "
                f"| {middle(case.values(lambda r: r['store_bytes'] / 2**30 if r['store_bytes'] else None), 2)} |")
    say()
    for promise in ("async", "none"):
        compare(cases, rate, promise)
    settings(cases)
    bench.close(cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="tpcc, tpcc-memory, ycsb, commit, insert; all without one")
    parser.add_argument("--dir", default=".", help="folder for the stores")
    parser.add_argument("--qpair", default=os.path.join(HERE, "../../target/release/qpair"))
    parser.add_argument("--peers", default=os.path.join(HERE, "../../crates/peers/target/release/qpair-peers"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="of a run")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds before that, of TPC-C and YCSB")
    parser.add_argument("--short", type=float, default=4, help="seconds of the runs that find how many threads are best")
    parser.add_argument("--workers", type=int, default=2, help="of qpair")
    parser.add_argument("--tasks", type=int, default=64, help="of each worker of qpair, for TPC-C and YCSB")
    parser.add_argument("--warehouses", type=int, default=25, help="of TPC-C out of memory")
    parser.add_argument("--warehouses-memory", type=int, default=5, help="of TPC-C in memory")
    parser.add_argument("--memory", default="300MiB", help="out of memory")
    parser.add_argument("--records", type=int, default=3_000_000, help="of YCSB")
    parser.add_argument("--inserts", type=int, default=4_000_000)
    parser.add_argument("--no-check", dest="check", action="store_false", help="leave out TPC-C's conditions")
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    parser.add_argument("--json", help="every report, to this file")
    options = parser.parse_args()
    bench = Bench(options)
    parts = {
        "tpcc": lambda: tpcc(bench, "tpcc", options.warehouses, options.memory,
                             f"TPC-C out of memory: {options.warehouses} warehouses over {options.memory}"),
        "tpcc-memory": lambda: tpcc(bench, "tpcc-memory", options.warehouses_memory, "4GiB",
                                    f"TPC-C in memory: {options.warehouses_memory} warehouses"),
        "ycsb": lambda: ycsb(bench),
        "commit": lambda: commit(bench),
        "insert": lambda: insert(bench),
    }
    unknown = [part for part in options.parts if part not in parts]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    for part in options.parts or parts:
        parts[part]()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.everything, file, indent=1)


main()
