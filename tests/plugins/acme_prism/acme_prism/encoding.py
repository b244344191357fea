"""An encoding that loses one assignment: the search must lose exactly that assignment's graphs."""

from __future__ import annotations

from prism import plugins
from prism.ir import Enumeration, MappingProblem


class OneShortEncoding:
    """All assignments but the first one of each problem."""

    name = "acme"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """The reference's assignments without the first."""
        reference = plugins.load(plugins.Group.ENCODING, "backtracking")()
        found = reference.enumerate(problem, limit=limit)
        return Enumeration(found.assignments[1:], found.complete)
