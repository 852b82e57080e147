#!/usr/bin/env python3
"""Measures what docs/measure/lookups.md reports: interleaved rounds, medians, and fio beside it on the same file.

    cargo build --release && python3 docs/measure/measure.py --dir /some/folder > report.md

Needs fio and about 6 GiB of space; takes about 25 minutes. Leave the machine alone meanwhile.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

QPAIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../target/release/qpair")
RECORDS = 24_000_000


def qpair(*words):
    """Runs one `qpair bench`, and returns its JSON."""
    command = [QPAIR, "bench", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def lookup(store, **options):
    words = ["lookup", "--store", store, "--records", RECORDS]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), value]
    return qpair(*words)


def fio(store, engine, depth, jobs):
    """Random 4 KiB reads per second of fio over the same file."""
    command = [
        "fio", "--name=read", f"--filename={store}", "--rw=randread", "--bs=4k", "--direct=1", f"--ioengine={engine}",
        f"--iodepth={depth}", f"--numjobs={jobs}", "--group_reporting", "--time_based", "--runtime=3", "--output-format=json",
        "--readonly", "--randrepeat=0", "--norandommap",
        f"--iodepth_batch_submit={min(32, depth // 4)}", f"--iodepth_batch_complete_min={min(32, depth // 4)}",
        f"--iodepth_batch_complete_max={depth}",
    ]
    if engine == "io_uring":
        command += ["--fixedbufs", "--registerfiles"]
    job = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"][0]
    iops = job["read"]["iops"]
    return iops, (job["usr_cpu"] + job["sys_cpu"]) * 1e4 * jobs / iops


def spread(values, digits=1):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def say(*words):
    print(*words, flush=True)


def out_of_memory(store, rounds):
    say(f"## Ten times larger than memory ({rounds} rounds, interleaved)\n")
    ours, best, cost, reads, alone = {}, [], {}, {}, []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        found = []
        runs = [(io, workers) for workers in (1, 2) for io in ("io_uring", "libaio")]
        fios = [(engine, depth, jobs) for depth in (32, 64, 128, 256) for jobs in (1, 2) for engine in ("libaio", "io_uring")]
        per_run = len(fios) // len(runs)
        for index, (io, workers) in enumerate(runs):
            for engine, depth, jobs in fios[index * per_run:(index + 1) * per_run]:
                iops, cpu = fio(store, engine, depth, jobs)
                found.append(iops)
                alone.append(f"{engine}, QD {depth}, {jobs} jobs: {iops / 1000:.1f} K/s, {cpu:.2f} us")
            report = lookup(store, memory="320MiB", io=io, workers=workers, tasks=256 // workers, seconds=5)
            ours.setdefault((io, workers), []).append(report["device_reads_per_s"])
            cost.setdefault((io, workers), []).append(report["cpu_us_per_op"])
            reads.setdefault((io, workers), []).append((report["ops_per_s"], report["reads_per_op"]))
        best.append(max(found))
    say("| | lookups/s | device reads/s | of the round's best fio | CPU us/lookup | reads/lookup |")
    say("|---|---|---|---|---|---|")
    for (io, workers), values in ours.items():
        ratios = [100 * value / top for value, top in zip(values, best)]
        ops = [pair[0] / 1000 for pair in reads[io, workers]]
        per_op = statistics.median(pair[1] for pair in reads[io, workers])
        say(f"| {io}, {workers} worker{'s' if workers > 1 else ''} | {spread(ops)} K | {spread([v / 1000 for v in values])} K "
            f"| {spread(ratios, 0)} % | {spread(cost[io, workers], 2)} | {per_op:.3f} |")
    say(f"| fio, best of 16 each round | | {spread([top / 1000 for top in best])} K | | | |\n")
    say("<details><summary>Every fio run</summary>\n")
    for line in alone:
        say("- " + line)
    say("\n</details>\n")


def in_memory(store, rounds):
    say(f"## All in memory ({rounds} rounds, interleaved)\n")
    shapes = [(1, 1), (1, 64), (2, 64)]
    ops, cost = {shape: [] for shape in shapes}, {shape: [] for shape in shapes}
    for _ in range(rounds):
        for workers, tasks in shapes:
            report = lookup(store, memory="8GiB", io="io_uring", workers=workers, tasks=tasks, seconds=5)
            ops[workers, tasks].append(report["ops_per_s"] / 1000)
            cost[workers, tasks].append(report["cpu_us_per_op"])
    say("| workers | tasks each | lookups/s | CPU us/lookup |\n|---|---|---|---|")
    for workers, tasks in shapes:
        say(f"| {workers} | {tasks} | {spread(ops[workers, tasks], 0)} K | {spread(cost[workers, tasks], 2)} |")
    ratios = [two / one for two, one in zip(ops[2, 64], ops[1, 64])]
    say(f"\nTwo workers against one, round by round: {spread(ratios, 2)}.\n")


def by_size(store, rounds):
    say(f"## From 2 to 40 times memory (one worker, io_uring; {rounds} rounds, interleaved)\n")
    shapes = [(2, 1568, 20), (5, 627, 8), (10, 314, 3), (20, 157, 2), (40, 78, 2)]
    found = {times: [] for times, *_ in shapes}
    for _ in range(rounds):
        for times, memory, warm_up in shapes:
            report = lookup(store, memory=f"{memory}MiB", io="io_uring", workers=1, seconds=4, warm_up=warm_up)
            found[times].append(report)
    say("| times memory | lookups/s | reads/lookup | CPU us/lookup | CPU us/read |\n|---|---|---|---|---|")
    for times, reports in found.items():
        say(f"| {times} | {spread([r['ops_per_s'] / 1000 for r in reports])} K "
            f"| {statistics.median(r['reads_per_op'] for r in reports):.3f} | {spread([r['cpu_us_per_op'] for r in reports], 2)} "
            f"| {spread([r['cpu_us_per_op'] / r['reads_per_op'] for r in reports], 2)} |")
    say()


def fills(folder, rounds):
    say(f"## Sorted load ({rounds} rounds)\n")
    speeds = []
    for _ in range(rounds):
        store = os.path.join(folder, "fill.qpair")
        report = lookup(store, memory="320MiB", seconds=0.5, warm_up=0)
        speeds.append(report["fill_records_per_s"] / 1e6)
        os.remove(store)
    say(f"{RECORDS:,} records of 128 bytes in key order: {spread(speeds, 2)} million records/s.\n")


def inserts(folder):
    say("## Insertion in random order, ten times memory\n")
    store = os.path.join(folder, "insert.qpair")
    report = qpair("insert", "--store", store, "--records", 6_000_000, "--memory", "90MiB", "--workers", 2)
    os.remove(store)
    latency = report["latency_us"]
    say(f"{report['records']:,} records, {report['store_bytes'] >> 20} MiB over {report['memory_bytes'] >> 20} MiB: "
        f"{report['ops_per_s'] / 1000:.1f} K inserts/s in all, {report['cpu_us_per_op']:.1f} us CPU each; "
        f"p50 {latency['p50'] / 1000:.1f} ms, p99.9 {latency['p999'] / 1000:.1f} ms, slowest {latency['max'] / 1000:.1f} ms.\n")
    tenths = [report["ops_by_second"][i * len(report["ops_by_second"]) // 10] for i in range(10)]
    say("Inserts in the first second of each tenth of the run: " + ", ".join(f"{n:,}" for n in tenths) + ".\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".", help="folder for the stores")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    store = os.path.join(options.dir, "measure.qpair")
    lookup(store, memory="320MiB", seconds=1, warm_up=0)
    try:
        out_of_memory(store, options.rounds)
        in_memory(store, max(1, options.rounds - 2))
        by_size(store, max(1, options.rounds - 2))
    finally:
        os.remove(store)
    fills(options.dir, max(1, options.rounds - 2))
    inserts(options.dir)


main()
