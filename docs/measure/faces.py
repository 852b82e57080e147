#!/usr/bin/env python3
"""Both faces of `qpair target` side by side: devices of memory, 4 KiB random reads over vhost-user-blk and over NVMe (vfio-user).

    docs/measure/faces.py --qpair target/release/qpair --seconds 1 --rounds 5

A disk has one face at a time, so each face has its own, all of it written before. NVMe is measured twice: with shadow doorbells, as Linux's driver and ours use them, and from a transport with `disable_shadow_doorbells`, which is
what a driver without them meets (SPDK's initiator over vfio-user). The faces take turns, the first changing every round. Medians, and the
spread of the ratio. At the end: what the target spends while a driver is connected and asks for nothing.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--qpair", default="target/release/qpair")
parser.add_argument("--seconds", type=float, default=1)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--depths", default="1,4,16,32,128")
parser.add_argument("--idle-seconds", type=float, default=20)
given = parser.parse_args()
qpair = os.path.abspath(given.qpair)
NQN = "nqn.2026-11.com.example:faces"


def wait_for(path):
    for _ in range(200):
        if os.path.exists(path):
            return
        time.sleep(0.02)
    raise SystemExit(f"{path} does not appear")


def call(path, method, **params):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        peer.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        said = b""
        while True:
            said += peer.recv(65536)
            try:
                answer = json.loads(said)
                break
            except ValueError:
                continue
    if "error" in answer:
        raise SystemExit(f"{method}: {answer['error']}")


def command(filename, depth, *limit):
    return [qpair, "bench", "io", "--name=v", f"--filename={filename}", "--bs=4k", f"--iodepth={depth}", "--output-format=json", *limit]


def bench(filename, depth, *more):
    limit = more or ("--rw=randread", "--size=1g", "--time_based", f"--runtime={int(given.seconds * 1000)}ms")
    said = subprocess.run(command(filename, depth, *limit), check=True, capture_output=True, text=True).stdout
    return json.loads(said[said.index("{"):])["jobs"][0]["read"]["iops"]


def spent(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(process, filename):
    client = subprocess.Popen(command(filename, 1, "--rw=randread", "--size=1g", "--time_based", "--runtime=600"),
                              stdout=subprocess.DEVNULL)
    time.sleep(1)
    client.send_signal(signal.SIGSTOP)
    time.sleep(1)
    begun, before = time.monotonic(), spent(process)
    time.sleep(given.idle_seconds)
    part = (spent(process) - before) / (time.monotonic() - begun)
    client.kill()
    client.wait()
    return part


def start(folder, *transport):
    os.makedirs(folder)
    process = subprocess.Popen([qpair, "target", "--folder", folder, "--rpc", f"{folder}/rpc.sock", "--disk", "ram=ram:size=1GiB",
                                "--disk", "nvme=ram:size=1GiB"],
                               stdout=subprocess.DEVNULL)
    wait_for(f"{folder}/rpc.sock")
    rpc = f"{folder}/rpc.sock"
    call(rpc, "nvmf_create_transport", trtype="VFIOUSER", **dict(transport))
    call(rpc, "nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
    call(rpc, "nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "nvme"})
    call(rpc, "nvmf_subsystem_add_listener", nqn=NQN, listen_address={"trtype": "VFIOUSER", "traddr": "nvme.sock"})
    wait_for(f"{folder}/nvme.sock")
    return process


with tempfile.TemporaryDirectory() as folder:
    shadow, bare = f"{folder}/shadow", f"{folder}/bare"
    servers = [start(shadow), start(bare, ("disable_shadow_doorbells", True))]
    faces = {
        "vhost": f"vhost-user:{shadow}/ram.sock",
        "nvme": f"nvme:vfio-user:{shadow}/nvme.sock",
        "bare": f"nvme:vfio-user:{bare}/nvme.sock",
    }
    try:
        for name in faces:
            bench(faces[name], 16, "--rw=write", "--size=1g")
        print("| QD | vhost-user-blk, IOPS | NVMe, IOPS | ratio (least to most) | NVMe, no shadow doorbells, IOPS | ratio (least to most) |")
        print("|---|---|---|---|---|---|")
        for depth in map(int, given.depths.split(",")):
            found = {face: [] for face in faces}
            for turn in range(given.rounds):
                order = list(faces)
                for face in order[turn % 3:] + order[:turn % 3]:
                    found[face].append(bench(faces[face], depth))

            def beside(face):
                ratios = [one / vhost for one, vhost in zip(found[face], found["vhost"])]
                return f"{statistics.median(found[face]):,.0f} | **{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"

            print(f"| {depth} | {statistics.median(found['vhost']):,.0f} | {beside('nvme')} | {beside('bare')} |", flush=True)
        print(f"\nA driver is connected and idle, of a core: vhost {idle(servers[0], faces['vhost']):.4f}, "
              f"NVMe {idle(servers[0], faces['nvme']):.4f}, NVMe without shadow doorbells {idle(servers[1], faces['bare']):.4f}")
    finally:
        for server in servers:
            server.terminate()
            server.wait()
