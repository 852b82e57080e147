#!/usr/bin/env python3
"""The SCSI stack beside the NVMe driver, on controllers made of software with equal profiles: the tables of scsi.md.

    cargo build --release
    docs/measure/scsi.py

`qpair bench io` reads 4 KiB at random, device and driver on one processor, at depths 1 to 64. Both devices take turns within each round; medians, least and most of the
rounds, and the median of the differences within rounds.
"""

import argparse
import json
import statistics
import subprocess

PAIRS = {
    "none, no data": ("scsi:soft:size=1GiB,medium=null/0", "softnvme:size=1GiB,medium=null"),
    "none": ("scsi:soft:size=1GiB/0", "softnvme:size=1GiB"),
    "sas-ssd": ("scsi:soft:size=1GiB,profile=sas-ssd/0", "softnvme:size=1GiB,profile=sas-ssd"),
}


def ns_of(a, device, depth):
    """ns between two reads, and ns that a read took."""
    words = ["taskset", "-c", str(a.cpu), a.qpair, "bench", "io", "--name=r", f"--filename={device}", "--rw=randread", "--bs=4k", "--size=256m"]
    words += [f"--iodepth={depth}", f"--iodepth_batch_complete_max={depth}", "--time_based", f"--runtime={a.seconds}", "--output-format=json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return 1e9 / read["iops"], read["clat_ns"]["mean"] + read["slat_ns"]["mean"]


def spread(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--cpu", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--profiles", nargs="+", default=list(PAIRS), choices=list(PAIRS))
    a = parser.parse_args()
    print("| profile | depth | scsi:soft, ns between reads | softnvme:, ns between reads | difference, ns | ns that a read took: scsi, nvme |")
    print("|---|---|---|---|---|---|")
    for profile, devices in ((profile, PAIRS[profile]) for profile in a.profiles):
        for depth in (1, 4, 16, 64):
            rounds = []
            for number in range(a.rounds):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                found = {which: ns_of(a, devices[which], depth) for which in order}
                rounds.append((found[0], found[1]))
            scsi, nvme = [r[0][0] for r in rounds], [r[1][0] for r in rounds]
            took = [statistics.median(r[which][1] for r in rounds) for which in (0, 1)]
            both = [s - n for s, n in zip(scsi, nvme)]
            print(f"| {profile} | {depth} | {spread(scsi)} | {spread(nvme)} | {spread(both)} | {took[0]:,.0f}, {took[1]:,.0f} |")


main()
