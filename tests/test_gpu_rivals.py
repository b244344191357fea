"""Our kernel beside torch in a GPU session; a stand-in plays torch, which is an extra."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from prism.dtypes import dtype_of
from prism_experiments.gpu.results import CONTESTANT, clean
from prism_experiments.gpu.rivals import (
    NoTorchError,
    as_float64,
    as_tensor,
    compete,
    enter,
    open_torch,
    rivals_of,
)
from prism_experiments.gpu.stopwatch import EventStopwatch, HostStopwatch, time_calls
from prism_experiments.gpu.vetting import Each, vet
from prism_experiments.rivals.torch_source import ATTENTION, FUNCTIONS


class Tensor:
    """A NumPy array in torch's clothes, as far as the session touches a tensor."""

    is_cuda = False

    def __init__(self, array):
        self.array = array
        self.is_static = False

    def detach(self):
        return Tensor(self.array)

    def double(self):
        return Tensor(self.array.astype(np.float64))

    def cpu(self):
        return self

    def numpy(self):
        return self.array


class Event:
    """A CUDA event whose clock is the number of calls so far."""

    now = 0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 1
        self.at = Event.now

    def query(self):
        return False

    def elapsed_time(self, end):
        return float(end.at - self.at)


def fake_torch(*, broken=(), is_gpu=True):
    """A torch whose compiler runs the function as it is, but for modes that are `broken`."""
    compiled, forms = [], []

    def compile_(form, *, mode, dynamic, fullgraph):
        assert (dynamic, fullgraph) == (False, True)
        compiled.append(mode)
        forms.append(form)
        if mode in broken:
            raise RuntimeError(f"no {mode} here")
        return form

    def mark(tensor):
        tensor.is_static = True

    cuda = SimpleNamespace(
        Event=Event,
        is_available=lambda: is_gpu,
        synchronize=lambda: None,
        get_device_properties=lambda _: SimpleNamespace(total_memory=800),
    )
    return SimpleNamespace(
        __version__="9",
        compile=compile_,
        compiled=compiled,
        forms=forms,
        compiler=SimpleNamespace(reset=lambda: compiled.append("reset")),
        _dynamo=SimpleNamespace(mark_static_address=mark),
        cuda=cuda,
        float32="float32",
        ones=lambda size, dtype, device: np.ones(size),
    )


def square(tensor):
    return Tensor(tensor.array**2)


def contest(
    torch, *, target="cuda", left_s=100.0, form=square, forms=None, ours=lambda: np.float32([1, 4])
):
    """What a contest tells in the end, by contestant."""
    reference = (np.array([1.0, 4.0]),)
    tables = []

    def entrants():
        yield enter("prism", lambda: ours, reference, 1e-3)
        tensors = [Tensor(np.float32([1, 2]))]
        chosen = forms or {FUNCTIONS: form}
        for rival, found in rivals_of(target, torch, chosen, tensors, lambda: left_s):
            yield enter(rival.name, found, reference, 1e-3) if callable(found) else found

    compete(EventStopwatch(torch), entrants(), tables.append)
    vet(clean(tables[-1]), Each(CONTESTANT))
    return {row["name"]: row for row in tables[-1]}


def test_every_way_of_torch_is_timed_beside_ours():
    torch = fake_torch()
    rows = contest(torch)
    assert list(rows) == [
        "prism",
        "torch",
        "torch-compile",
        "torch-compile-max-autotune",
        "torch-compile-cudagraphs",
    ]
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert {row["ratio"] for row in rows.values()} == {1.0}
    assert all(row["median_s"] == pytest.approx(1e-3) for row in rows.values())
    assert torch.compiled == ["reset", "default", "max-autotune-no-cudagraphs", "reduce-overhead"]


def test_a_compiler_that_fails_costs_its_own_row():
    rows = contest(fake_torch(broken={"default"}))
    assert rows["torch-compile"]["status"] == "failed"
    assert "no default here" in rows["torch-compile"]["detail"]
    assert rows["torch-compile"]["median_s"] is None
    assert rows["torch-compile-cudagraphs"]["ratio"] == 1.0


def test_a_form_that_computes_something_else_is_not_timed():
    rows = contest(fake_torch(), form=lambda tensor: Tensor(tensor.array))
    assert rows["torch"]["status"] == "failed"
    assert "norm error" in rows["torch"]["detail"]
    assert rows["torch"]["median_s"] is None
    assert rows["prism"]["median_s"] is not None


@pytest.mark.parametrize("output", [[1.0, np.nan], [1.0], [[1.0, 4.0]]])
def test_a_result_with_holes_or_of_another_shape_is_wrong(output):
    rows = contest(fake_torch(), ours=lambda: np.float32(output))
    assert rows["prism"]["status"] == "failed"
    assert rows["torch"]["ratio"] is None
    assert rows["torch"]["median_s"] is not None


def test_no_time_left_truncates_what_compiles_and_keeps_eager():
    rows = contest(fake_torch(), left_s=0.0)
    statuses = [row["status"] for row in rows.values()]
    assert statuses == ["ok", "ok", "truncated", "truncated", "truncated"]


def test_what_needs_a_gpu_is_skipped_without_one():
    rows = contest(fake_torch(), target="cpu")
    statuses = [row["status"] for row in rows.values()]
    assert statuses == ["ok", "ok", "ok", "skipped", "skipped"]


def test_a_contestant_that_fails_while_timed_leaves_the_others_their_times():
    calls = []

    def moody(tensor):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("CUDA error: out of patience")
        return square(tensor)

    rows = contest(fake_torch(), target="cpu", left_s=0.0, form=moody)
    assert rows["torch"]["status"] == "failed"
    assert "while timed" in rows["torch"]["detail"]
    assert rows["prism"]["median_s"] is not None


def test_without_torch_or_without_its_gpu_there_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NoTorchError, match="cannot be imported"):
        open_torch("cpu")
    monkeypatch.setitem(sys.modules, "torch", fake_torch(is_gpu=False))
    with pytest.raises(NoTorchError, match="sees no GPU"):
        open_torch("cuda")


def test_programs_with_attention_have_a_rival_for_it_and_compile_it():
    torch = fake_torch()
    forms = {FUNCTIONS: square, ATTENTION: lambda tensor: Tensor(tensor.array * tensor.array)}
    rows = contest(torch, forms=forms)
    assert list(rows)[:3] == ["prism", "torch", "sdpa"]
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert [form is forms[ATTENTION] for form in torch.forms] == [True] * 3


def test_bfloat16_reaches_torch_bit_by_bit():
    torch = pytest.importorskip("torch")
    array = np.float32([1.0, -2.5, 3e38]).astype(dtype_of("bfloat16"))
    tensor = as_tensor(torch, array, "cpu")
    assert tensor.dtype == torch.bfloat16
    np.testing.assert_array_equal(as_float64(tensor), array.astype(np.float64))


def test_the_host_clock_empties_the_caches_before_every_call():
    told = []
    stopwatch = HostStopwatch(lambda: told.append("flush"))
    laps = time_calls(stopwatch, [lambda: told.append("a"), lambda: told.append("b")], most_s=0.0)
    assert told[6:10] == ["flush", "a", "flush", "b"]
    assert [len(own.seconds) for own in laps] == [5, 5]


def test_a_host_that_is_too_slow_is_told(monkeypatch):
    monkeypatch.setattr(Event, "query", lambda self: True)
    rows = contest(fake_torch(), left_s=0.0)
    assert "the host was late in" in rows["prism"]["detail"]
