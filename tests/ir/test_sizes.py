"""Symbolic tile sizes: simplifying keeps the value, printing is as in the paper."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from strategies import sizes

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    BlockGraph,
    GraphOp,
    Mapping,
    MapVar,
    Size,
    chunk,
    tile_size,
)
from prism.ir.blocks import tile_range
from prism.ir.sizes import ONE, Extent, size_of

DIMS, PARS = "ndh", "xyi"
extents = st.builds(
    Extent, st.sampled_from(DIMS), st.lists(st.sampled_from(PARS), unique=True).map(tuple)
)
products = st.lists(extents, max_size=4)
known_sizes = st.fixed_dictionaries(dict.fromkeys(DIMS, sizes))
known_counts = st.fixed_dictionaries(dict.fromkeys(PARS, sizes))


def product(parts) -> Size:
    out = ONE
    for part in parts:
        out *= size_of(part.dim, part.pars)
    return out


@given(products, known_sizes, known_counts)
def test_a_product_has_the_value_of_its_parts(parts, known, counts):
    value = 1
    for part in parts:
        value *= part.value(known, counts)
    assert product(parts).value(known, counts) == value


@given(products, st.randoms(use_true_random=False))
def test_products_are_equal_in_any_order(parts, random):
    shuffled = list(parts)
    random.shuffle(shuffled)
    assert product(shuffled) == product(parts)


@given(products, known_sizes, known_counts, st.sets(st.sampled_from(DIMS + PARS)))
def test_binding_what_is_known_keeps_the_value(parts, known, counts, given_names):
    size = product(parts)
    bound = size.bind(
        {d: s for d, s in known.items() if d in given_names},
        {p: c for p, c in counts.items() if p in given_names},
    )
    assert bound.value(known, counts) == size.value(known, counts)


@given(products, known_sizes, known_counts)
def test_a_size_of_which_all_is_known_is_a_number(parts, known, counts):
    bound = product(parts).bind(known, counts)
    assert bound.extents == ()
    assert bound.factor == product(parts).value(known, counts)


@given(sizes, sizes, sizes)
def test_splitting_twice_rounds_up_once(size, outer, inner):
    extent = Extent("d", ("x", "i"))
    assert extent.value({"d": size}, {"x": outer, "i": inner}) == chunk(chunk(size, outer), inner)


@given(sizes, st.lists(sizes, min_size=1, max_size=2))
def test_chunks_cover_a_dimension_once_and_fit_the_tile_size(size, counts):
    tiles = [[]]
    for count in counts:
        tiles = [[*t, (count, i)] for t in tiles for i in range(count)]
    ranges = [tile_range(size, t) for t in tiles]
    covered = [i for start, stop in ranges for i in range(start, stop)]
    assert covered == list(range(size))
    largest = Extent("d", ("x", "i")[: len(counts)]).value(
        {"d": size}, dict(zip("xi", counts, strict=False))
    )
    assert max(stop - start for start, stop in ranges) == largest


def test_the_tile_of_a_tensor_prints_as_in_the_paper():
    variables = {MapVar("X", "d", "x"), MapVar("X", "d", "i"), MapVar("X", "n", "y")}
    op = GraphOp(GRID_DIMS, (LOOP_DIM,), Mapping(frozenset(variables)), BlockGraph(()))
    assert str(tile_size(op, "X", "d")) == "d/(x*i)"
    assert str(tile_size(op, "X", "n")) == "n/y"
    assert str(tile_size(op, "X", "h")) == "h"
    assert str(tile_size(op, "X", "n") * tile_size(op, "X", "d")) == "d/(x*i) * n/y"
    assert str(ONE) == "1"
    assert str(size_of("d", ("x",)).bind({"d": 10}, {"x": 4})) == "3"


def test_what_cannot_be_split_or_is_split_in_one_is_simple():
    assert size_of("d", ("x",)).bind({"d": 1}, {}) == ONE
    assert size_of("d", ("x", "i")).bind({}, {"x": 1}) == size_of("d", ("i",))
    assert size_of("d", ("x",)).bind({"d": 2}, {}) == size_of("d", ("x",))
