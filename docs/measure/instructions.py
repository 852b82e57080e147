#!/usr/bin/env python3
"""Instructions of a byte by block size, where the machine counts none: S4's cost of a byte, by callgrind.

    cargo build --release
    docs/measure/instructions.py [--file FILE]

callgrind counts what runs in the process: the system calls' part in the kernel is not in it. Each figure is the difference of two runs of
`qpair bench io` that differ in their number of reads only, divided by the bytes of that difference.
"""

import argparse
import os
import re
import subprocess
import tempfile

INTERFACES = ["posix:threads=0", "libaio", "io_uring", "softnvme"]
SIZES = [4096, 16384, 65536, 262144]
READS = (500, 2500)


def counted(program, filename, interface, size, reads, folder):
    """Instructions of a run."""
    job = ["bench", "io", "--name=count", "--rw=randread", f"--bs={size}", f"--number_ios={reads}", "--iodepth=16", "--norandommap", "--readonly"]
    if interface == "softnvme":
        job += ["--filename=softnvme:size=64MiB", "--mem=mmap"]
    else:
        job += [f"--filename={filename}", f"--interface={interface}", "--direct=1"]
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, *job]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qpair", default="target/release/qpair", help="the program")
    parser.add_argument("--file", help="file that is read; one of 64 MiB is made if none is given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        filename = args.file or os.path.join(folder, "file")
        if not args.file:
            with open(filename, "wb") as file:
                file.write(os.urandom(64 << 20))
        print("| bytes of a read | " + " | ".join(INTERFACES) + " |")
        print("|---" * (len(INTERFACES) + 1) + "|")
        for size in SIZES:
            row = []
            for interface in INTERFACES:
                few, many = (counted(args.qpair, filename, interface, size, reads, folder) for reads in READS)
                row.append(f"{(many - few) / ((READS[1] - READS[0]) * size):.4f}")
            print(f"| {size} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
