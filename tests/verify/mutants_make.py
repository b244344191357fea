"""Makes the store of mutants again, and says how many of each kind there are.

    PYTHONPATH=tests python -m verify.mutants_make                  # writes stored_mutants
    PYTHONPATH=tests python -m verify.mutants_make --tally NAME ..  # judges others, thousands

Right graphs come from the real search of every shipped workload: the program's own, one loop, a
loop in a loop, two kernels, blocks that stack. A mutant is kept when it is well formed, its values
fit together, so that the verifier judges it, and numbers refute it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from verify.mutants import KINDS, is_well_formed, made_from
from verify.mutants_store import (
    FOLDER,
    Family,
    Mutant,
    Witness,
    format_family,
    witness_of,
)

from prism.egraph import graph_terms, load_axioms
from prism.errors import GraphError
from prism.frontend import load_program
from prism.ir import Program, SGraph, format_sgraph, stack_dims
from prism.plugins import Group, installed
from prism.search import SearchOptions, program_graph, search
from prism.verify import Verdict, verify_graphs

OF_EACH_KIND = 17
SEED = 5


def workloads() -> list[str]:
    """The shipped ones."""
    found = installed(Group.WORKLOAD).items()
    return sorted(n for n, plugin in found if plugin.source.startswith("prism-"))


def right_graphs(program: Program, each: int, seed: int) -> list[SGraph]:
    """Some graphs that the search finds: the program's own, and up to `each` of every shape."""
    chance = Random(seed)
    limits = SearchOptions(max_graphs=100, budget_s=10.0)
    several = SearchOptions(max_graphs=300, budget_s=10.0, max_kernels=2)
    nests = SearchOptions(max_graphs=100, budget_s=10.0, loop_dims=2)
    flat = [g.graph for g in search(program, limits).graphs]
    nested = [g.graph for g in search(program, nests).graphs]
    plans = [g.graph for g in search(program, several).graphs]
    pools = (
        [g for g in flat if not g.kernels[0].loops],
        [g for g in flat if g.kernels[0].loops],
        [g for g in nested if len(g.kernels[0].loops) > 1],
        [g for g in plans if len(g.kernels) > 1 and not stack_dims(g)],
        [g for g in plans if stack_dims(g)],
    )
    drawn = [g for pool in pools for g in chance.sample(pool, min(each, len(pool)))]
    return list(dict.fromkeys([program_graph(program), *drawn]))


# --- mutants ------------------------------------------------------------------------------------


class Fate(StrEnum):
    """What is known of a mutant."""

    UNDRAWN = "not drawn"
    MALFORMED = "malformed"
    UNFIT = "does not fit"
    OPEN = "right or unknown"
    WRONG = "wrong"


JUDGED = (Fate.OPEN, Fate.WRONG)
"""The axioms are asked: the values fit together."""


@dataclass(frozen=True)
class Made:
    """A mutant of one of a workload's right graphs, and what is known of it."""

    workload: str
    kind: str
    right: SGraph
    graph: SGraph
    fate: Fate
    witness: Witness | None


def fate_of(graph: SGraph) -> Fate | None:
    """Why the axioms are not even asked; None where they are."""
    if not is_well_formed(graph):
        return Fate.MALFORMED
    try:
        graph_terms(graph)
    except GraphError:
        return Fate.UNFIT
    return None


def mutants(workload: str, *, each: int, most: int, seed: int) -> list[Made]:
    """The mutants of each kind of the workload's graphs; at most so many of each are judged."""
    _, program = load_program(workload)
    chance = Random(seed)
    out, seen = [], set()
    for right in right_graphs(program, each, seed):
        for kind in KINDS:
            left = most
            texts = made_from(right, kind)
            for text in chance.sample(sorted(texts), len(texts)):
                if text not in seen:
                    seen.add(text)
                    fate, witness = fate_of(texts[text]) if left else Fate.UNDRAWN, None
                    if fate is None:
                        left -= 1
                        witness = witness_of(texts[text])
                        fate = Fate.WRONG if witness else Fate.OPEN
                    out.append(Made(workload, kind, right, texts[text], fate, witness))
    return out


def chosen(pools: dict[str, list[Made]], chance: Random) -> dict[str, list[Made]]:
    """About `OF_EACH_KIND` wrong mutants of each kind, spread over the workloads."""
    kept = {workload: [] for workload in pools}
    for kind in KINDS:
        left = {
            workload: chance.sample(own, len(own))
            for workload, made in pools.items()
            if (own := [m for m in made if m.kind == kind and _is_kept(m)])
        }
        count = 0
        while count < OF_EACH_KIND and any(left.values()):
            for workload in chance.sample(sorted(left), len(left)):
                if left[workload] and count < OF_EACH_KIND:
                    kept[workload].append(left[workload].pop())
                    count += 1
    return kept


def _is_kept(made: Made) -> bool:
    witness = made.witness
    return witness is not None and (witness.is_numeric or witness.is_clash)


def family(workload: str, kept: list[Made]) -> Family:
    """The file of a workload: the right graphs that are needed, the mutants of each."""
    _, program = load_program(workload)
    right = list(dict.fromkeys(m.right for m in kept))
    of = {graph: str(k) for k, graph in enumerate(right, 1)}
    number = Counter()
    out = []
    for made in sorted(kept, key=lambda m: right.index(m.right)):
        number[made.right] += 1
        name = f"{of[made.right]}.{number[made.right]}"
        out.append(Mutant(name, made.kind, made.graph, made.witness))
    return Family(program, {name: graph for graph, name in of.items()}, tuple(out))


# --- what to run --------------------------------------------------------------------------------


def write() -> None:
    """Make the store."""
    pools = {w: mutants(w, each=3, most=8, seed=SEED) for w in workloads()}
    kept = chosen(pools, Random(SEED))
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for workload, made in kept.items():
        text = format_family(family(workload, made))
        (FOLDER / f"{workload}.txt").write_text(text, encoding="utf-8")
    report(Counter((m.kind, "stored") for made in kept.values() for m in made), ("stored",))


def tally(names: list[str]) -> None:
    """Judge mutants of other graphs than those in the store."""
    axioms = load_axioms()
    counts = Counter()
    start = time.monotonic()
    for workload in names:
        made = mutants(workload, each=2, most=6, seed=SEED + 1)
        judged = [m for m in made if m.fate in JUDGED]
        verdicts = verify_graphs(judged[0].graph.program, [m.graph for m in judged], axioms)
        counts.update((m.kind, m.fate) for m in made)
        for one, verdict in zip(judged, verdicts, strict=True):
            if verdict is Verdict.PROVED:
                counts[one.kind, f"{one.fate}, proved"] += 1
                if one.witness is not None:
                    say(f"PROVED, but {one.witness}\n{format_sgraph(one.graph)}")
    report(counts, (*Fate, *(f"{fate}, proved" for fate in JUDGED)))
    say(f"{time.monotonic() - start:.0f} s")


def report(counts: Counter, columns: tuple[str, ...]) -> None:
    """A table of counts by kind."""
    say(" | ".join(["kind", *columns]))
    for kind in KINDS:
        say(" | ".join([kind, *(str(counts[kind, c]) for c in columns)]))
    say(" | ".join(["all", *(str(sum(counts[k, c] for k in KINDS)) for c in columns)]))


def say(text: str) -> None:
    """One line of the answer."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tally"]:
        tally(sys.argv[2:] or workloads())
    else:
        write()
