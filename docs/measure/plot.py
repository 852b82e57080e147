#!/usr/bin/env python3
"""Draws figures of a page here, for the README: what stands in the picture stands in the page.

    docs/measure/plot.py            writes docs/images/lookups.svg
    docs/measure/plot.py --check    says whether it is the one that the page's figures give
"""
import pathlib
import re
import sys

folder = pathlib.Path(__file__).resolve().parent
picture = folder.parent / "images/lookups.svg"
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 800, 120, 236, 84, 38, 24

STYLE = """
    text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; fill: #1f2328 }
    .name { font-weight: 600; font-size: 14.5px }
    .note { fill: #57606a }
    .end { text-anchor: end }
    .middle { text-anchor: middle }
    .page { fill: #ffffff; stroke: #d1d9e0; stroke-width: 1.25 }
    .ours { fill: #1f6fb8 }
    .peer { fill: #9aa4af }
    .grid { stroke: #d8dee4 }
    .range { stroke: #1f2328; stroke-width: 1.5 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .note { fill: #a9b4c0 }
      .page { fill: #0d1117; stroke: #30363d }
      .ours { fill: #4a9be0 }
      .peer { fill: #6e7781 }
      .grid { stroke: #30363d }
      .range { stroke: #e6edf3 }
    }
"""


def ycsb(workload):
    """The date of the page's table of YCSB, and a workload's operations per second: store, value, least, most."""
    text = (folder / "transactions.md").read_text()
    section = re.search(r"^## YCSB$.*?^(?=##)", text, flags=re.S | re.M)[0]
    date = re.search(r"^On (\d{4}-\d\d-\d\d)", section, flags=re.M)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")]
    titles = rows[0]
    cells = dict(zip(titles, next(row for row in rows if row[0] == workload)))
    number = lambda digits: int(digits.replace(",", ""))
    value, least, most = map(number, re.findall(r"[\d,]+", cells["qpair (least to most)"]))
    peers = [(name, number(cells[name]), None, None) for name in ("WiredTiger", "LMDB", "RocksDB")]
    return date, [("qpair", value, least, most), *peers]


def draw():
    date, stores = ycsb("C")
    top = max(most or value for _, value, _, most in stores)
    step = 50_000
    scale = (WIDTH - LEFT - RIGHT) / top
    bottom = TOP + ROW * len(stores)
    height = bottom + 42
    about = ", ".join(f"{name} {value:,}" for name, value, _, _ in stores)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-labelledby="title about">',
        '  <title id="title">Lookups in stores far larger than memory</title>',
        f'  <desc id="about">Lookups per second: {about}.</desc>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="6"/>',
        '  <text class="name" x="24" y="32">Lookups per second, stores far larger than memory</text>',
        f'  <text class="note" x="24" y="54">YCSB C: 1,000,000 records of 1 KB over 110 MiB. {date}, a shared machine of 2 cores, ext4 on a virtio disk.</text>',
    ]
    for value in range(0, top + 1, step):
        x = LEFT + value * scale
        out.append(f'  <path class="grid" d="M{x:.1f} {TOP - 8}V{bottom}"/>')
        out.append(f'  <text class="note middle" x="{x:.1f}" y="{bottom + 20}">{value:,}</text>')
    for at, (name, value, least, most) in enumerate(stores):
        y = TOP + at * ROW + (ROW - BAR) / 2 - 4
        middle = y + BAR / 2
        kind = "peer" if least is None else "ours"
        out.append(f'  <text class="end{"" if least is None else " name"}" x="{LEFT - 12}" y="{middle + 4.5:.1f}">{name}</text>')
        out.append(f'  <rect class="{kind}" x="{LEFT}" y="{y:.1f}" width="{value * scale:.1f}" height="{BAR}"/>')
        end = LEFT + (most or value) * scale + 12
        if least is not None:
            low, high = LEFT + least * scale, LEFT + most * scale
            out.append(f'  <path class="range" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10"/>')
        told = f"{value:,}" if least is None else f"{value:,} ({least:,} to {most:,})"
        out.append(f'  <text x="{end:.1f}" y="{middle + 4.5:.1f}">{told}</text>')
    return "\n".join([*out, "</svg>", ""])


if sys.argv[1:] == ["--check"]:
    if draw() != picture.read_text():
        sys.exit(f"{picture.name} is not the one of the figures in transactions.md: docs/measure/plot.py draws it")
else:
    picture.write_text(draw())
