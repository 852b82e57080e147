#!/usr/bin/env python3
"""Stores in clear, encrypted, and with compressed values, side by side: space, the load, lookups and updates.

    docs/measure/crypt.py --target TARGET/ci --folder DIR [--copies 4] [--rounds 3] [--seconds 4]

The rows are real text: the package descriptions of this Debian (`apt-cache dumpavail`), one line of JSON for each package, with
the field names of the original. The key is the package's name and the number of the copy; each value is stored by itself, so
copies make no value smaller. The builds: `cargo build --profile ci -p qpair-cli -p qpair-bench --bins --example text_rows`.

Each round runs all stores in turn. Medians of the rounds.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

KINDS = {
    "plain": [],
    "lz4": ["--compress", "lz4"],
    "zstd": ["--compress", "zstd"],
    "encrypted": ["--key-file", "key"],
    "encrypted, lz4": ["--key-file", "key", "--compress", "lz4"],
}


def packages():
    """The packages, each a dict of its fields."""
    text = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout.decode("utf-8", "replace")
    for stanza in text.split("\n\n"):
        fields, name = {}, None
        for line in stanza.splitlines():
            if line[:1].isspace() and name:
                fields[name] += "\n" + line[1:]
            elif ": " in line:
                name, value = line.split(": ", 1)
                fields[name] = value
        if "Package" in fields:
            yield fields


def write_rows(path, copies):
    lines = {fields["Package"]: json.dumps(fields, ensure_ascii=False) for fields in packages()}
    with open(path, "w", encoding="utf-8") as file:
        for key, name in sorted((f"{name}/{copy}".encode(), name) for name in lines for copy in range(copies)):
            file.write(f"{key.decode()}\t{lines[name]}\n")
    sizes = [len(line.encode()) for line in lines.values()]
    return len(sizes) * copies, statistics.median(sizes), sum(sizes) * copies


def run(command, **more):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    out, error = process.stdout.read().decode(), process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}: {error}")
    return out, usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--small", default="20MiB", help="memory of the lookups out of memory")
    parser.add_argument("--large", default="1GiB", help="memory of those in memory")
    given = parser.parse_args()
    qpair = os.path.abspath(os.path.join(given.target, "qpair"))
    text_rows = os.path.abspath(os.path.join(given.target, "examples", "text_rows"))
    os.makedirs(given.folder, exist_ok=True)
    os.chdir(given.folder)
    rows, median, content = write_rows("rows.tsv", given.copies)
    print(f"{rows} rows, values of {median:.0f} bytes in the median, {content / 1e6:.0f} MB in all")
    with open("key", "wb") as key:
        key.write(os.urandom(32))
    figures = {kind: {} for kind in KINDS}

    def note(kind, what, value):
        figures[kind].setdefault(what, []).append(float(value))

    for _ in range(given.rounds):
        for kind, options in KINDS.items():
            store = kind.replace(", ", "-") + ".qpair"
            key = options[:2] if "--key-file" in options else []
            if os.path.exists(store):
                os.remove(store)
            load = [qpair, "load", store, "rows.tsv", "--key", "1", "--value", "2", "--raw", "--sorted", "--json"]
            loaded, cpu = run([*load, *options])
            note(kind, "load, rows/s", json.loads(loaded)["records_per_s"])
            note(kind, "load, us", cpu * 1e6 / rows)
            note(kind, "file, MB", os.path.getsize(store) / 1e6)
            for what, operation, memory in (
                ("get out of memory", "get", given.small),
                ("get in memory", "get", given.large),
                ("put in memory", "put", given.large),
            ):
                out, _ = run([text_rows, store, operation, memory, str(given.seconds), *key[1:]])
                done, cpu, reads = re.match(r"([\d.]+) operations/s, ([\d.]+) us of processor, ([\d.]+) reads", out).groups()
                note(kind, f"{what}, /s", done)
                note(kind, f"{what}, us", cpu)
                if operation == "get" and memory == given.small:
                    note(kind, f"{what}, reads", reads)
    names = list(figures["plain"])
    print("| | " + " | ".join(KINDS) + " |")
    print("|---" * (len(KINDS) + 1) + "|")
    for name in names:
        cells = []
        for kind in KINDS:
            values = figures[kind][name]
            digits = 0 if statistics.median(values) >= 100 else 2
            cells.append(f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
