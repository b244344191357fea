from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism.errors import ParseError, UsageError
from prism.record import (
    Outcome,
    RecordFile,
    RecordWarning,
    Trial,
    TrialKey,
    digest,
    from_line,
    now,
    to_line,
    versions,
)

KEY = TrialKey(
    digest("program"),
    digest("graph"),
    (("d", 64), ("n", 8)),
    ((("x", 2), ("i", 4)),),
    (("unroll", 4),),
    "float32",
    "cpu",
    "a machine",
    (("python", "3.11.7"), ("prism-superopt", "0.1.0")),
)
OK = Trial(KEY, "matmul", "g0", 7, Outcome.OK, 2e-3, 1e-3, 3e-7, 0.5, digest("source"), "", now())

names = st.text(min_size=1, max_size=8)
counts = st.dictionaries(names, st.integers(1, 2**40), max_size=3).map(lambda d: tuple(d.items()))
seconds = st.floats(0, 1e6)
trials = st.builds(
    Trial,
    st.builds(
        TrialKey,
        names,
        names,
        counts,
        st.lists(counts, max_size=2).map(tuple),
        counts,
        names,
        names,
        names,
        st.dictionaries(names, names, max_size=2).map(lambda d: tuple(d.items())),
    ),
    st.text(),
    st.text(),
    st.integers(0, 2**63),
    st.sampled_from(Outcome),
    seconds,
    seconds,
    st.none() | seconds,
    st.none() | seconds,
    st.none() | st.text(),
    st.text(),
    st.text(),
)


@given(trials)
def test_a_trial_reads_back_as_written_on_one_line(trial):
    line = to_line(trial)
    assert "\n" not in line
    assert from_line(line) == trial


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "prism.trial/1"}, "not a prism.trial/2"),
        ({"outcome": "great"}, "great"),
        ({"median_s": None}, "without its times"),
        ({"median_s": -1}, "zero or more"),
        ({"seed": 1.5}, "not an integer"),
        ({"seed": True}, "not an integer"),
        ({"sizes": [8, 64]}, "not an object"),
        ({"sizes": {"n": "8"}}, "not an integer"),
        ({"par_sizes": {"x": 2}}, "not an object"),
        ({"dtype": 32}, "not a string"),
        ({"versions": []}, "bad value"),
        ({"median_s": 10**400}, "too large"),
        ({"median_s": float("inf")}, "not finite"),
        ({"detail": "\ud800"}, "surrogates"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(change, message):
    data = json.loads(to_line(OK)) | change
    with pytest.raises(ParseError, match=message):
        from_line(json.dumps(data))


SINCE_CLUSTERS = {"host", "at_once"}


@pytest.mark.parametrize("field", sorted(json.loads(to_line(OK)).keys() - SINCE_CLUSTERS))
def test_a_record_without_a_field_is_refused(field):
    data = json.loads(to_line(OK))
    del data[field]
    with pytest.raises(ParseError):
        from_line(json.dumps(data))


def test_a_record_from_before_clusters_ran_on_the_tuners_own_machine():
    data = json.loads(to_line(replace(OK, host="node1", at_once=3)))
    old = {name: value for name, value in data.items() if name not in SINCE_CLUSTERS}
    assert from_line(json.dumps(old)) == OK


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_text_that_is_no_record_never_raises_anything_else(text):
    with pytest.raises(ParseError):
        from_line(text)


def test_a_file_that_is_not_there_holds_no_trials(tmp_path):
    assert RecordFile(tmp_path / "no.jsonl").read() == ()


def test_trials_append_in_order_and_folders_are_made(tmp_path):
    records = RecordFile(tmp_path / "deep" / "er" / "trials.jsonl")
    both = (OK, replace(OK, outcome=Outcome.CRASH, median_s=None, min_s=None))
    for trial in both:
        records.append(trial)
    assert records.read() == both


def test_a_truncated_last_line_is_skipped_with_a_warning_and_the_next_trial_survives(tmp_path):
    records = RecordFile(tmp_path / "trials.jsonl")
    records.append(OK)
    records.append(OK)
    whole = records.path.read_bytes()
    records.path.write_bytes(whole[:-20])
    with pytest.warns(RecordWarning, match=r"trials.jsonl: skipped line 2 \(not JSON"):
        assert records.read() == (OK,)
    records.append(OK)
    with pytest.warns(RecordWarning, match="line 2"):
        assert records.read() == (OK, OK)


def test_foreign_lines_give_one_warning_that_counts_them(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_bytes(b'{"schema": "other/1"}\n\xff\xfe\n' + to_line(OK).encode() + b"\n\n[1]\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert RecordFile(path).read() == (OK,)
    assert [str(w.message).partition(": ")[2] for w in caught] == [
        "skipped line 1 (not a prism.trial/2 record) and 2 more"
    ]


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot write the record file"):
        RecordFile(tmp_path).append(OK)
    with pytest.raises(UsageError, match="cannot read the record file"):
        RecordFile(tmp_path).read()


WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from prism.record import RecordFile, from_line
path, name, line = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
for _ in range(200):
    RecordFile(path).append(replace(from_line(line), graph_id=name, detail=name * 3000))
"""


def test_concurrent_writers_lose_and_mix_nothing(tmp_path):
    path = tmp_path / "trials.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, to_line(OK)])
        for name in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = RecordFile(path).read()
    assert len(found) == 600
    assert all(trial.detail == trial.graph_id * 3000 for trial in found)


def test_versions_name_what_a_time_depends_on():
    found = dict(versions())
    assert {"python", "prism-superopt", "numpy", "numba"} <= found.keys()


def test_a_line_that_is_nested_deep_is_no_record():
    with pytest.raises(ParseError):
        from_line("[" * 100_000)


def test_special_files_are_neither_read_nor_written(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    records = RecordFile(tmp_path / "fifo")
    for attempt in (records.read, records.require_writable, lambda: records.append(OK)):
        with pytest.raises(UsageError, match="not a regular file"):
            attempt()


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("prism.record.MAX_BYTES", 100)
    records = RecordFile(tmp_path / "trials.jsonl")
    records.append(OK)
    with pytest.raises(UsageError, match="larger than"):
        records.read()


def full(descriptor, line):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("write", [full, lambda descriptor, line: len(line) // 2])
def test_a_full_disk_costs_one_warning(write, tmp_path, monkeypatch):
    monkeypatch.setattr("prism.record.os.write", write)
    records = RecordFile(tmp_path / "trials.jsonl")
    with pytest.warns(RecordWarning, match="no longer recorded"):
        records.append(OK)
    records.append(OK)  # a second warning would be an error


def test_asking_whether_a_file_can_be_written_makes_none(tmp_path):
    RecordFile(tmp_path / "trials.jsonl").require_writable()
    assert list(tmp_path.iterdir()) == []
