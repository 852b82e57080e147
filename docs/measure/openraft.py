#!/usr/bin/env python3
"""Writes a second of Raft groups on qpair and on openraft-rocksstore, taking turns, and flushes a second of the device in the same minutes.

    docs/measure/openraft.py APPENDS ROCKSSTORE FOLDER [--seconds 4] [--rounds 3] [--clients 64]

Both programs are crates/openraft/bench, the second built with --no-default-features --features rocksstore. FOLDER is on the device in question. Each group has one member: there is no network. Medians, and in brackets the least and the greatest.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time


def flushes(folder, seconds=1.0):
    """Flushes a second of a file to whose end 4 KiB are written each time."""
    path = folder / "flushes"
    with open(path, "wb", buffering=0) as file:
        began, made = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            made += 1
        spent = time.monotonic() - began
    path.unlink()
    return made / spent


def spread(values, digits=0):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("appends")
    parser.add_argument("rocksstore")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    loads = []
    print("| groups | qpair on 0.9, writes/s | openraft-rocksstore on 0.9 | ratio of pairs | qpair on 0.10 | CPU of a write, us |")
    print("|---|---|---|---|---|---|")
    programs = {"qpair-0.9": arguments.appends, "rocksstore": arguments.rocksstore, "qpair": arguments.appends}
    device = []
    for groups in (1, 8):
        found = {store: [] for store in programs}
        for turn in range(arguments.rounds):
            device.append(flushes(arguments.folder))
            for store in list(programs)[:: 1 if turn % 2 == 0 else -1]:
                folder = arguments.folder / "groups"
                command = [programs[store], store, str(groups), str(arguments.clients), str(arguments.seconds), str(folder)]
                found[store].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
                shutil.rmtree(folder)
        speeds = {store: [run["writes_per_s"] for run in runs] for store, runs in found.items()}
        cpu = ", ".join(f"{statistics.median(run['cpu_us_per_write'] for run in runs):.1f}" for runs in found.values())
        ratios = [ours / theirs for ours, theirs in zip(speeds["qpair-0.9"], speeds["rocksstore"])]
        cells = [spread(speeds["qpair-0.9"]), spread(speeds["rocksstore"]), spread(ratios, 2), spread(speeds["qpair"]), cpu]
        print(f"| {groups} | {' | '.join(cells)} |", flush=True)
        loads.append(os.getloadavg()[0])
    print(f"\nFlushes a second of the device, one at a time: {spread(device)}. Load of the machine: {', '.join(f'{load:.1f}' for load in loads)}.")


if __name__ == "__main__":
    main()
