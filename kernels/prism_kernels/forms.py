"""Chooses among the range-safe forms of a graph: the one that leaves fewest exponentials bare.

An exp that is summed over several axes may have its reference over all of them, which is what a
softmax over two axes needs, or over one, which is what a softmax of rows that is then pooled over
rows needs. `range_safe` makes the form for a choice, `guards` judges it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from prism.errors import KernelError
from prism.ir import DataDim
from prism_kernels.carried import Carried, Memory, without_unread
from prism_kernels.guards import OwnValues, look
from prism_kernels.joined import joined
from prism_kernels.range_safe import Exp, RangeSafe
from prism_kernels.sums import Sums
from prism_kernels.tile import Accumulate, Lowered, Map, TileProgram

_MOST_CHOICES = 16


def in_range(plain: Lowered, sizes: Mapping[DataDim, int], own: OwnValues) -> Lowered:
    """The tile programs of a graph with exponentials that stay in range where its program's do.

    Raises:
        KernelError: one leaves it in every form; the message says why.
    """
    faults: list[str] = []
    usable: list[tuple[int, Lowered]] = []
    for form in _safe_forms(plain):
        if form is plain and usable:
            break  # it takes each exponential bare that another form takes bare
        guarded = look(joined(form.programs, dict(sizes)), own)
        fault = _divided_by_running(form) or guarded.fault
        if fault is not None:
            faults.append(fault)
        elif not guarded.bare:
            return form
        else:
            usable.append((guarded.bare, form))
    if not usable:
        raise KernelError(faults[0])
    return min(usable, key=lambda pair: pair[0])[1]


def _divided_by_running(form: Lowered) -> str | None:
    """Why a running reference cannot be followed: a quotient by it grows as the reference does.

    Before the first iteration the reference is the lowest number, and the factor infinite.
    """
    for node in (node for program in form.programs for node in program.nodes):
        if isinstance(node, Accumulate) and any(c < 0 for _, c in node.scales):
            return "what is added up over the loop is divided by exponentials of other iterations"
    return None


def _safe_forms(plain: Lowered) -> Iterator[Lowered]:
    """The programs with every exp that is summed in range-safe form; then others.

    An exp summed over several axes has a reference over all of them in the first form. In others
    it has one over one of them, which does where sums over that axis are divided by first, or is
    plain. The last form are the programs as they stand.
    """
    exps = [
        (k, i)
        for k, program in enumerate(plain.programs)
        for i, n in enumerate(program.nodes)
        if isinstance(n, Map) and n.op == "exp"
    ]
    if exps:
        first, several = _rewritten(plain, {})
        yield first
        ways = [[(exp, over) for over in _ways(several.get(exp, frozenset()))] for exp in exps]
        for choice in islice(product(*ways), 1, _MOST_CHOICES):
            yield _rewritten(plain, dict(choice))[0]
    yield plain


def _ways(axes: frozenset[DataDim]) -> Iterator[frozenset[DataDim]]:
    """The axes that a reference may be over, of several: all, each, none."""
    yield axes
    if axes:
        yield from (frozenset({dim}) for dim in sorted(axes))
        yield frozenset()


def _rewritten(
    plain: Lowered, chosen: Mapping[Exp, frozenset[DataDim]]
) -> tuple[Lowered, dict[Exp, frozenset[DataDim]]]:
    """The range-safe programs for a choice of axes, and the axes of each exp to choose from."""
    sums, known = Sums(plain.programs), frozenset[str]()
    while True:
        carried = Carried({}, known)
        several: dict[Exp, frozenset[DataDim]] = {}
        programs: list[TileProgram] = []
        between = list(plain.between)
        for k, program in enumerate(plain.programs):
            step = RangeSafe(k, program, chosen, sums, Memory(program, carried, between))
            programs.append(step.run())
            several |= step.several
            between += step.memory.added
        if carried.plain == known:
            return without_unread(programs, plain.between, between), several
        known = carried.plain  # some tensors are needed as they are: store these so
