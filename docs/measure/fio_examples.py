#!/usr/bin/env python3
"""Runs fio's example jobs with `qpair bench io`, made small, and tells which run.

    apt-get download fio-examples && dpkg -x fio-examples_*.deb x && gunzip x/usr/share/doc/fio/examples/*.gz
    docs/measure/fio_examples.py --qpair target/debug/qpair x/usr/share/doc/fio/examples

What is changed before a job runs: devices and folders become files of an empty folder; sizes are at most 4 MiB (steps between
jobs 1 MiB); files have 8 MiB, made before; times are at most a second; rates are higher. Everything else stays as it is. With --fio both run, and
requests are compared where a job is not limited by time.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

# Need hardware, a service, or a library's engine that is not of the kernel or of fio itself.
ELSEWHERE = re.compile(
    r"cpp_null|dev-dax|dfs|gfapi|gpudirect|http-|ime|libcufile|libhdfs|libiscsi|libpmem|librpma|libzbc|mtd|nbd|netio|nfs|"
    r"numa|pmemblk|rados|rbd|rdmaio|sg_|uring-cmd|xnvme|zbd-")
SMALL = 4 << 20
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def small(text, most):
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if not match:
        return text
    return str(min(int(match[1]) * UNITS[match[2]], most))


def changed(text):
    out, has_size, has_time = [], False, False
    for line in text.splitlines():
        name, mark, value = (part.strip() for part in re.split(r"[;#]", line)[0].partition("="))
        if name in ("filename", "directory"):
            value = "." if name == "directory" else re.sub(r"[^A-Za-z0-9.:$_-]", "_", value)
        elif name in ("size", "filesize", "io_size"):
            has_size, value = True, small(value, SMALL)
        elif name in ("offset", "offset_increment", "zonesize", "zoneskip"):
            value = small(value, SMALL // 4)
        elif name in ("rate", "ratemin"):
            value += "k"
        elif name == "rate_iops":
            value = "2000"
        elif name in ("runtime", "timeout", "startdelay", "ss_dur", "ss_ramp"):
            has_time, value = True, "1" if value != "0" else "0"
        elif name in ("loops", "nrfiles", "numjobs"):
            value = str(min(int(value), 4))
        elif name == "latency_window":
            value = "50000"
        elif name == "time_based" and not has_time and "runtime" not in text:
            out.append("runtime=1")
        out.append(f"{name}{mark}{value}")
    text = "\n".join(out) + "\n"
    # Jobs with regions of their own keep them.
    size = SMALL // 4 if "offset_increment" in text else SMALL
    return text if has_size and "offset_increment" not in text else f"[global]\nsize={size}\n{text}"


def run(command, folder):
    for name in set(re.findall(r"^filename=(.*)$", (folder / "job.fio").read_text(), re.M)):
        with open(folder / name, "wb") as file:
            file.write(os.urandom(2 * SMALL))
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=40)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "ran for 40 s")


def requests(output):
    jobs = json.loads(output[output.index("{"):])["jobs"]
    return [sum(job[way]["total_ios"] for job in jobs) for way in ("read", "write", "trim")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qpair", required=True)
    parser.add_argument("--fio", action="store_true")
    parser.add_argument("examples", type=pathlib.Path)
    options = parser.parse_args()
    qpair = os.path.abspath(options.qpair)
    jobs = sorted(path for path in options.examples.glob("*.fio") if not ELSEWHERE.match(path.name))
    ran = 0
    print("| job | result |\n|---|---|")
    for path in jobs:
        with tempfile.TemporaryDirectory(dir=".") as name:
            folder = pathlib.Path(name).absolute()
            (folder / "job.fio").write_text(changed(path.read_text()))
            done = run([qpair, "bench", "io", "job.fio", "--json", "--eta=never"], folder)
            if done.returncode == 0:
                ran += 1
                result = f"runs: {'/'.join(map(str, requests(done.stdout)))} reads/writes/trims"
                if options.fio:
                    theirs = run(["fio", "job.fio", "--output-format=json"], folder)
                    counts = requests(theirs.stdout) if theirs.returncode == 0 else theirs.stderr.strip().splitlines()[-1:]
                    result += f"; fio {counts}"
            else:
                errors = re.findall(r"(?:option|engine|unknown option) \"?([\w-]+)\"?", done.stderr.split("error:", 1)[-1])
                result = f"refused: {', '.join(dict.fromkeys(errors))}" if errors else done.stderr.strip().splitlines()[-1]
        print(f"| {path.name} | {result} |", flush=True)
    print(f"\n{ran} of {len(jobs)} run")


main()
