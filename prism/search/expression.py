"""Expression-guided pruning: a tensor can occur in a graph only if it lies in the cone (paper).

The cone generator goes backwards from the outputs, so what it meets is below them by construction;
what is left to decide is whether an operator's operands can be computed from the inputs at all.
With the pruner off such operators are chosen too and the walk goes on below them: the DAG is given
up only when the class that nothing computes comes up, or the operator budget ends.

The forward generator goes from the inputs: here the pruner knows the e-class of each new tensor,
or drops it. With the pruner off everything that can be computed is tried, and the generator knows
no e-classes.

`SyntacticPruner` is the check without an e-graph, for comparison: a tensor must be one that the
program itself computes. It loses every graph that needs algebra.
"""

from __future__ import annotations

from collections.abc import Mapping

from prism.search.cone import Cone
from prism.search.macros import ClassId, Operator
from prism.search.pruning import Ended, Grown, Offered, Partial


class ExpressionPruner:
    """Drops operators with an operand, and tensors, outside the cone."""

    name = "expression"

    def __init__(self) -> None:
        self._cone: Cone | None = None
        self._class_of: Mapping[Operator, ClassId] = {}

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None."""
        match partial:
            case Offered(operator=operator, is_computable=is_computable):
                if not all(is_computable):
                    return f"{operator.op} reads a value that cannot be computed from the inputs"
            case Grown(op=op, cls=None):
                return f"nothing that is equal to the program has this {op} in it"
            case Ended(classes=classes, roots=roots):
                if classes != roots:
                    return "a tensor that has an output's dims, but is not equal to it"
            case _:
                pass
        return None

    def class_of(self, cone: Cone, operator: Operator) -> ClassId | None:
        """The class of an operator over classes of the cone."""
        if cone is not self._cone:
            self._cone = cone
            self._class_of = {o: cls for cls in cone.order for o in cone.choices[cls]}
        return self._class_of.get(operator)


class SyntacticPruner:
    """Drops what the program itself does not compute."""

    name = "syntactic"
    is_optional = True

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph leaves the program's own terms, or None."""
        match partial:
            case Offered(operator=operator, is_own=False):
                return f"the program has no such {operator.op}"
            case Grown(op=op, is_own=False):
                return f"the program has no such {op}"
            case Ended(is_own=False):
                return "a tensor that is not what the program returns"
            case _:
                return None
