"""An encoding's answers, checked before the search relies on them.

An encoding decides what is found, so the search takes nothing from it on trust: every assignment is
held against the constraints of `prism.ir.mapping`, in code that shares nothing with the encodings.
It costs little, once per mapping problem. What cannot be seen here is an assignment left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prism.errors import PluginError, PrismError
from prism.ir import Assignment, DataDim, Enumeration, Mapping, MappingProblem, MapVar
from prism.plugins import Group, load
from prism.protocols import Encoding, StrongerEncoding

ADVICE = "constraints/README.md lists the rules; --encoding backtracking follows them"
MAX_SHOWN = 160

Place = tuple[str, DataDim]


def load_encoding(spec: str) -> Encoding:
    """The encoding called `spec`, made and looked at.

    Raises:
        PluginError: there is none, it cannot be made, or it is no encoding.
    """
    factory = load(Group.ENCODING, spec)
    if not isinstance(factory, type):
        raise PluginError(
            f"encoding {spec!r} is {_kind(factory)}, not a class: name the class itself"
        )
    try:
        encoding: Encoding = factory()
    except (PrismError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(
            f"encoding {spec!r} cannot be made: {type(error).__name__}: {error}; "
            "its class must need no arguments"
        ) from error
    if not isinstance(getattr(encoding, "name", None), str):
        raise PluginError(f'encoding {spec!r} has no name: give its class a line `name = "..."`')
    if not callable(getattr(encoding, "enumerate", None)):
        raise PluginError(
            f"encoding {spec!r} has no method `enumerate(self, problem, *, limit=None)`"
        )
    return encoding


def checked_answer(encoding: Encoding, problem: MappingProblem, limit: int) -> Enumeration:
    """What the encoding answers.

    Raises:
        PluginError: it fails, or its answer breaks a rule.
    """
    where = f"encoding {encoding.name!r} on {_in_short(problem)}"
    try:
        answer = encoding.enumerate(problem, limit=limit)
    except (PrismError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(
            f"{where} fails: {type(error).__name__}: {error}; correct its `enumerate`"
        ) from error
    fault = _form_fault(answer, limit) or _first_fault(answer, problem)
    if fault is not None:
        raise PluginError(f"{where}: {fault}. {ADVICE}")
    if isinstance(encoding, StrongerEncoding):
        _check_strength(encoding, problem, answer, where)
    return answer


def _check_strength(
    encoding: StrongerEncoding, problem: MappingProblem, answer: Enumeration, where: str
) -> None:
    """Refuse an answer that an encoding's own check would not keep."""
    for number, assignment in enumerate(answer.assignments):
        try:
            is_kept = encoding.keeps(problem, assignment)
        except (PrismError, MemoryError):
            raise
        except Exception as error:
            raise PluginError(
                f"{where} fails: {type(error).__name__}: {error}; correct its `keeps`"
            ) from error
        if not is_kept:
            raise PluginError(
                f"{where}: assignment {number} ({_shown(assignment)}) fails the check that the "
                f"encoding declares, {encoding.check!r}; leave it out, or declare what is done"
            )


def _form_fault(answer: object, limit: int) -> str | None:
    """What is wrong with the answer as a whole, or None."""
    if not isinstance(answer, Enumeration):
        return f"`enumerate` returned {_kind(answer)}, not a prism.ir.Enumeration"
    # annotations promise nothing about a plug-in's values
    parts: tuple[object, object] = (answer.assignments, answer.complete)
    if not isinstance(parts[0], tuple):
        return f"`assignments` is {_kind(parts[0])}, not a tuple of prism.ir.Mapping"
    if not isinstance(parts[1], bool):
        return f"`complete` is {_kind(parts[1])}, not true or false"
    if len(parts[0]) > limit:
        return f"{len(parts[0])} assignments, more than the `limit` of {limit}"
    return None


def _first_fault(answer: Enumeration, problem: MappingProblem) -> str | None:
    """The first assignment that breaks a rule, and which, or None."""
    rules = _Rules(problem)
    last = -1
    for number, assignment in enumerate(answer.assignments):
        key = rules.key(assignment)
        broken = rules.broken(assignment) if key is None else None
        if key is not None:
            if key == last:
                broken = "it is there twice"
            elif key < last:
                broken = "it is out of order (`ordered` of prism_constraints.symmetry sorts)"
            last = key
        if broken is not None:
            return f"assignment {number} ({_shown(assignment)}) is wrong: {broken}"
    return None


