#!/usr/bin/env python3
"""fio's stripped loop (t/io_uring, of its source) and `qpair bench peak` side by side, taking turns; and the cost of null:.

    curl -O http://deb.debian.org/debian/pool/main/f/fio/fio_3.33.orig.tar.gz   # then ./configure && make t/io_uring
    docs/measure/peak.py --loop fio-3.33/t/io_uring --qpair target/release/qpair DEVICE...

128 in flight, batches of 32, 4 KiB random reads around the page cache, registered file and buffers, interrupts, one thread.
Medians, and the spread of the ratio.
"""

import argparse
import json
import re
import statistics
import subprocess


def loop(program, device, seconds):
    words = f"-d128 -s32 -c32 -b4096 -p0 -B1 -F1 -n1 -R1 -r{seconds} -X1 {device}".split()
    out = subprocess.run([program, *words], capture_output=True, text=True).stdout
    # A line a second; the first and the last second are not whole.
    figures = [float(n) * {"": 1, "K": 1e3, "M": 1e6}[unit] for n, unit in re.findall(r"^IOPS=([\d.]+)([KM]?)", out, re.M)]
    return statistics.median(figures[1:-1] or figures)


def peak(program, seconds, *words):
    out = subprocess.run([program, "bench", "peak", *words, "--seconds", str(seconds), "--json"], capture_output=True, check=True)
    return json.loads(out.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="*", metavar="DEVICE")
    parser.add_argument("--loop", required=True)
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("| device | t/io_uring IOPS | bench peak IOPS | ratio (least to most) | system calls a read |")
    print("|---|---|---|---|---|")
    for device in arguments.devices:
        pairs, calls = [], 0
        for _ in range(arguments.rounds):
            theirs = loop(arguments.loop, device, arguments.seconds)
            ours = peak(arguments.qpair, arguments.seconds, device, "--interface", "io_uring")
            calls = ours["system_calls_per_io"]
            pairs.append((theirs, ours["ios_per_s"]))
        ratios = [ours / theirs for theirs, ours in pairs]
        theirs, ours = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
        print(
            f"| {device} | {theirs:,.0f} | {ours:,.0f} | **{statistics.median(ratios):.2f}** "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {calls:.3f} |",
            flush=True,
        )
    costs = [peak(arguments.qpair, 1)["cpu_ns_per_io"] for _ in range(arguments.rounds)]
    print(f"\nnull: {statistics.median(costs):.1f} ns CPU a read ({min(costs):.1f} to {max(costs):.1f})")


main()
