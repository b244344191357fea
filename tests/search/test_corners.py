"""At given sizes rows of numbers decide: what is less at all corners is less in between."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import search_programs as programs

from prism.search.fronts.corners import DEAREST_LOG2, SPREAD, Box, Corners
from prism.search.fronts.costs import Cost, Prices
from prism.search.fronts.front import Front
from prism.search.fronts.polynomials import ZERO, exponents, is_below, power, total
from prism.search.wiring import Arena

SIZES = (64, 1000, 8)
"""Of n, d and h."""


@pytest.fixture
def prices():
    return Prices(Arena(programs.trace(programs.matmul)))


def corners(prices, free, looped):
    return Corners(prices, Box(SIZES, frozenset(free)), looped, seed=0)


def some_cost(prices, looped, random):
    """Operators and tiles as graphs have them: all iterations together, or tiles of one."""
    work = []
    for _ in range(random.randint(1, 3)):
        op, space = random.choice(("matmul", "mul", "exp")), random.randint(1, 7)
        # what works on unfinished sums over a dim no longer has it
        is_late = looped and not space & looped and random.random() < 0.5
        work.append(prices.work(op, space, looped, power(prices.iterations) if is_late else 0))
    tiles = [
        prices.tile(random.randint(1, 7), random.choice((0, looped)))
        for _ in range(random.randint(1, 3))
    ]
    return Cost(total(work), total(tiles))


def inside(prices, free, looped, random):
    """Values of all variables: tiles of two elements or more, some of them many."""
    iterations = 1.0
    if looped:
        size = min(s for d, s in enumerate(SIZES) if looped >> d & 1)
        iterations = (size / 2) ** random.random()
    out = []
    for d, size in enumerate(SIZES):
        own = iterations if looped >> d & 1 else 1.0
        most = size / own / 2
        out.append(most ** random.random() if d in free else most)
    out += [iterations]
    return [*out, *(2 ** (DEAREST_LOG2 * random.random()) for _ in range(2))]


def value(polynomial, at):
    return sum(
        c * math.prod(at[i] ** e for i, e in enumerate(exponents(m))) for m, c in polynomial.items()
    )


@pytest.mark.parametrize("looped", [0, 1, 2], ids=["no loop", "along n", "along d"])
@pytest.mark.parametrize("free", [(), (0,), (0, 2), (0, 1)])
def test_less_at_the_corners_is_less_everywhere(prices, free, looped):
    random = Random(f"{free} {looped}")
    scale = corners(prices, free, looped)
    less = 0
    for _ in range(400):
        left, right = (some_cost(prices, looped, random) for _ in range(2))
        assert scale.is_exact(left)
        if (scale.row(left) <= scale.row(right)).all():
            less += 1
            for _ in range(8):
                at = inside(prices, free, looped, random)
                assert value(left.work, at) <= value(right.work, at) * (1 + 1e-9)
                assert value(left.footprint, at) <= value(right.footprint, at) * (1 + 1e-9)
    assert less > 10


def test_what_is_less_for_all_sizes_is_less_at_some(prices):
    random = Random(1)
    scale = corners(prices, (0, 2), 2)
    both = 0
    for _ in range(300):
        left, right = (some_cost(prices, 2, random) for _ in range(2))
        if is_below(left.work, right.work) and is_below(left.footprint, right.footprint):
            both += 1
            assert (scale.row(left) <= scale.row(right) * (1 + 1e-9)).all()
    assert both > 5


def test_a_dim_that_no_grid_divides_is_as_long_as_it_is(prices):
    """64 rows of 8 are fewer than 1000 numbers, which no polynomial can know."""
    small = Cost(prices.work("matmul", 0b101, 0), ZERO)
    large = Cost(prices.work("matmul", 0b010, 0), ZERO)
    assert not is_below(small.work, large.work)
    scale = corners(prices, (), 0)
    assert (scale.row(small) <= scale.row(large)).all()
    scale = corners(prices, (1,), 0)
    assert not (scale.row(small) <= scale.row(large)).all()


def test_a_front_decides_by_corners_where_it_can_and_by_polynomials_elsewhere(prices):
    grid = prices.grid("some column")
    scale = corners(prices, (0,), 0)
    front = Front(scale, frozenset(), ZERO)
    work = prices.work("matmul", 0b011, 0)
    repeated = prices.work("matmul", 0b001, 0, power(grid))
    assert scale.is_exact(Cost(work, ZERO))
    assert not scale.is_exact(Cost(repeated, ZERO))
    assert front.offer(Cost(work, ZERO), frozenset(), "whole")
    assert front.offer(Cost(repeated, ZERO), frozenset(), "repeated")
    assert not front.offer(Cost(total((work, work)), ZERO), frozenset(), "twice")
    assert [m.payload for m in front.members] == ["whole", "repeated"]


def test_the_whole_of_the_work_is_at_one_corner(prices):
    scale = corners(prices, (0, 2), 2)
    cost = Cost(prices.work("matmul", 0b111, 2), ZERO)
    assert np.isclose(scale.row(cost)[scale.whole], math.prod(SIZES))
    assert SPREAD <= scale.whole < scale.count


def test_too_many_free_dims_are_not_listed_corner_by_corner():
    assert Box((2,) * 7, frozenset(range(6))).is_small
    assert not Box((2,) * 7, frozenset(range(7))).is_small
