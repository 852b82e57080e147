"""The tools of the command ``qpair``: workloads as fio's, the study of a device, and advice.

They are not in this package: it would be several times as large. They run the command that ``QPAIR_COMMAND`` names, or
``qpair`` of the ``PATH``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from typing import Any

from . import _errors


def command() -> str:
    """Returns the path of the command ``qpair``."""
    found = os.environ.get("QPAIR_COMMAND") or shutil.which("qpair")
    if not found:
        hint = "install it (cargo install --path crates/cli in a checkout), or set QPAIR_COMMAND to its path"
        error = _errors.NotFound(f"the command qpair is not in the PATH ({hint})")
        error.kind, error.context, error.hint = "NotFound", "the command qpair is not in the PATH", hint
        raise error
    return found


def _run(*arguments: str) -> str:
    done = subprocess.run([command(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        said = done.stderr.strip()
        error = _errors.Error(f"qpair {' '.join(arguments[:2])} failed: {said}")
        error.kind, error.context = "Command", said
        raise error
    return done.stdout


def bench_io(job_file: str | os.PathLike[str] | None = None, /, **options: Any) -> dict[str, Any]:
    """Runs a workload as fio does, and returns fio's JSON (``--output-format=json``) as a dict.

    The options are fio's, by name: ``bench_io(name="r", filename=path, rw="randread", bs="4k", runtime=5,
    time_based=True)``. They are one job, or hold for all jobs of the job file. The workload overwrites what it writes to,
    as fio does.
    """
    arguments = ["bench", "io"]
    if job_file is None:
        # A job begins with its name.
        arguments.append(f"--name={options.pop('name', 'job')}")
    for name, value in options.items():
        if value is not None:
            arguments.append(f"--{name}={int(value) if isinstance(value, bool) else value}")
    if job_file is not None:
        arguments.append(os.fspath(job_file))
    with tempfile.TemporaryDirectory(prefix="qpair-") as folder:
        output = os.path.join(folder, "output.json")
        _run(*arguments, "--output-format=json", f"--output={output}")
        with open(output, encoding="utf-8") as file:
            return json.load(file)


def study(directory: str | os.PathLike[str] | None = None, /, **options: Any) -> dict[str, Any]:
    """Measures a device by ``qpair study`` and returns the study as a dict.

    ``directory`` is where the file for the measurements is made. The options are those of the command:
    ``study("/mnt/nvme", quick=True, size="1GiB", repeat=2)``. With ``out``, the report and the study are kept as
    ``out`` (an HTML page) and beside it (JSON).
    """
    with tempfile.TemporaryDirectory(prefix="qpair-") as folder:
        out = os.fspath(options.pop("out", os.path.join(folder, "study.html")))
        arguments = ["study", f"--out={out}"]
        if directory is not None:
            arguments.append(f"--dir={os.fspath(directory)}")
        arguments += _flags(options)
        _run(*arguments)
        with open(os.path.splitext(out)[0] + ".json", encoding="utf-8") as file:
            return json.load(file)


def _flags(options: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        name = name.replace("_", "-")
        if value is True:
            flags.append(f"--{name}")
        elif value is not None and value is not False:
            flags.append(f"--{name}={value}")
    return flags


def advise(study: str | os.PathLike[str] | dict[str, Any] | None = None, /, **options: Any) -> list[dict[str, Any]]:
    """Names the best interface for a device: a row for each interface, the fastest first, for ``pandas.DataFrame``.

    ``study`` is a study that was measured before, as a dict or a JSON file. Without one, the command measures for about
    a minute. The options are those of the command, such as ``cores=1``, ``qd=32``, ``latency_us=200``, ``reads=70``.
    ``advised`` is true in the row of the interface to use, which also has the reasons, the warnings, and what would
    change the answer.
    """
    with tempfile.TemporaryDirectory(prefix="qpair-") as folder:
        arguments = ["advise", "--json", *_flags(options)]
        if isinstance(study, dict):
            path = os.path.join(folder, "study.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(study, file)
            study = path
        if study is not None:
            arguments.append(f"--study={os.fspath(study)}")
        advice = json.loads(_run(*arguments))
    rows = []
    for choice in [advice["choice"], *advice["others"]]:
        if choice is None:
            continue
        low, high = choice.pop("ios_per_s_interval") or (None, None)
        rows.append({**choice, "ios_per_s_low": low, "ios_per_s_high": high, "advised": choice is advice["choice"]})
    for row in rows:
        told = {name: "; ".join(advice[name]) for name in ("reasons", "warnings", "changes")}
        row.update(told if row["advised"] else dict.fromkeys(told, ""))
    return rows