class _Rules:
    """The constraints of one problem.

    An assignment is read as one binary number, its first variable the highest digit, and held
    against masks of such digits; only for a wrong one is it worked out what is wrong.
    """

    def __init__(self, problem: MappingProblem) -> None:
        variables = problem.variables()
        self._problem = problem
        self._digit = {v: 1 << (len(variables) - 1 - i) for i, v in enumerate(variables)}
        self._grid = [p.name for p in problem.grid]
        self._places = {
            place: i for i, place in enumerate((t.name, d) for t in problem.tensors for d in t.dims)
        }
        self._tied: dict[Place, list[Place]] = {}
        for one, other in sorted(problem.equal):
            self._tied.setdefault(one, []).append(other)
            self._tied.setdefault(other, []).append(one)
        by_par: dict[tuple[str, str], int] = {}
        by_place: dict[Place, int] = {}
        columns = dict.fromkeys(self._grid, 0)
        for v, digit in self._digit.items():
            by_par[v.tensor, v.par] = by_par.get((v.tensor, v.par), 0) | digit
            if v.par in columns:
                by_place[v.tensor, v.dim] = by_place.get((v.tensor, v.dim), 0) | digit
                columns[v.par] |= digit
        self._at_most_one = (*by_par.values(), *by_place.values())
        self._columns = tuple(columns.values())
        self._equal = tuple(
            digit | self._digit[twin]
            for v, digit in self._digit.items()
            for tensor, dim in self._tied.get((v.tensor, v.dim), ())
            if (twin := MapVar(tensor, dim, v.par)) in self._digit
        )

    def key(self, assignment: object) -> int | None:
        """The assignment's number, which sorts it; None where a rule is broken."""
        if not isinstance(assignment, Mapping) or type(assignment.true) is not frozenset:
            return None
        key = 0
        for v in assignment.true:
            digit = self._digit.get(v)
            if digit is None:
                return None
            key |= digit
        return key if self._holds(key) else None

    def _holds(self, key: int) -> bool:
        for mask in self._at_most_one:
            ours = key & mask
            if ours & (ours - 1):
                return False
        if any(key & both not in (0, both) for both in self._equal):
            return False
        before = len(self._digit) + 1
        for mask in self._columns:
            # the first place of each grid dim comes after that of its predecessor
            first = (key & mask).bit_length()
            if first and first >= before:
                return False
            if self._problem.must_partition and not first:
                return False
            before = first
        return True

    def broken(self, assignment: object) -> str:
        """The rule that an assignment breaks, where `key` finds none."""
        if not isinstance(assignment, Mapping):
            return f"it is {_kind(assignment)}, not a prism.ir.Mapping"
        true = assignment.true
        if type(true) is not frozenset:
            return f"its `true` is {_kind(true)}, not a frozenset of prism.ir.MapVar"
        unknown = sorted(str(v) for v in true if v not in self._digit)
        if unknown:
            return f"{unknown[0]} is no variable of the problem (`problem.variables()`)"
        return next(self._broken_rules(assignment), "it breaks a rule")

    def _broken_rules(self, assignment: Assignment) -> Iterator[str]:
        true = assignment.true
        for (tensor, par), count in Counter((v.tensor, v.par) for v in true).items():
            if count > 1:
                yield f"rule (1): {par} partitions {count} dims of {tensor}"
        on_grid = [v for v in true if v.par in self._grid]
        for (tensor, dim), count in Counter((v.tensor, v.dim) for v in on_grid).items():
            if count > 1:
                yield f"rule (2): {count} grid dims partition {dim} of {tensor}"
        yield from self._untied(true)
        first: dict[str, int] = {}
        for v in on_grid:
            place = self._places[v.tensor, v.dim]
            first[v.par] = min(place, first.get(v.par, place))
        unused = [p for p in self._grid if p not in first]
        if unused and self._problem.must_partition:
            yield f"rule must_partition: grid dim {unused[0]} partitions nothing"
        in_use = sorted(first, key=lambda p: first[p])
        if in_use != self._grid[: len(in_use)]:
            yield (
                "rule (4): with its grid dims renamed it reads smaller, as they are first used in "
                f"the order {' '.join(in_use)}, not {' '.join(self._grid[: len(in_use)])}"
            )

    def _untied(self, true: frozenset[MapVar]) -> Iterator[str]:
        for v in sorted(true):
            for tensor, dim in self._tied.get((v.tensor, v.dim), ()):
                other = MapVar(tensor, dim, v.par)
                if other in self._digit and other not in true:
                    yield f"rule (3): {v} and {other} are tied and must be equal"


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _shown(assignment: object) -> str:
    """An assignment in one short line, whatever it holds."""
    true = getattr(assignment, "true", None)
    is_set = isinstance(true, frozenset)
    shown = " ".join(sorted(map(str, true))) if is_set and true is not None else repr(assignment)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
    return shown or "nothing partitioned"


def _in_short(problem: MappingProblem) -> str:
    """The problem in one line, e.g. `X[n,d] out0[n] over x i`."""
    tensors = " ".join(f"{t.name}[{','.join(t.dims)}]" for t in problem.tensors)
    tensors = tensors if len(tensors) <= MAX_SHOWN else f"{tensors[:MAX_SHOWN]}..."
    return f"{tensors} over {' '.join(p.name for p in (*problem.grid, *problem.loops))}"
