"""The paper's constraints in Z3, all solutions in order (all-SAT).

The same Booleans m[T,d,p] and constraints as in `boolean`; (4) reads: a grid dim partitions a place
only where its predecessor partitions an earlier one. Z3 does not enumerate, so the solutions are
walked like a tree: the variables are decided in order, false first, and Z3 is asked whether the
other value can still be completed. Each answer comes with a solution, which saves the questions it
answers itself: some three for each solution in all. To forbid each solution by a clause instead is
twice as fast on small problems, but meets them in no order, and a limit needs the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import z3

from prism.ir import Enumeration, Mapping, MappingProblem, MapVar, Place
from prism_constraints.symmetry import places

Variables = dict[MapVar, z3.BoolRef]


class Z3Encoding:
    """Mapping variables as Booleans of Z3, named `m[T,d,p]`."""

    name = "z3"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        walk = _AllSat(problem)
        found = tuple(islice(walk.solutions(), None if limit is None else limit + 1))
        is_whole = limit is None or len(found) <= limit
        return Enumeration(found[:limit], complete=is_whole and not walk.gave_up)


def build_model(
    problem: MappingProblem, context: z3.Context | None = None
) -> tuple[z3.Solver, Variables]:
    """A Z3 solver that holds the constraints of a mapping problem, and its variables.

    In a context that holds other terms Z3 may write the literals of a clause in another order.
    """
    # one incremental engine: scopes come and go without the preprocessing of `z3.Solver`
    solver = z3.SimpleSolver(ctx=context)
    solver.set("random_seed", 0)
    # Ctrl-C is the search's to answer, with what it has proved so far
    solver.set("ctrl_c", False)  # noqa: FBT003 - Z3's way to set a parameter
    variables = {v: z3.Bool(str(v), context) for v in problem.variables()}
    for clause in (
        *_at_most_one(problem, variables),
        *_other_rules(problem, variables, solver.ctx),
    ):
        solver.add(clause)
    return solver, variables


def _at_most_one(problem: MappingProblem, variables: Variables) -> Iterator[z3.BoolRef]:
    """(1) for every T, p: at most one d; (2) for every T, d: at most one grid dim."""
    by_par: dict[tuple[str, str], list[z3.BoolRef]] = {}
    by_place: dict[Place, list[z3.BoolRef]] = {}
    grid = {p.name for p in problem.grid}
    for v, literal in variables.items():
        by_par.setdefault((v.tensor, v.par), []).append(literal)
        if v.par in grid:
            by_place.setdefault((v.tensor, v.dim), []).append(literal)
    for literals in (*by_par.values(), *by_place.values()):
        if len(literals) > 1:
            yield z3.AtMost(*literals, 1)


def _other_rules(
    problem: MappingProblem, variables: Variables, context: z3.Context
) -> Iterator[z3.BoolRef]:
    """(3), (4), and that grid dims are used."""
    # (3) matched dims are mapped alike; along the loop only where both can be
    for (t, d), (u, e) in sorted(problem.equal):
        for p in (*problem.grid, *problem.loops):
            left, right = MapVar(t, d, p.name), MapVar(u, e, p.name)
            if left in variables and right in variables:
                yield variables[left] == variables[right]
    # (4) a grid dim is first used after its predecessor is
    columns = [[variables[MapVar(t, d, p.name)] for t, d in places(problem)] for p in problem.grid]
    for earlier, later in pairwise(columns):
        for i, literal in enumerate(later):
            yield z3.Or(z3.Not(literal), *earlier[:i])
    if problem.must_partition:
        # the context is named for a column without places, which can be in no use
        yield from (z3.Or(*column, context) for column in columns)


class _AllSat:
    """One walk: the solver, and the groups of equal variables to decide."""

    def __init__(self, problem: MappingProblem) -> None:
        self.gave_up = False
        """Whether Z3 left a question open; solutions may be missing then."""
        self._solver, variables = build_model(problem)
        self._tied = _tied(problem)
        self._literals = [variables[v] for v in self._tied]
        self._negated = [z3.Not(v) for v in self._literals]
        self._values: list[bool] = []
        """Of the groups, in the solution that Z3 found last."""
        # read as one term: a call of Z3 for each variable costs more than the solving
        zero, one = (z3.BitVecVal(bit, 1, self._solver.ctx) for bit in (0, 1))
        self._number = z3.Concat(zero, *(z3.If(v, one, zero) for v in self._literals), zero)

    def solutions(self) -> Iterator[Mapping]:
        """Every solution, in order."""
        decided: list[bool] = []
        """One scope of the solver for each."""
        is_open = self._is_sat()
        while is_open:
            while len(decided) < len(self._literals):
                decided.append(self._smallest(len(decided)))
            yield self._mapping(decided)
            is_open = self._go_on(decided)

    def _smallest(self, i: int) -> bool:
        """Decide group i in a new scope: false, unless what is decided forbids it."""
        if not self._values[i]:
            self._open_scope(i, value=False)
            return False
        if self._can_be(i, value=False):
            return False
        self._open_scope(i, value=True)
        return True

    def _go_on(self, decided: list[bool]) -> bool:
        """Make the last false one true that can be; false where the walk is over."""
        while decided:
            self._solver.pop()
            if not decided.pop() and self._can_be(len(decided), value=True):
                decided.append(True)
                return True
        return False

    def _can_be(self, i: int, *, value: bool) -> bool:
        """Whether group i can have a value; if so the scope that says so stays open."""
        self._open_scope(i, value=value)
        if self._is_sat():
            return True
        self._solver.pop()
        return False

    def _open_scope(self, i: int, *, value: bool) -> None:
        self._solver.push()
        self._solver.add((self._literals if value else self._negated)[i])

    def _is_sat(self) -> bool:
        status = self._solver.check()
        if status == z3.sat:
            # a variable that no constraint mentions counts as false
            number = self._solver.model().eval(self._number, model_completion=True).as_long()
            # between the two bits that only fill up
            self._values = [bit == "1" for bit in f"{number:0{self._number.size()}b}"[1:-1]]
        self.gave_up = self.gave_up or status == z3.unknown
        return bool(status == z3.sat)

    def _mapping(self, decided: list[bool]) -> Mapping:
        groups = zip(self._tied.values(), decided, strict=True)
        return Mapping(frozenset(v for tied, value in groups if value for v in tied))


def _tied(problem: MappingProblem) -> dict[MapVar, list[MapVar]]:
    """Variables that are always equal, by the first of them, in the problem's order."""
    tied: dict[MapVar, list[MapVar]] = {}
    for par in (*problem.grid, *problem.loops):
        for group in problem.groups(par.kind):
            members = [MapVar(t, d, par.name) for t, d in group]
            tied[members[0]] = members
    return {v: tied[v] for v in problem.variables() if v in tied}
