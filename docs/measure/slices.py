#!/usr/bin/env python3
"""Two or more builds of one benchmark side by side, each running in slices of a quarter of a second while the others are stopped: what a
busy neighbour takes, it takes from all of them. Compares what a run spent for each operation, of which a stopped process spends nothing.

  slices.py --store S --field cpu_us_per_tx --rounds 3 --seconds 12 before=OLD/qpair after=NEW/qpair -- \\
      bench tpcc --memory 2GiB --workers 2 --tasks 4 --no-log --warm-up 4 --prefault

Each run has a fresh copy of the store S in S's folder, --store, --json and --seconds are added to its words, and --seconds counts once for
each build, as each has its share of the time.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

SLICE_S = 0.25


def run(builds, words, store, seconds):
    """One round: the parsed reports, in the order of the builds."""
    copies = [f"{store}.{number}" for number in range(len(builds))]
    processes = []
    try:
        for (name, program), copy in zip(builds, copies):
            shutil.copyfile(store.replace("{name}", name), copy)
            more = ["--store", copy, "--seconds", str(seconds * len(builds)), "--json"]
            process = subprocess.Popen([program, *words, *more], stdout=subprocess.PIPE)
            process.send_signal(signal.SIGSTOP)
            processes.append(process)
        turn = 0
        while any(process.poll() is None for process in processes):
            process = processes[turn % len(processes)]
            turn += 1
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                time.sleep(SLICE_S)
                process.send_signal(signal.SIGSTOP)
        return [json.loads(process.stdout.read()) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for copy in copies:
            if os.path.exists(copy):
                os.remove(copy)


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="a closed store that each run gets a copy of; {name} stands for the build's")
    parser.add_argument("--field", default="cpu_us_per_tx", help="what of the report is compared [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("builds", nargs="+", metavar="NAME=PROGRAM")
    options = parser.parse_args(sys.argv[1:split])
    builds = [tuple(build.split("=", 1)) for build in options.builds]
    rows = []
    for number in range(options.rounds):
        order = builds if number % 2 == 0 else builds[::-1]
        reports = run(order, sys.argv[split + 1 :], options.store, options.seconds)
        found = {name: report[options.field] for (name, _), report in zip(order, reports)}
        rows.append(found)
        print("  ".join(f"{name} {found[name]:.3f}" for name, _ in builds), flush=True)
    first = builds[0][0]
    for name, _ in builds:
        ratios = sorted(row[name] / row[first] for row in rows)
        median = statistics.median(row[name] for row in rows)
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        print(f"{name}: median {median:.3f}; over {first} {statistics.median(ratios):.3f} ({spread})")


if __name__ == "__main__":
    main()
