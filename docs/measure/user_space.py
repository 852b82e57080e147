#!/usr/bin/env python3
"""The user-space NVMe driver over soft drives, and the store on it: the tables of user-space.md.

    cargo build --release
    docs/measure/user_space.py                                     over vfio-user and in one process
    docs/measure/user_space.py --store /dev/zram0    the store too, beside io_uring on that device, which holds a store of the same records

Over vfio-user `qpair softdrive` serves 1 GiB, written once, on processor 0 and `bench peak` drives on processor 1; in one process both are on processor 1. Rounds
take turns through all points; medians, and the least and most of the rounds.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout)


class Served:
    """A soft drive in a process of its own."""

    def __init__(self, qpair, folder, options):
        self.socket = os.path.join(folder, "soft.sock")
        words = [qpair, "softdrive", "--socket", self.socket, "--size", "1GiB", "--cpu", "0", "--idle", "poll", *options]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.01)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def peak(a, device, depth, batch):
    words = ["taskset", "-c", "1", a.qpair, "bench", "peak", device, "--depth", str(depth), "--batch", str(batch)]
    return run([*words, "--seconds", str(a.seconds), "--json"])


def fill(a, device):
    """Blocks that were never written lie in the processor's cache, all of them in one page of zeroes."""
    words = [a.qpair, "bench", "io", "--name=fill", f"--filename={device}", "--rw=write", "--bs=128k", "--iodepth=16", "--size=1g"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def spread(values, form="{:,.0f}"):
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def batch_of(depth):
    return max(1, depth // 4)


def drives(a):
    points = {}
    for _ in range(a.rounds):
        for medium, options in (("memory", []), ("null", ["--null"])):
            with tempfile.TemporaryDirectory() as folder:
                served = Served(a.qpair, folder, options)
                if medium == "memory":
                    fill(a, f"nvme:vfio-user:{served.socket}")
                for depth in (1, 4, 32, 128):
                    report = peak(a, f"nvme:vfio-user:{served.socket}", depth, batch_of(depth))
                    points.setdefault(("vfio-user", medium, depth), []).append(report)
                served.end()
        for depth in (1, 4, 32, 128):
            points.setdefault(("one process", "null", depth), []).append(peak(a, "softnvme:size=1GiB,medium=null", depth, batch_of(depth)))
    print("| way | blocks in | depth | batch | IOPS | CPU of the driver's process, ns a read | system calls a read |")
    print("|---|---|---|---|---|---|---|")
    for (way, medium, depth), reports in points.items():
        print(
            f"| {way} | {medium} | {depth} | {batch_of(depth)} | {spread([r['ios_per_s'] for r in reports])} "
            f"| {spread([r['cpu_ns_per_io'] for r in reports], '{:.0f}')} | {max(r['system_calls_per_io'] for r in reports):.4f} |"
        )


def lookups(a, store, more):
    words = [a.qpair, "bench", "lookup", "--store", store, "--records", str(a.records), "--memory", a.memory, "--workers", "1"]
    return run(["taskset", "-c", "1", *words, "--tasks", "128", "--seconds", str(a.seconds * 3), "--json", *more])


def stores(a):
    rows = {}
    for _ in range(a.rounds):
        for name, store, more in (
            ("softnvme", "softnvme:size=3GiB", []),
            (f"io_uring, {a.store}", a.store, ["--interface", "io_uring"]),
        ):
            rows.setdefault(name, []).append(lookups(a, store, more))
    print("\n| device | lookups/s of one core | CPU us a lookup | reads a lookup |")
    print("|---|---|---|---|")
    for name, reports in rows.items():
        print(
            f"| {name} | {spread([r['ops_per_s'] for r in reports])} | {spread([r['cpu_us_per_op'] for r in reports], '{:.2f}')} "
            f"| {spread([r['reads_per_op'] for r in reports], '{:.3f}')} |"
        )
    own, other = ([r["ops_per_s"] for r in reports] for reports in rows.values())
    print(f"\nratio: {spread([mine / theirs for mine, theirs in zip(own, other)], '{:.2f}')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--store")
    parser.add_argument("--records", type=int, default=12_000_000)
    parser.add_argument("--memory", default="160MiB")
    parser.add_argument("--no-drives", action="store_true")
    a = parser.parse_args()
    if not a.no_drives:
        drives(a)
    if a.store:
        stores(a)


main()
