from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driver.found import BROKEN, FAKE, SIZES, SMALL, UNSTARTABLE, call
from tune.graphs import MATMUL

from prism import driver
from prism.driver import NoKernelWarning, optimize
from prism.errors import SizeError, TraceError, UsageError
from prism.optimized_shapes import OptimizedShapes
from prism.plugins import Group, make
from prism.search import SearchOptions


def test_optimize_gives_a_callable_that_is_right(searched):
    made = optimize(MATMUL, sizes=SIZES, target=FAKE)
    assert not made.is_fallback
    call(made)
    assert made.facts["tune"]["best"]["schedule"] == {"fault": 0, "delay_ms": 1}
    assert "graph g0" in made.report()


def test_optimize_traces_a_function(searched):
    def product(x: "n d", w: "d h"):
        return x @ w

    with pytest.raises(SizeError, match="no dimension 'k'"):
        optimize(product, sizes={"k": 4}, target=FAKE)
    with pytest.raises(TraceError):
        optimize(np.linalg.inv, sizes={"n": 4}, target=FAKE, x="n n")
    with pytest.raises(UsageError, match="traced already"):
        optimize(MATMUL, sizes=SIZES, target=FAKE, x="n d")
    with pytest.raises(UsageError, match="a function or a traced program"):
        optimize("matmul", sizes=SIZES, target=FAKE)


@pytest.mark.parametrize("target", [BROKEN, UNSTARTABLE])
def test_when_no_kernel_passes_the_program_itself_is_the_answer(target, searched):
    with pytest.warns(NoKernelWarning, match="no kernel for matmul at n=4,d=12,h=10: ") as warned:
        made = optimize(MATMUL, sizes=SIZES, target=target)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert made.is_fallback
    call(made)
    assert "no kernel passed" in made.report()


def test_when_nothing_is_proved_the_program_itself_is_the_answer(searched):
    searched.append(replace(SMALL, graphs=()))
    with pytest.warns(NoKernelWarning, match="the search proved no graph"):
        made = optimize(MATMUL, sizes=SIZES, target=FAKE)
    assert made.is_fallback
    call(made)


def test_a_target_that_cannot_run_here_gives_its_kernel_and_says_predicted(searched, cache):
    offline = FAKE.replace("FakeTarget", "OfflineTarget")
    made = optimize(MATMUL, sizes=SIZES, target=offline)
    assert made.is_fallback
    call(made)
    best = made.facts["tune"]["best"]
    assert (best["predicted"], best["median_s"], best["spills"]) == (True, None, 0)
    report = made.report()
    assert "predicted 2.200 ms; compiled, neither checked nor run" in report
    assert "40 registers a thread, 1024 bytes of shared memory a block, 0 bytes" in report
    assert "note: compiled for fake_90, not run" in report
    assert "median" not in report
    assert optimize(MATMUL, sizes=SIZES, target=offline) == made
    assert len(searched) == 2


LARGER = {"n": 4, "d": 24, "h": 20}


def test_sizes_in_a_list_give_a_program_for_all_of_them_and_others(searched, rng):
    made = optimize(MATMUL, sizes=[SIZES, LARGER], target=FAKE, budget=100.0)
    assert isinstance(made, OptimizedShapes)
    assert [shape.sizes for shape in made.shapes] == [SIZES, LARGER]
    assert not any(shape.is_fallback for shape in made.shapes)
    seeded = made.shapes[1].facts["tune"]
    assert any("fast at other sizes" in note for note in seeded["notes"])
    call(made)
    x, w = rng.standard_normal((2, 30)), rng.standard_normal((30, 7))
    x, w = x.astype(np.float32), w.astype(np.float32)
    with pytest.warns(UserWarning, match="not tuned for n=2,d=30,h=7: the kernel for"):
        np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-4, atol=1e-5)
    again = optimize(MATMUL, sizes=[LARGER], target=FAKE, budget=100.0)
    assert again.shapes == made.shapes[1:]


@pytest.mark.parametrize("sizes", [[], [SIZES, dict(reversed(SIZES.items()))]])
def test_a_list_of_no_sizes_or_of_the_same_twice_is_refused(sizes, searched):
    with pytest.raises(UsageError, match="must hold some, each of them once"):
        optimize(MATMUL, sizes=sizes, target=FAKE)


def test_optimize_searches_for_its_sizes_and_device(searched, monkeypatch):
    asked = []

    def search(program, options, *, cache, progress):
        asked.append(options)
        return SMALL, {"graphs": 1}

    monkeypatch.setattr(driver, "searched", search)
    given = {"sizes": SIZES, "target": FAKE, "budget": 100.0, "cache": False}
    optimize(MATMUL, **given)
    optimize(MATMUL, **given, search_options=SearchOptions(mode="count"))
    optimize(MATMUL, **given, search_options=SearchOptions(mode="tune", sizes=(("n", 4),)))
    assert [dict(o.sizes or ()) for o in asked] == [SIZES, {}, {"n": 4}]
    assert [o.device is not None for o in asked] == [True, False, False]


def test_a_search_is_kept_whatever_bandwidth_is_measured():
    device = make(Group.TARGET, FAKE).device()
    options = SearchOptions(mode="tune", sizes=tuple(SIZES.items()), device=device)
    key = driver.search_key(MATMUL, options)
    slower = replace(options, device=replace(device, stream_gbps=device.stream_gbps / 2))
    assert driver.search_key(MATMUL, slower) == key
    other = replace(options, device=replace(device, name="another"))
    for changed in (replace(options, device=None), replace(options, sizes=None), other):
        assert driver.search_key(MATMUL, changed) != key
