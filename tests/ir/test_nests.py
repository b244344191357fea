"""Kernels with a loop inside a loop: where nodes stand, what may read what, text and meaning."""

from __future__ import annotations

import nested
import numpy as np
import pytest

from prism.errors import ParseError
from prism.ir import (
    LoopPlace,
    MuGraph,
    bind_sizes,
    check_sgraph,
    evaluate,
    evaluate_graph,
    format_sgraph,
    loop_places,
    parse_sgraph,
    stage_names,
)

COUNTS = ({"x": 3, "i": 2, "j": 4}, {"x": 2, "i": 3, "j": 1}, {"x": 1, "i": 1, "j": 2})
"""Along each parallel dim, at sizes that leave tails."""


def instantiated(graph, counts):
    sizes = {name: 7 + i for i, name in enumerate(graph.program.size_names)}
    pars = tuple(
        tuple((p.name, counts[p.name]) for p in (*kernel.grid, *kernel.loops))
        for kernel in graph.kernels
    )
    return MuGraph(graph, tuple(bind_sizes(graph.program, sizes).items()), pars)


def results(mu):
    """What the program and the graph compute."""
    rng, sizes = np.random.default_rng(0), dict(mu.sizes)
    arguments = mu.graph.program.arguments
    arrays = {a.name: rng.normal(size=[sizes[d] for d in a.axes]) for a in arguments}
    (want,) = evaluate(mu.graph.program, arrays)
    (got,) = evaluate_graph(mu, arrays)
    return want, got


@pytest.mark.parametrize("name", nested.RIGHT)
def test_right_nests_are_well_formed_and_have_a_text(name):
    graph = nested.RIGHT[name]
    check_sgraph(graph)
    assert parse_sgraph(format_sgraph(graph)) == graph


@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "attention", "total", "largest row"])
def test_the_text_names_the_stages(name):
    written = {
        "matmul": nested.MATMUL,
        "rmsnorm": nested.RMSNORM,
        "attention": nested.ATTENTION,
        "total": nested.TOTAL,
        "largest row": nested.LARGEST_ROW,
    }
    text = format_sgraph(nested.RIGHT[name])
    bare = "\n".join(line.split("  #")[0] for line in text.splitlines())
    assert bare.endswith(written[name].rstrip("\n"))


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("name", nested.RIGHT)
def test_iteration_by_iteration_they_compute_their_program(name, counts):
    want, got = results(instantiated(nested.RIGHT[name], counts))
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("name", nested.WRONG)
def test_wrong_nests_compute_something_else(name):
    want, got = results(instantiated(nested.WRONG[name], COUNTS[0]))
    assert not np.allclose(got, want, rtol=1e-6)


def test_every_node_has_its_place_in_the_nest():
    graph = nested.RIGHT["attention"]
    assert loop_places(graph.kernels[0]) == (
        LoopPlace(1),
        *[LoopPlace(2)] * 3,
        *[LoopPlace(1, 1)] * 4,
        *[LoopPlace(0, 0)] * 4,
    )
    (stages,) = stage_names(graph)
    assert stages.split() == ["outer", *["body"] * 3, *["between"] * 4, *["after"] * 4]


def broken(old, new, text=nested.MATMUL, function=nested.matmul):
    bare = "\n".join(line for line in text.splitlines() if not line.endswith(":")) + "\n"
    assert old in bare
    return lambda: nested.graph(function, bare.replace(old, new))


MALFORMED = {
    "three loops": (broken("loop i, j", "loop i, j, k"), "1 grid dims and 3 loops"),
    "the outer loop first": (
        broken("accumulate[j] sum(%2)", "accumulate[i] concat[h](%2)"),
        "changes in every iteration of j; accumulate it over j first",
    ),
    "one loop twice": (
        broken("accumulate[i] concat[h](%3)", "accumulate[j] sum(%3)"),
        "accumulates node 3, which runs after the loop already",
    ),
    "the inner loop once more, in the end": (
        broken("    save %4", "    %5 = accumulate[j] sum(%4)\n    save %5"),
        "accumulates node 4, which runs after the loop already",
    ),
    "a value of one iteration in the end": (
        broken("save %4", "save %3"),
        "reads node 3 after the loop, but that changes in every iteration",
    ),
    "a value of one iteration between": (
        broken(
            "%4 = accumulate[i] concat[h](%3)\n    save %4",
            "%4 = sum[d](x)\n    %5 = mul(%3, %4)\n"
            "    %6 = accumulate[i] concat[h](%5)\n    save %6",
        ),
        "reads node 4 after the loop",
    ),
    "the wrong section": (
        lambda: nested.graph(nested.matmul, nested.MATMUL.replace("between:", "outer:")),
        "this node belongs under between:",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_nests_are_refused(name):
    check, message = MALFORMED[name]
    with pytest.raises(ParseError, match=message):
        check()
