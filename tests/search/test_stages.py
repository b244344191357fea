"""Loop stages of an op DAG: what runs in the body, what after, what is accumulated."""

from __future__ import annotations

import pytest
import search_programs as programs

from prism.egraph import load_axioms, saturate
from prism.search.cone import build_cone
from prism.search.dags import Steps, dag_table, op_dags
from prism.search.grid import leaf_state
from prism.search.placement import AFTER, PARTIAL, PEAK, REPLICATED, PlacementPruner
from prism.search.pruning import Gate
from prism.search.stages import PlacementRules, StageLimits, StageWalk, accumulator_operators
from prism.search.wiring import Arena

NO_LIMITS = StageLimits(9)


def own_dag(function):
    program = programs.trace(function)
    cone = build_cone(program, saturate(program, load_axioms()))
    arena = Arena(program)
    dag = next(op_dags(dag_table(cone, lambda _: True), 99, Steps(999)))
    return arena, arena.wire(cone, dag)


def walk(function, limits=NO_LIMITS, **loop):
    """The stages of the program's own DAG; `loop` names the dim mapped in each input."""
    arena, wired = own_dag(function)
    states = tuple(arena.dim_index(loop.get(name)) for name in arena.input_names)
    leaves = {t: leaf_state(arena.terms[t].inputs, states) for t in wired.leaves}
    rules = PlacementRules(arena, Gate([PlacementPruner()]))
    walked = StageWalk(arena, wired, leaves, rules, limits)
    return arena, wired, list(walked.stages()), walked


def accumulated(arena, stage):
    return sorted((arena.terms[t].op, stage.state(t)) for t in stage.accumulated)


def test_a_contraction_over_the_loop_is_summed():
    arena, _, stages, _ = walk(programs.matmul, x="d", w="d")
    assert [accumulated(arena, s) for s in stages] == [[("matmul", PARTIAL)]]


def test_a_tile_of_the_output_is_stored_in_the_loop_without_accumulator():
    _, wired, stages, _ = walk(programs.matmul, x="n")
    (stage,) = stages
    assert stage.accumulated == ()
    assert stage.stored == wired.roots


def test_a_maximum_over_the_loop_has_an_accumulator_of_its_own():
    arena, _, stages, _ = walk(programs.row_max, x="d")
    assert [accumulated(arena, s) for s in stages] == [[("max", PEAK)]]


def test_a_partial_value_is_accumulated_at_once_or_flows_through_linear_operators():
    arena, _, stages, _ = walk(programs.scaled, x="d", w="d")
    assert [accumulated(arena, s) for s in stages] == [[("mul", PARTIAL)], [("matmul", PARTIAL)]]


def test_a_partial_value_does_not_enter_a_nonlinear_operator():
    arena, _, stages, _ = walk(programs.swiglu, x="d", v="d", w="d")
    assert [accumulated(arena, s) for s in stages] == [[("matmul", PARTIAL), ("matmul", PARTIAL)]]


def test_an_input_in_tiles_cannot_wait_for_the_end_of_the_loop():
    # the denominator is complete after the loop only; then w, read in tiles, is gone
    _, _, stages, _ = walk(programs.softmax_matmul, x="k", w="k")
    assert stages == []


def test_what_no_iteration_changes_is_hoisted_and_not_a_choice():
    arena, wired, stages, _ = walk(programs.softmax_matmul, w="h")
    (stage,) = stages
    by_op = {arena.terms[t].op: stage.state(t) for t in wired.nodes}
    assert by_op["exp"] == by_op["sum"] == by_op["div"] == REPLICATED


def test_a_useless_loop_is_no_stage():
    _, wired, stages, _ = walk(programs.two_outputs)
    assert stages == []
    assert len(wired.roots) == 2


def test_a_composite_is_staged_as_one_operator():
    arena, _, stages, _ = walk(programs.rmsnorm_paper, x="n")
    rms = {"square", "sum", "div", "sqrt"}
    for stage in stages:
        where = {
            arena.terms[t].op: stage.state(t) == AFTER
            for t in stage.places
            if arena.terms[t].op in rms and not arena.terms[t].dims & 2
        }
        assert len(set(where.values())) == 1


def test_both_outputs_are_accumulated():
    arena, _, stages, _ = walk(programs.two_outputs, x="d", w="d")
    kinds = [accumulated(arena, s) for s in stages]
    assert [("div", PARTIAL), ("matmul", PARTIAL)] in kinds
    assert [("matmul", PARTIAL), ("sum", PARTIAL)] in kinds


@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_limit_on_accumulators_is_kept_and_reported(most):
    _, _, stages, walked = walk(programs.softmax_matmul, StageLimits(most), x="n")
    assert max(len(s.accumulated) for s in stages) == most
    assert walked.is_over_accumulators == (most < 2)
    assert not walked.is_cut


def test_the_limit_on_stages_is_kept_and_reported():
    *_, stages, walked = walk(programs.softmax_matmul, StageLimits(9, stages=2), x="n")
    assert len(stages) == 2
    assert walked.is_cut


def test_a_sum_counts_with_its_accumulator():
    arena, _, stages, _ = walk(programs.exp_sum, x="d")
    (eager,) = [s for s in stages if accumulated(arena, s) == [("sum", PARTIAL)]]
    assert accumulator_operators(arena, eager.accumulated) == 0
    arena, _, (stage,), _ = walk(programs.matmul, x="d", w="d")
    assert accumulator_operators(arena, stage.accumulated) == 1
