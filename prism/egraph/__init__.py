"""The e-graph: axiom sets, terms, saturation. The only package that calls egglog."""

from __future__ import annotations

from prism.egraph.axiom import Axiom, AxiomFile
from prism.egraph.axioms import AxiomSet, load_axioms, make_axiom_set
from prism.egraph.bank import MAX_DATA_DIMS, PARS_PER_KERNEL, TermBank, TermId
from prism.egraph.saturate import GENERATION_LIMITS, ENode, Saturation, saturate
from prism.egraph.session import Limits, Session
from prism.egraph.signature import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    PAR_RULES,
    RULESETS,
    Sort,
    constructors,
)
from prism.egraph.terms import (
    GraphTerms,
    build_program,
    declare_sizes,
    graph_terms,
    new_bank,
    operator_term,
    program_terms,
)

__all__ = [
    "ALGEBRA",
    "ALGEBRA_VERIFY",
    "GENERATION_LIMITS",
    "MAX_DATA_DIMS",
    "PARS_PER_KERNEL",
    "PAR_RULES",
    "RULESETS",
    "Axiom",
    "AxiomFile",
    "AxiomSet",
    "ENode",
    "GraphTerms",
    "Limits",
    "Saturation",
    "Session",
    "Sort",
    "TermBank",
    "TermId",
    "build_program",
    "constructors",
    "declare_sizes",
    "graph_terms",
    "load_axioms",
    "make_axiom_set",
    "new_bank",
    "operator_term",
    "program_terms",
    "saturate",
]
