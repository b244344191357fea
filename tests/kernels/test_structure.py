"""A graph lowered once serves all counts: what is kept is what would be made anew."""

from __future__ import annotations

from random import Random

import nested
import pytest
import stacked
from kernels.several import ATTENTION, stable
from stacked import graph
from tune.fake_target import FakeTarget
from tune.test_space import count_graph

from prism.errors import KernelError
from prism.ir import bind_sizes
from prism.tune import build_space, instantiate
from prism_kernels import lower as lower_module
from prism_kernels.lower import lower
from prism_kernels.nests import form_nests
from prism_kernels.structure import Structure

SIZES = {"n": 24, "d": 36, "h": 20, "f": 16, "q": 6, "e": 8, "k": 48}
EXPONENTIALS = {name: graph(stable, text) for name, (text, _) in ATTENTION.items()}
GRAPHS = {**stacked.RIGHT, **nested.RIGHT, **EXPONENTIALS}
MOST = 24


def mugraphs(graph):
    """Some of the graph's muGraphs: many counts of few structures."""
    sizes = bind_sizes(graph.program, {d: SIZES[d] for d in graph.program.size_names})
    (space,) = build_space((("g", graph),), sizes, FakeTarget()).graphs
    chosen = Random(0).sample(range(len(space)), min(MOST, len(space)))
    return [instantiate(space, space.config(i)) for i in chosen]


def outcome(mu):
    """What lowering gives: tile programs, or why there are none."""
    try:
        return lower(mu, has_library=True)
    except KernelError as error:
        return str(error)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_kept_is_what_would_be_made_anew(name):
    mus = mugraphs(GRAPHS[name])
    lower_module._lowered.cache_clear()
    kept = [outcome(mu) for mu in mus]
    for mu, found in zip(mus, kept, strict=True):
        lower_module._lowered.cache_clear()
        assert outcome(mu) == found


def test_graphs_are_lowered_once_for_many_counts():
    mus = mugraphs(stacked.RIGHT["split k"])
    lower_module._lowered.cache_clear()
    for mu in mus:
        lower(mu)
    structures = {Structure.of(mu) for mu in mus}
    assert lower_module._lowered.cache_info().misses == len(structures) < len(mus)


def test_counted_iterations_are_part_of_the_structure():
    """The sum over the loop of what is the same in every iteration is d_p times that."""
    mus = mugraphs(count_graph())
    assert len({Structure.of(mu).counts for mu in mus}) > 2


def test_nests_are_formed_once_for_many_counts():
    found = {}
    for mu in mugraphs(nested.RIGHT["matmul"]):
        (program,) = lower(mu).programs
        found.setdefault(Structure.of(mu), []).append((program, form_nests(program)))
    programs, nests = zip(*max(found.values(), key=len), strict=True)
    assert len({program.loops for program in programs}) > 1
    assert all(one is nests[0] for one in nests)
