"""An encoding is asked once per problem, and told what placement knows where it says it checks."""

from __future__ import annotations

import search_programs as programs

from prism.ir import Legality, MappingProblem
from prism.search.legality import MAX_COLUMNS, Judges, legality
from prism.search.mappings import Answers, Mappings
from prism.search.placement import REPLICATED
from prism.search.wiring import Arena
from prism_constraints.backtracking import BacktrackingEncoding
from prism_constraints.placement import PlacementEncoding

TIES = frozenset(
    {(("x", "d"), ("w", "d")), (("x", "n"), ("out0", "n")), (("w", "h"), ("out0", "h"))}
)
TURNED = frozenset((right, left) for left, right in TIES)


class Recording:
    """An encoding that remembers what it was asked."""

    def __init__(self, encoding):
        self.asked = []
        self.encoding = encoding
        self.name = encoding.name

    def enumerate(self, problem, *, limit=None):
        self.asked.append(problem)
        return self.encoding.enumerate(problem, limit=limit)


class StrongerRecording(Recording):
    check = "placement"

    def keeps(self, problem, assignment):
        return self.encoding.keeps(problem, assignment)


def matmul():
    """The op DAG of a product, x[n,d] @ w[d,h]."""
    arena = Arena(programs.trace(programs.matmul))
    x, w = (arena.leaf(i) for i in arena.program.inputs)
    root = arena.apply("matmul", (x, w), arena.dim_index("d"))
    return arena, arena.wired((root,), 1, frozenset())


def test_a_problem_is_solved_once_however_its_ties_are_written():
    arena, wired = matmul()
    encoding = Recording(BacktrackingEncoding())
    asked = Answers(encoding)
    mappings = Mappings(asked, arena)
    answers = [mappings.of(wired, ties, 2) for ties in (TIES, TURNED, TIES | TURNED, TIES)]
    assert len(encoding.asked) == 1
    assert all(answer is answers[0] for answer in answers)
    assert (asked.count.problems, asked.count.models) == (4, 1)
    assert asked.count.assignments == len(answers[0])


def test_op_dags_of_other_arenas_share_the_answer():
    encoding = Recording(BacktrackingEncoding())
    asked = Answers(encoding)
    for _ in range(2):
        arena, wired = matmul()
        Mappings(asked, arena).of(wired, TIES, 2)
    assert len(encoding.asked) == 1


def test_other_ties_and_other_grids_are_other_problems():
    arena, wired = matmul()
    encoding = Recording(BacktrackingEncoding())
    mappings = Mappings(Answers(encoding), arena)
    fewer = TIES - {(("x", "d"), ("w", "d"))}
    answers = {mappings.of(wired, *question) for question in ((TIES, 2), (TIES, 1), (fewer, 2))}
    assert len(answers) == len(encoding.asked) == 3


def test_an_encoding_that_checks_nothing_more_is_told_nothing():
    arena, wired = matmul()
    mappings = Mappings(Answers(Recording(BacktrackingEncoding())), arena)

    def never(_):
        raise AssertionError

    assert mappings.legality(wired, TIES, never, never) == Legality()


def test_a_stronger_encoding_is_told_which_columns_are_legal():
    arena, wired = matmul()
    encoding = StrongerRecording(PlacementEncoding())
    mappings = Mappings(Answers(encoding), arena)
    d = arena.dim_index("d")
    facts = mappings.legality(
        wired,
        TIES,
        lambda column: max(column.outputs) >= 0,  # an output is partitioned
        lambda loop: loop == (d, d),  # the loop is over d
    )
    n, h = {("x", "n"), ("out0", "n")}, {("w", "h"), ("out0", "h")}
    assert facts == Legality(
        frozenset({frozenset(n), frozenset(h)}), frozenset({frozenset({("x", "d"), ("w", "d")})})
    )
    found = mappings.of(wired, TIES, 2, facts)
    assert {dims.loop for dims in found} == {(d, d), (REPLICATED, REPLICATED)}
    assert len({dims.grid for dims in found}) == 1
    assert encoding.asked[0].legal == facts
    assert len(mappings.of(wired, TIES, 2)) > len(found)


def test_facts_about_a_kind_of_dim_that_is_not_there_make_no_difference():
    arena, wired = matmul()
    encoding = StrongerRecording(PlacementEncoding())
    mappings = Mappings(Answers(encoding), arena)
    loop = frozenset({frozenset({("x", "d"), ("w", "d")})})
    grid = frozenset({frozenset({("x", "n"), ("out0", "n")})})
    mappings.of(wired, TIES, 0, Legality(grid, loop))
    mappings.of(wired, TIES, 0, Legality(None, loop))
    assert len(encoding.asked) == 1


def test_too_many_columns_are_not_judged(monkeypatch):
    arena, wired = matmul()
    mappings = Mappings(Answers(Recording(BacktrackingEncoding())), arena)
    problem = mappings._problem(wired, TIES, ())
    asked = []
    judges = Judges(grid=lambda c: bool(asked.append(c)), loop=lambda c: bool(asked.append(c)))
    assert isinstance(problem, MappingProblem)
    assert legality(problem, judges) == Legality(frozenset(), frozenset())
    assert frozenset() not in asked
    assert 0 < len(asked) < MAX_COLUMNS
    monkeypatch.setattr("prism.search.legality.MAX_COLUMNS", 2)
    asked.clear()
    assert legality(problem, judges) == Legality(None, None)
    assert not asked
