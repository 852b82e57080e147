#!/usr/bin/env python3
"""fio and `qpair bench io` side by side: the same options, the same device, taking turns.

    docs/measure/io.py --qpair target/release/qpair --seconds 2 --rounds 5 DEVICE...

For each case and round both tools run, the order swapped every round. IOPS are the tools' own. Processor time is that of the
whole process, user and system, as wait4(2) has it, so that the kernel's helper threads count for both; what a run of one
request costs (start, set-up, report) is measured in each round and taken off. Medians, and the spread of the ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

CASES = [
    # name, options of both
    ("psync QD 1", ["--ioengine=psync", "--iodepth=1"]),
    *[
        (f"{name} QD {depth}", [*options, f"--iodepth={depth}"])
        for name, options in [
            ("libaio", ["--ioengine=libaio"]),
            ("io_uring", ["--ioengine=io_uring", "--fixedbufs", "--registerfiles"]),
            ("io_uring, SQPOLL", ["--ioengine=io_uring", "--fixedbufs", "--registerfiles", "--sqthread_poll"]),
        ]
        for depth in (1, 2, 4, 8, 16, 128)
    ],
    *[
        (f"{name} QD {depth}, one by one", [*options, f"--iodepth={depth}", "--iodepth_batch=1", "--iodepth_batch_complete_max=1"])
        for name, options in [
            ("libaio", ["--ioengine=libaio"]),
            ("io_uring", ["--ioengine=io_uring", "--fixedbufs", "--registerfiles"]),
        ]
        for depth in (16, 128)
    ],
    *[
        (f"{name} QD {depth}, batches of {batch}",
         [*options, f"--iodepth={depth}", f"--iodepth_batch={batch}", f"--iodepth_batch_complete_min={batch}"])
        for name, options in [
            ("libaio", ["--ioengine=libaio"]),
            ("io_uring", ["--ioengine=io_uring", "--fixedbufs", "--registerfiles"]),
        ]
        for depth, batch in ((16, 8), (128, 32))
    ],
]
COMMON = ["--name=t", "--rw=randread", "--bs=4k", "--direct=1", "--norandommap", "--randrepeat=0", "--output-format=json"]


def once(program, device, options, limit):
    command = [*program, *COMMON, f"--filename={device}", *options, *limit]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: status {status}")
    read = json.loads(out)["jobs"][0]["read"]
    return read["iops"], read["total_ios"], usage.ru_utime + usage.ru_stime


def measured(program, device, options, seconds):
    _, _, idle_s = once(program, device, options, ["--io_size=4k"])
    iops, ios, cpu_s = once(program, device, options, ["--time_based", f"--runtime={seconds:g}"])
    return iops, max(cpu_s - idle_s, 0.0) * 1e6 / ios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="+", metavar="DEVICE")
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--json", help="every figure, to this file")
    arguments = parser.parse_args()
    programs = {"fio": [arguments.fio], "qpair": [arguments.qpair, "bench", "io"]}
    everything = []
    for device in arguments.devices:
        print(f"\n{device}\n")
        print("| case | fio IOPS | qpair IOPS | ratio (least to most) | fio CPU us | qpair CPU us | ratio (least to most) |")
        print("|---|---|---|---|---|---|---|")
        for name, options in CASES:
            if arguments.only not in name:
                continue
            rounds = []
            for number in range(arguments.rounds):
                order = ["fio", "qpair"] if number % 2 == 0 else ["qpair", "fio"]
                rounds.append({tool: measured(programs[tool], device, options, arguments.seconds) for tool in order})
            everything.append({"device": device, "case": name, "options": options, "rounds": rounds})
            print(row(name, rounds), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(everything, file, indent=1)


def row(name, rounds):
    def median(tool, figure):
        return statistics.median(one[tool][figure] for one in rounds)

    def ratio(figure):
        ratios = [one["qpair"][figure] / max(one["fio"][figure], 1e-9) for one in rounds]
        return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"

    return (
        f"| {name} | {median('fio', 0):,.0f} | {median('qpair', 0):,.0f} | {ratio(0)} "
        f"| {median('fio', 1):.2f} | {median('qpair', 1):.2f} | {ratio(1)} |"
    )


main()
