#!/usr/bin/env python3
"""`qpair target` and qemu-storage-daemon side by side: our front end reads 4 KiB at random from each, over vhost-user-blk.

    docs/measure/target.py --qpair target/release/qpair --seconds 2 --rounds 5

Both serve a device that does nothing (null: and null-co), so that what is measured is the way to it and back; the target also serves memory
(ram:), filled before. The back ends take turns, the first changing every round, and each has one front end at a time. Medians, and the spread
of the ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--qpair", default="target/release/qpair")
parser.add_argument("--seconds", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--depths", default="1,4,16,32,128")
given = parser.parse_args()
qpair = os.path.abspath(given.qpair)


def wait_for(path):
    for _ in range(200):
        if os.path.exists(path):
            return
        time.sleep(0.02)
    raise SystemExit(f"{path} does not appear")


def bench(socket, depth, *more):
    command = [
        qpair, "bench", "io", "--name=v", f"--filename=vhost-user:{socket}", "--bs=4k", f"--iodepth={depth}",
        "--output-format=json", *(more or ("--rw=randread", "--size=1g", "--time_based", f"--runtime={given.seconds}")),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    job = json.loads(said[said.index("{"):])["jobs"][0]
    return job["read"]["iops"]


with tempfile.TemporaryDirectory() as folder:
    sockets = {name: f"{folder}/{name}.sock" for name in ("null", "ram", "polled", "qemu")}
    servers = [
        subprocess.Popen([qpair, "target", "--folder", folder, "--disk", "null=null:size=4GiB", "--disk", "ram=ram:size=1GiB"],
                         stdout=subprocess.DEVNULL),
        subprocess.Popen(["qemu-storage-daemon", "--blockdev", "driver=null-co,node-name=n,size=4294967296,read-zeroes=off",
                          "--export", f"type=vhost-user-blk,id=e,node-name=n,addr.type=unix,addr.path={sockets['qemu']},writable=on"]),
    ]
    try:
        for name in ("null", "ram", "qemu"):
            wait_for(sockets[name])
        bench(sockets["ram"], 16, "--rw=write", "--size=1g")
        kinds = ["qemu", "null", "ram"]
        print("| QD | qemu-storage-daemon, null-co | qpair target, null: | ratio (least to most) | qpair target, ram: |")
        print("|---|---|---|---|---|")
        for depth in map(int, given.depths.split(",")):
            found = {kind: [] for kind in kinds}
            for round in range(given.rounds):
                for kind in kinds if round % 2 == 0 else reversed(kinds):
                    found[kind].append(bench(sockets[kind], depth))
            ratios = [ours / theirs for ours, theirs in zip(found["null"], found["qemu"])]
            median = {kind: statistics.median(values) for kind, values in found.items()}
            print(f"| {depth} | {median['qemu']:,.0f} | {median['null']:,.0f} | **{statistics.median(ratios):.2f}** "
                  f"({min(ratios):.2f} to {max(ratios):.2f}) | {median['ram']:,.0f} |", flush=True)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
