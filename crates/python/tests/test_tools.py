"""The tools run the command `qpair`."""

import os
import shutil
import stat

import pytest

import qpair

command = os.environ.get("QPAIR_COMMAND") or shutil.which("qpair")
needs_command = pytest.mark.skipif(not command, reason="no command qpair (QPAIR_COMMAND)")


def test_without_the_command(monkeypatch, tmp_path):
    monkeypatch.delenv("QPAIR_COMMAND", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(qpair.NotFound, match="QPAIR_COMMAND") as raised:
        qpair.bench_io(filename="x")
    assert "cargo install" in raised.value.hint


def test_what_the_command_says_is_in_the_error(monkeypatch, tmp_path):
    fake = tmp_path / "qpair"
    fake.write_text("#!/bin/sh\necho \"cannot: $*\" >&2\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("QPAIR_COMMAND", str(fake))
    with pytest.raises(qpair.Error, match="cannot: bench io --name=j --rw=randread --direct=0 --time_based=1 --output"):
        qpair.bench_io(rw="randread", direct=False, name="j", time_based=True, size=None)
    with pytest.raises(qpair.Error, match="cannot: bench io --runtime=5 x.fio --output"):
        qpair.bench_io("x.fio", runtime=5)


@needs_command
def test_a_workload_gives_fios_json(tmp_path):
    options = dict(filename=tmp_path / "data", size="4m", rw="randread", bs="4k", ioengine="posix", number_ios=200)
    result = qpair.bench_io(**options, name="mine", direct=False, group_reporting=True)
    (job,) = result["jobs"]
    assert job["jobname"] == "mine" and job["read"]["total_ios"] == 200
    job_file = tmp_path / "job.fio"
    job_file.write_text(f"[inside]\nfilename={tmp_path / 'data'}\nsize=4m\nrw=randread\nioengine=posix\nnumber_ios=50\n")
    assert qpair.bench_io(job_file)["jobs"][0]["jobname"] == "inside"
    with pytest.raises(qpair.Error, match="rw"):
        qpair.bench_io(rw="sideways", filename=tmp_path / "data", size="4m")


@needs_command
def test_a_study_and_its_advice(tmp_path):
    # The smallest part of a study that advice can be taken from.
    options = dict(experiment="s1-fig2", quick=True, repeat=1, seconds_per_point=0.005, size="16MiB")
    found = qpair.study(tmp_path, out=tmp_path / "s.html", **options)
    assert found["points"] and (tmp_path / "s.html").exists()
    rows = qpair.advise(found)
    assert rows == qpair.advise(tmp_path / "s.json")
    assert sum(row["advised"] for row in rows) == 1 and rows[0]["ios_per_s"] > 0
    assert all(not isinstance(value, (list, dict)) for row in rows for value in row.values())
    # What pandas.DataFrame takes: all rows have the same columns.
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert {"interface", "ios_per_s", "p99_us", "reasons"} <= rows[0].keys()
