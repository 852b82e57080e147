#!/usr/bin/env python3
"""Instructions of a read by layer, those that were inlined with the layer that they serve: the table of scsi.md.

    cargo build --release -p qpair-mpt3sas --example sas_cost
    docs/measure/scsi_layers.py

callgrind counts each instruction of the example `sas_cost` at two lengths; addr2line says what was inlined where. An instruction is its innermost frame's of a file that is
one of the layers'; so what the standard library does for the middle layer is the middle layer's.
"""

import argparse
import collections
import os
import re
import subprocess
import tempfile

# The example runs the reads twice: with the driver, and with nothing in its place.
TWICE = ("disk", "middle layer", "the example's loop")
LAYERS = [
    ("disk", "crates/scsi/src/disk/"),
    ("middle layer", "crates/scsi/src/middle/"),
    ("driver", "crates/mpt3sas/src/"),
    ("pci", "crates/pci/src/"),
    ("the example's loop", "crates/mpt3sas/examples/"),
    ("the stub", "crates/mpt3sas/tests/"),
    ("the soft HBA", "crates/softdev/"),
]


def counted(program, rounds, folder):
    """Instructions by address, and reads."""
    out = os.path.join(folder, f"callgrind.{rounds}")
    command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=no", f"--callgrind-out-file={out}", program, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counts, objects, mine, after_call, at = collections.Counter(), {}, False, False, 0
    for line in open(out):
        if line.startswith(("ob=", "cob=")):
            key, _, value = line.strip().partition("=")
            number, _, name = value.partition(" ")
            objects.setdefault(number, name)
            if key == "ob":
                mine = objects[number].endswith(os.path.basename(program))
        elif line.startswith("calls="):
            after_call = True
        elif match := re.match(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) (\S+) (\d+)$", line):
            word = match[1]
            at = at if word == "*" else at + int(word) if word[0] in "+-" else int(word, 16)
            if not after_call and mine:
                counts[at] += int(match[3])
            after_call = False
    return counts, done.stdout


def layer_of(frames):
    for frame in frames:
        for layer, part in LAYERS:
            if part in frame:
                return layer
    return "others (not inlined)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="target/release/examples/sas_cost")
    parser.add_argument("--rounds", type=int, nargs=2, default=[1000, 3000])
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (few, before), (many, said) = (counted(a.program, rounds, folder) for rounds in a.rounds)
    spent = {at: many[at] - few[at] for at in many if many[at] > few[at]}
    answer = subprocess.run(["addr2line", "-i", "-a", "-e", a.program], input="\n".join(hex(at) for at in spent), capture_output=True, text=True, check=True).stdout
    frames, at = collections.defaultdict(list), None
    for line in answer.splitlines():
        if line.startswith("0x"):
            at = int(line, 16)
        else:
            frames[at].append(line)
    layers = collections.Counter()
    for at, count in spent.items():
        layers[layer_of(frames[at])] += count
    reads = int(said.split()[0]) - int(before.split()[0])
    print("| layer | instructions a read |\n|---|---|")
    for layer, count in layers.most_common():
        print(f"| {layer} | {count / reads / (2 if layer in TWICE else 1):.0f} |")


main()
