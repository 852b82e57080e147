#!/usr/bin/env python3
"""What a continuous backup costs the store that it follows: updates alone and with `qpair backup --to … --follow`, taking turns.

    docs/measure/backup.py --qpair target/release/qpair --store /mnt/tmpfs/s.qpair --to /mnt/tmpfs/past

The server of a bucket may be given too: --to s3://bucket/measure, with AWS_ENDPOINT_URL and the rest of the access in the environment.
Medians, and the spread of the ratio. CPU is that of the store's process, the follower's thread and its requests included.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import time


def update(arguments, words, follow):
    command = [arguments.qpair, "bench", "commit", "--store", arguments.store, "--workers", "1", "--memory", "256MiB", "--json", "--warm-up", "1"]
    command += ["--records", str(arguments.records), "--seconds", str(arguments.seconds), *words]
    run = subprocess.Popen(command, stdout=subprocess.PIPE)
    follower = None
    if follow:
        while not os.path.exists(arguments.store + ".top"):
            if run.poll() is not None:
                raise SystemExit("qpair bench commit has ended, or has not published the store")
            time.sleep(0.01)
        shipped = [arguments.qpair, "backup", arguments.store, "--to", arguments.to, "--follow", "--every", arguments.every, "--json"]
        follower = subprocess.Popen(shipped, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(arguments.seconds)
        follower.send_signal(signal.SIGTERM)
    out = run.communicate()[0]
    shipped = {}
    if follower:
        text, why = follower.communicate()
        if follower.returncode != 0:
            raise SystemExit(f"the follower failed: {why.decode()}")
        shipped = json.loads(text)
    return json.loads(out), shipped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qpair", default="target/release/qpair")
    parser.add_argument("--store", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--every", default="1")
    parser.add_argument("--records", type=int, default=100000)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| commits | alone, commits/s | followed | ratio (least to most) | CPU us a commit, alone | followed | breaks | requests a second | bytes sent a commit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for words in (
        ["--durability", "sync"],
        ["--durability", "sync", "--clients", "64"],
        ["--durability", "async"],
    ):
        pairs, costs, shipped = [], [], []
        for _ in range(arguments.rounds):
            if "://" not in arguments.to:
                shutil.rmtree(arguments.to, ignore_errors=True)
            alone, _ = update(arguments, words, False)
            followed, told = update(arguments, words, True)
            pairs.append((alone["commits_per_s"], followed["commits_per_s"]))
            costs.append((alone["cpu_us_per_commit"], followed["cpu_us_per_commit"]))
            commits = followed["commits_per_s"] * arguments.seconds
            shipped.append((told["breaks"], told["requests"] / arguments.seconds, told["sent_bytes"] / commits))
        ratios = [followed / alone for alone, followed in pairs]
        median = lambda rows, at: statistics.median(row[at] for row in rows)
        print(
            f"| {' '.join(words)} | {median(pairs, 0):,.0f} | {median(pairs, 1):,.0f} | **{statistics.median(ratios):.2f}** "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {median(costs, 0):.2f} | {median(costs, 1):.2f} | {median(shipped, 0)} "
            f"| {median(shipped, 1):.1f} | {median(shipped, 2):.0f} |",
            flush=True,
        )


main()
