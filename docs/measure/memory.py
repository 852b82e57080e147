#!/usr/bin/env python3
"""Memory devices in process and behind the target, of one build beside another: 4 KiB random reads.

    docs/measure/memory.py --qpair target/release/qpair --other OLD/qpair --seconds 1 --rounds 5

`bench io` on `ram:` (filled) and `null:`; then a target of each build that serves both, read by the
front end of the same build. The builds take turns, the first changing every round. Medians, and the
least and most of the rounds' ratios.
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
parser.add_argument("--other", help="an older build to compare with")
parser.add_argument("--seconds", type=int, default=1)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--depths", default="1,4,16,32,128")
parser.add_argument("--size", default="512m")
parser.add_argument("--only", choices=["process", "vhost"])
given = parser.parse_args()
builds = [os.path.abspath(given.qpair)] + ([os.path.abspath(given.other)] if given.other else [])


def bench(build, device, depth, *more):
    command = [build, "bench", "io", "--name=m", f"--filename={device}", "--bs=4k", f"--iodepth={depth}", "--output-format=json",
               *(more or ("--rw=randread", f"--size={given.size}", "--time_based", f"--runtime={given.seconds}"))]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(said[said.index("{"):])["jobs"]


def in_process(build, device, depth):
    if device == "null":
        return bench(build, "null:size=512MiB", depth)[0]["read"]["iops"]
    fill = ["--name=fill", "--rw=write", "--bs=1m", "--filename=ram:size=512MiB"]
    read = ["--name=read", "--stonewall", "--rw=randread", "--bs=4k", f"--iodepth={depth}", "--time_based", f"--runtime={given.seconds}",
            "--filename=ram:size=512MiB", "--output-format=json"]
    said = subprocess.run([build, "bench", "io", *fill, *read], check=True, capture_output=True, text=True).stdout
    return json.loads(said[said.index("{"):])["jobs"][1]["read"]["iops"]


def table(title, one):
    print(f"\n{title}\n")
    print("| device | QD | IOPS |" + (" the other build | ratio (least to most) |" if given.other else ""))
    print("|---|---|---|" + ("---|---|" if given.other else ""))
    for device in ("null", "ram"):
        for depth in given.depths.split(","):
            found = {build: [] for build in builds}
            for round_number in range(given.rounds):
                for build in builds if round_number % 2 == 0 else builds[::-1]:
                    found[build].append(one(build, device, depth))
            row = f"| {device}: | {depth} | {statistics.median(found[builds[0]]):,.0f} |"
            if given.other:
                ratios = [new / old for new, old in zip(found[builds[0]], found[builds[1]])]
                row += f" {statistics.median(found[builds[1]]):,.0f} | **{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f}) |"
            print(row, flush=True)


if given.only in (None, "process"):
    table("In process", in_process)

if given.only in (None, "vhost"):
    with tempfile.TemporaryDirectory() as folder:
        servers, sockets = [], {}
        try:
            for number, build in enumerate(builds):
                mine = f"{folder}/{number}"
                os.mkdir(mine)
                servers.append(subprocess.Popen([build, "target", "--folder", mine, "--disk", "null=null:size=512MiB", "--disk",
                                                 "ram=ram:size=512MiB"], stdout=subprocess.DEVNULL))
                for device in ("null", "ram"):
                    sockets[build, device] = f"vhost-user:{mine}/{device}.sock"
            time.sleep(1)
            for build in builds:
                bench(build, sockets[build, "ram"], 16, "--rw=write", "--size=512m")
            table("Behind the target, vhost-user-blk",
                  lambda build, device, depth: bench(build, sockets[build, device], depth)[0]["read"]["iops"])
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
