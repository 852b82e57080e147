#!/usr/bin/env python3
"""Files in a guest, by two ways to its disk: what the host spends for an operation. Run it from the top of the tree, as root.

    cargo build --release
    docs/measure/guest_files.py [--profiles varmail,oltp] [--loops 5]

The guest makes ext4 on its disk and runs `qpair bench files`, filebench's personalities. The ways:

    QEMU     virtio-blk of QEMU with a thread for I/O, io_uring and direct I/O on a file: the kernel's path
    target   `qpair target` by vhost-user-blk on a file, io_uring and direct I/O

There is no KVM here, so times in the guest prove nothing, and none is shown. What is counted is on the host: processor time of the thread for
I/O, or of the target; its system calls, by strace in runs of their own; kicks and calls where the target counts them; and the requests and bytes
of the guest's disk, in the guest. Each figure is the difference of two runs that differ in their loops only, so that making the files is not
in it.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

PROFILES = "read-files,write-files,webserver,fileserver,varmail,oltp"
INSIDE = r"""
set -euo pipefail
qpair=$1 profiles=$2 loops=$3 files=$4 threads=$5
disk=$(ls -d /sys/block/vd* | head -n 1)
# Nothing is written behind the profiles' back.
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "/dev/${disk##*/}"
mkdir -p /run/file-system
mount "/dev/${disk##*/}" /run/file-system
wait_for() { until [[ -e /run/guest/$1 ]]; do sleep 0.05; done; }
number=0
for profile in ${profiles//,/ }; do
    for what in cpu calls; do
        for times in 1 3; do
            ((number += 1))
            sync
            echo "$what" >/run/guest/kind-$number
            touch /run/guest/begin-$number
            wait_for began-$number
            cat "$disk/stat" >/run/guest/before-$number
            "$qpair" bench files --profile "$profile" /run/file-system --loops $((loops * times)) --files "$files" --threads "$threads" \
                --drop-caches --seconds 600 --json >/run/guest/report-$number
            sync
            cat "$disk/stat" >/run/guest/after-$number
            touch /run/guest/end-$number
            wait_for ended-$number
        done
    done
    echo "$profile is done"
done
umount /run/file-system
"""


def threads_of(pid, wanted):
    """Threads of a process by their names."""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/comm") as file:
                if wanted(file.read().strip()):
                    found.append(int(tid))
        except FileNotFoundError:
            pass
    return found


def cpu_us(tids, pid):
    total = 0
    for tid in tids:
        try:
            with open(f"/proc/{pid}/task/{tid}/schedstat") as file:
                total += int(file.read().split()[0])
        except FileNotFoundError:
            pass
    return total / 1e3


class Counting(threading.Thread):
    """Takes the host's counters where the guest asks for it."""

    def __init__(self, folder, served_by, metrics):
        super().__init__(daemon=True)
        self.out, self.served_by, self.metrics, self.found, self.over = f"{folder}/out", served_by, metrics, [], False

    def signals(self):
        """Kicks and calls so far, where somebody counts them."""
        if not self.metrics:
            return {}
        text = urllib.request.urlopen(self.metrics).read().decode()
        return {name: sum(float(value) for value in re.findall(rf"^qpair_disk_{name}_total.* (\S+)$", text, re.M)) for name in ("kicks", "calls")}

    def wait_for(self, name):
        while not os.path.exists(f"{self.out}/{name}"):
            if self.over:
                return False
            time.sleep(0.02)
        return True

    def touch(self, name):
        open(f"{self.out}/{name}", "w").close()

    def run(self):
        number = 1
        while self.wait_for(f"begin-{number}"):
            pid, wanted = self.served_by()
            tids = threads_of(pid, wanted)
            tracer, told = None, f"{self.out}/strace-{number}"
            if open(f"{self.out}/kind-{number}").read().strip() == "calls":
                tracer = subprocess.Popen(["strace", "-c", "-o", told, *(word for tid in tids for word in ("-p", str(tid)))], stderr=subprocess.DEVNULL)
                time.sleep(0.3)
            before, signals = cpu_us(tids, pid), self.signals()
            self.touch(f"began-{number}")
            self.wait_for(f"end-{number}")
            found = {"cpu_us": cpu_us(tids, pid) - before}
            found |= {name: value - signals[name] for name, value in self.signals().items()}
            if tracer:
                tracer.send_signal(signal.SIGINT)
                tracer.wait()
                # Percent, seconds, microseconds a call, calls; errors if there were any.
                total = [line.split() for line in open(told) if line.rstrip().endswith(" total")]
                found["system_calls"] = int(total[0][3]) if total else 0
            self.found.append(found)
            self.touch(f"ended-{number}")
            number += 1


def of_guest(out, number):
    """What the guest says of a run."""
    before, after = ([int(word) for word in open(f"{out}/{name}-{number}").read().split()] for name in ("before", "after"))
    less = [then - now for then, now in zip(after, before)]
    with open(f"{out}/report-{number}") as file:
        operations = json.load(file)["operations"]
    return {"operations": operations, "requests": less[0] + less[4], "kib": (less[2] + less[6]) / 2}


def run_way(way, args, folder):
    """Boots the guest; for each profile the figures of a run's operations."""
    os.makedirs(f"{folder}/out")
    file = f"{folder}/disk.img"
    with open(file, "wb") as image:
        image.truncate(args.size_mib << 20)
    options, target, metrics = ["--shared-memory"], None, None
    if way == "QEMU":
        options += ["--object", "iothread,id=io", "--blockdev", f"driver=file,node-name=file,filename={file},aio=io_uring,cache.direct=on",
                    "--blockdev", "driver=raw,node-name=disk,file=file", "--device", "virtio-blk-pci,drive=disk,iothread=io,num-queues=1"]

        def served_by():
            return int(open(f"{folder}/pid").read()), lambda name: name.startswith(("IO ", "iou-"))
    else:
        listening = "127.0.0.1:9187"
        target = subprocess.Popen([args.qpair, "target", "--folder", folder, "--disk", f"file={file}", "--metrics", listening], stdout=subprocess.DEVNULL)
        metrics = f"http://{listening}/metrics"
        options += ["--chardev", f"socket,id=file,path={folder}/file.sock", "--device", "vhost-user-blk-pci,chardev=file,num-queues=1"]
        while not os.path.exists(f"{folder}/file.sock"):
            if target.poll() is not None:
                raise SystemExit("the target did not start")
            time.sleep(0.05)

        def served_by():
            return target.pid, lambda name: True
    counting = Counting(folder, served_by, metrics)
    counting.start()
    try:
        subprocess.run(["guest/run", *options, "--time-limit", str(args.time_limit), "--module", "virtio_blk", "--module", "ext4", "--folder", folder,
                        "--", "bash", "-c", INSIDE, "inside", os.path.abspath(args.qpair), args.profiles, str(args.loops), str(args.files),
                        str(args.threads)], check=True, stdout=subprocess.DEVNULL if args.quiet else None)
    finally:
        counting.over = True
        counting.join()
        if target:
            target.terminate()
            target.wait()
    figures = {}
    for place, profile in enumerate(args.profiles.split(",")):
        runs = [of_guest(f"{folder}/out", 4 * place + at + 1) | counting.found[4 * place + at] for at in range(4)]
        few, many, few_calls, many_calls = runs

        def per(of, few=few, many=many, base="operations"):
            return (many[of] - few[of]) / max(many[base] - few[base], 1)
        figures[profile] = {
            "requests": per("requests"), "kib": per("kib"), "cpu_us": per("cpu_us"),
            "system_calls": per("system_calls", few_calls, many_calls),
            "kicks": per("kicks", base="requests") if metrics else None, "calls": per("calls", base="requests") if metrics else None,
        }
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qpair", default="target/release/qpair", help="the program")
    parser.add_argument("--profiles", default=PROFILES)
    parser.add_argument("--loops", type=int, default=5, help="of each thread through its flow, in the shorter run")
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--size-mib", type=int, default=4096, help="of the guest's disk")
    parser.add_argument("--time-limit", type=int, default=1800, help="seconds for a guest")
    parser.add_argument("--folder", help="where images lie while it runs; by default in the current one")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the table")
    args = parser.parse_args()
    if not shutil.which("strace"):
        raise SystemExit("strace is missing: apt-get install strace")
    found = {}
    for way in ("QEMU", "target"):
        with tempfile.TemporaryDirectory(dir=args.folder or ".") as folder:
            found[way] = run_way(way, args, os.path.abspath(folder))
    print("| profile | way | requests/op | KiB/op | host CPU us/op | system calls/op | kicks/request | calls/request |")
    print("|---|---|---|---|---|---|---|---|")
    for profile in args.profiles.split(","):
        for way in found:
            of = found[way][profile]
            signals = " | ".join("-" if of[name] is None else f"{of[name]:.2f}" for name in ("kicks", "calls"))
            print(f"| {profile} | {way} | {of['requests']:.2f} | {of['kib']:.1f} | {of['cpu_us']:.1f} | {of['system_calls']:.2f} | {signals} |")


if __name__ == "__main__":
    main()
