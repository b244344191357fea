"""The models of the encodings that use a solver, as the solver prints them."""

from __future__ import annotations

import re

import pytest
import z3
from mapping_problems import NAMED, WITH_FACTS

from prism_constraints import boolean, integer, placement, z3_allsat

PROBLEMS = ["rmsnorm-2-loop", "gated-1-loop", "attention-3-noloop"]


@pytest.mark.parametrize("module", [boolean, integer], ids=["boolean", "integer"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_model_reads_as_the_paper_prints_it(module, name, golden):
    model, _ = module.build_model(NAMED[name])
    golden(f"encodings/{module.__name__.split('.')[-1]}-{name}", str(model.proto))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_model_of_placement_adds_a_table_of_legal_columns(name, golden):
    model, _ = placement.build_model(WITH_FACTS[name])
    plain, _ = boolean.build_model(WITH_FACTS[name])
    tables = [c.table for c in model.proto.constraints if c.has_table()]
    pars = [*WITH_FACTS[name].grid, *WITH_FACTS[name].loops]
    assert len(tables) == len(pars)
    assert len(model.proto.constraints) == len(plain.proto.constraints) + len(pars)
    golden(f"encodings/placement-{name}", str(model.proto))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_model_of_z3_names_the_same_variables(name, golden):
    solver, variables = z3_allsat.build_model(NAMED[name], z3.Context())
    text = solver.sexpr()
    assert set(re.findall(r"declare-fun \|(.*?)\|", text)) == set(map(str, variables))
    golden(f"encodings/z3-{name}", text)


@pytest.mark.parametrize("module", [boolean, integer, placement])
def test_variables_are_called_as_in_the_paper(module):
    model, variables = module.build_model(NAMED["rmsnorm-2-loop"])
    names = {model.proto.variables[v.index].name for v in variables.values()}
    assert names == {str(v) for v in NAMED["rmsnorm-2-loop"].variables()}
    assert "m[X,n,x]" in names
