"""Wrong candidates made from right ones: the table of the kinds of mutation.

A kind takes a right sGraph to graphs that differ from it in one thing. Some are malformed
(`check_sgraph`), some compute the same by luck; the store keeps those for which numbers say that
they do not (`mutants_store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from verify import mutants_guards as guards
from verify import mutants_operators as operators
from verify import mutants_places as places

from prism.errors import GraphError
from prism.ir import SGraph, check_sgraph, format_sgraph

Edit = Callable[[SGraph], Iterator[SGraph]]

KINDS: Mapping[str, Edit] = {
    "missing map": places.missing_map,
    "wrong map": places.wrong_map,
    "stage moved": places.stage_moved,
    "partial into function": places.partial_into_function,
    "missing reduction": places.missing_reduction,
    "doubled reduction": places.doubled_reduction,
    "swapped operands": operators.swapped_operands,
    "missing 1/n": operators.missing_size,
    "wrong dim": operators.wrong_dim,
    "wrong contraction": operators.wrong_contraction,
    "wrong constant": operators.wrong_constant,
    "broadcast guard": guards.broadcast_guard,
    "value guard": guards.value_guard,
    "shift guard": guards.shift_guard,
    "local size": operators.local_size,
}
"""By name, what was done. The guards are the conditions of axioms."""


def is_well_formed(graph: SGraph) -> bool:
    """Whether a graph obeys every rule of the IR."""
    try:
        check_sgraph(graph)
    except GraphError:
        return False
    return True


def made_from(graph: SGraph, kind: str) -> dict[str, SGraph]:
    """The mutants of one kind by their text, the graph itself not among them."""
    own = format_sgraph(graph)
    return {
        text: mutant
        for mutant in KINDS[kind](graph)
        if (text := text_of(mutant)) is not None and text != own
    }


def text_of(graph: SGraph) -> str | None:
    """The text form; None where not even that exists."""
    try:
        return format_sgraph(graph)
    except (GraphError, ValueError, KeyError, IndexError):
        return None
