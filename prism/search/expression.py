"""Expression-guided pruning: a tensor can occur in a graph only if it lies in the cone (paper).

The walk goes backwards from the outputs, so what it meets is below them by construction; what is
left to decide is whether an operator's operands can be computed from the inputs at all. With the
pruner off such operators are chosen too and the walk goes on below them: the DAG is given up only
when the class that nothing computes comes up, or the operator budget ends.
"""

from __future__ import annotations

from prism.search.pruning import Offered, Partial


class ExpressionPruner:
    """Drops operators with an operand outside the cone."""

    name = "expression"

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None."""
        match partial:
            case Offered(operator=operator, is_computable=is_computable):
                if all(is_computable):
                    return None
                return f"{operator.op} reads a value that cannot be computed from the inputs"
            case _:
                return None
