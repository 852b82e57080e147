#!/usr/bin/env python3
"""`auto` beside each static mode, over a matrix of cores and drives.

    docs/measure/auto.py --qpair target/release/qpair --seconds 10 --rounds 5 zram=/dev/zram1,/dev/zram2,/dev/zram3,/dev/zram4 file=a,b,c,d

A set of drives is a name and paths, which hold data already; they are only read. A cell is a number of cores (the process may use no
others), of jobs, of drives and a depth of each job; all modes of a cell take turns, in another order in each round. Processor time is
that of the whole process as wait4(2) has it, kernel threads for its rings included, less what a run of one request costs. `auto` tries
other modes during the run, and what that costs is in its figures: the shorter the run, the more.

For each cell: the best static mode by requests a second, the cheapest of those that give 0.97 of it, and what `auto` gives of the first
and costs of the second. The aims are 0.97 or more, and 1.10 or less. Medians of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

MODES = ["io_uring", "io_uring+p", "io_uring+k:idle_ms=20", "libaio", "posix:threads=0"]
CELLS = [(1, 1), (2, 1), (2, 2)]  # cores, jobs
DRIVES = [1, 2, 4]
COMMON = ["--name=t", "--rw=randread", "--bs=4k", "--direct=1", "--norandommap", "--randrepeat=0", "--readonly", "--group_reporting"]
IOPS_AIM, CPU_AIM = 0.97, 1.10


def once(arguments, cell, paths, mode, limit):
    """IOPS, requests and processor seconds of a run, and the notes; None where the mode does not work."""
    cores, jobs, depth = cell
    command = ["taskset", "-c", f"0-{cores - 1}", arguments.qpair, "bench", "io", *COMMON, f"--filename={':'.join(paths)}",
               f"--interface={mode}", f"--iodepth={depth}", f"--numjobs={jobs}", "--output-format=json", *limit]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.stdout.read(), process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        if mode == "io_uring+p" and "cannot be polled" in errors:
            return None
        sys.exit(f"{' '.join(command)}: {errors}")
    read = json.loads(out)["jobs"][0]["read"]
    said = [line for line in errors.splitlines() if "auto is on" in line]
    return read["iops"], read["total_ios"], usage.ru_utime + usage.ru_stime, said


def measured(arguments, cell, paths, mode):
    idle = once(arguments, cell, paths, mode, ["--number_ios=1"])
    if idle is None:
        return None
    iops, ios, cpu_s, said = once(arguments, cell, paths, mode, ["--time_based", f"--runtime={arguments.seconds:g}"])
    return iops, max(cpu_s - idle[2], 0.0) * 1e6 / max(ios, 1), said


def judged(static, auto):
    """The best and the cheapest good static mode of the medians, and auto's ratios to them."""
    middle = {mode: (statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)) for mode, runs in static.items()}
    best = max(middle, key=lambda mode: middle[mode][0])
    good = [mode for mode in middle if middle[mode][0] >= IOPS_AIM * middle[best][0]]
    cheap = min(good, key=lambda mode: middle[mode][1])
    of_best = statistics.median(run[0] / other[0] for run, other in zip(auto, static[best]))
    of_cheap = statistics.median(run[1] / max(other[1], 1e-9) for run, other in zip(auto, static[cheap]))
    return middle, best, cheap, of_best, of_cheap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="NAME=PATH,...", help="drives of one kind")
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depths", default="1,32")
    parser.add_argument("--cells", default="", help="only these cores:jobs, such as 1:1,2:1")
    parser.add_argument("--json", help="every figure, to this file")
    arguments = parser.parse_args()
    wanted = [tuple(map(int, one.split(":"))) for one in arguments.cells.split(",") if one] or CELLS
    everything, met, cells = [], 0, 0
    print("| drives | cores | jobs | depth | best static, IOPS | cheapest good one, us CPU | auto, IOPS | of the best | auto, us CPU | of the cheapest |")
    print("|---" * 10 + "|", flush=True)
    for one in arguments.sets:
        name, _, paths = one.partition("=")
        paths = paths.split(",")
        for cores, jobs in wanted:
            for drives in [count for count in DRIVES if count <= len(paths)]:
                for depth in map(int, arguments.depths.split(",")):
                    runs = {mode: [] for mode in [*MODES, "auto"]}
                    said = []
                    for turn in range(arguments.rounds):
                        order = list(runs)
                        order = order[turn % len(order):] + order[:turn % len(order)]
                        for mode in order:
                            run = measured(arguments, (cores, jobs, depth), paths[:drives], mode)
                            if run is None:
                                del runs[mode]
                                continue
                            runs[mode].append(run)
                            said += run[2]
                    auto = runs.pop("auto")
                    middle, best, cheap, of_best, of_cheap = judged(runs, auto)
                    ours = [statistics.median(run[at] for run in auto) for at in (0, 1)]
                    cells += 1
                    met += of_best >= IOPS_AIM and of_cheap <= CPU_AIM
                    print(f"| {drives} {name} | {cores} | {jobs} | {depth} | {best} {middle[best][0]:,.0f} | {cheap} {middle[cheap][1]:.2f} "
                          f"| {ours[0]:,.0f} | **{of_best:.2f}** | {ours[1]:.2f} | **{of_cheap:.2f}** |", flush=True)
                    everything.append({"set": name, "drives": drives, "cores": cores, "jobs": jobs, "depth": depth, "static": runs,
                                       "auto": auto, "said": said})
    print(f"\n{met} of {cells} cells meet both aims.")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
