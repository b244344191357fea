"""The forward generator: complete graphs become candidates, mapped as the cone's are.

Mappings, legal grids and budgets are those of `prism.search.mapper`, so that both generators list
the same candidates. Where maps are concrete a candidate is listed only if its graph was grown under
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product, takewhile
from typing import Any

from prism.errors import UsageError
from prism.search.cone import Cone
from prism.search.forward.complete import Complete, FixedWalk, Seen, Structure, structure_of
from prism.search.forward.concrete import Along, Choice, choices, chosen_of
from prism.search.forward.growth import Growth
from prism.search.forward.spread import MAX_MAPS, Spread
from prism.search.forward.values import ValueId, Values
from prism.search.generate import Materials
from prism.search.grid import leaf_state
from prism.search.mapper import Late
from prism.search.mappings import MappedDims
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Matched, Saved
from prism.search.ranking import Ranked
from prism.search.stages import Stage
from prism.search.wiring import Wired, dims_in

MAX_STATES = 10**9
MAX_TENSORS = 200_000
"""Without the expression pruner there is no end of tensors."""

GROWTH_SHARE = 0.8
"""The part of the generator's time that ends the growth; the rest is for mapping."""

GRAPHS_PER_LOOK = 16
"""How many partial graphs are grown between looks at the clock."""


class ForwardGenerator:
    """Grows partial graphs from the inputs; `concrete` kinds of map are enumerated meanwhile."""

    def __init__(self, materials: Materials, concrete: Sequence[str] = ()) -> None:
        self.mapper = materials.mapper()
        self._materials = materials
        self._arena = materials.arena
        self._gate = materials.gate
        self._limits = materials.limits
        self._cuts = materials.cuts
        self._concrete = tuple(concrete)
        self._spread = Spread(self._arena, self._gate, self.mapper.rules)
        self._map_number = {states: i for i, states in enumerate(self._spread.maps)}
        self._dropping: dict[tuple[State, State], str | None] = {}
        self._counters: dict[str, Any] = {"states": 0, "dags": 0}
        outputs = [(REPLICATED, *dims_in(mask)) for mask in self._output_dims()]
        self._output_maps: tuple[Along, ...] = tuple(product(*outputs))
        if self._spread.is_off and concrete:
            raise UsageError(
                f"--concrete {','.join(concrete)}: the inputs have more than {MAX_MAPS} maps along "
                "one dim; leave the maps symbolic"
            )

    def counters(self) -> dict[str, Any]:
        """What it did."""
        return {**self._counters, "concrete": list(self._concrete)}

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""
        values = Values(self._arena, self._gate, cone, self._spread)
        self.mapper.own = values.own
        complete = Complete(self._arena, self._gate, cone, values)
        growth = Growth(self._materials, values, is_repeated=bool(self._concrete))
        try:
            self._grow(growth, complete, values, is_late, progress)
        finally:
            values.settle()
            growth.settle()
            self._counters |= {
                "states": growth.count.states,
                "dags": len(complete.found),
                "partial_graphs": growth.count.graphs,
                "structures": complete.count,
                "tensors": len(values.values),
            }
            if values.malformed:
                self._cuts.add("malformed", count=values.malformed)
        return self._mapped(complete, is_late)

    def instead(self, unproved: Iterable[Ranked]) -> list[Ranked]:  # noqa: ARG002 - the protocol's
        """Nothing: all candidates were listed."""
        return []

    # -------------------------------------------------------------------------------- growth

    def _grow(
        self,
        growth: Growth,
        complete: Complete,
        values: Values,
        is_late: Late,
        progress: Callable[[int], None],
    ) -> None:
        """Grow every graph, once for each choice of concrete maps."""
        looked = 0
        maps_of = (self._spread.maps, self._output_maps, self._limits.grid_dims)
        for choice in choices(self._concrete, *maps_of):
            number = self._map_number
            maps = self._spread.all if choice.fmap is None else 1 << number[choice.fmap]
            grid = tuple(number[row] for row in choice.imap or ())
            for graph in growth.graphs(maps, grid):
                for outputs in growth.outputs(graph):
                    if self._is_saved(values, outputs, choice):
                        complete.add(graph, outputs, maps, choice)
                looked += 1
                if looked % GRAPHS_PER_LOOK == 0:
                    progress(growth.count.states)
                    if self._is_enough(growth, values, is_late):
                        return

    def _is_enough(self, growth: Growth, values: Values, is_late: Late) -> bool:
        """Whether a budget ends the growth."""
        if is_late(GROWTH_SHARE):
            states = growth.count.states
            self._cuts.out_of_time(f"the growth was stopped after {states} states")
        elif growth.count.states > MAX_STATES:
            self._cuts.add("states", f"states: the growth was stopped after {MAX_STATES}")
        elif len(values.values) > MAX_TENSORS:
            self._cuts.add("tensors", f"tensors: the growth was stopped after {MAX_TENSORS}")
        else:
            return False
        return True

    def _is_saved(self, values: Values, outputs: tuple[ValueId, ...], choice: Choice) -> bool:
        """Whether the outputs end up as mapped, where that is known."""
        if choice.imap is None or choice.omap is None:
            return True
        roots = [values.values[v].term for v in outputs]
        for inputs, mapped in zip(choice.imap, choice.omap, strict=True):
            number = self._map_number[inputs]
            for root, dim in zip(roots, mapped, strict=True):
                states = self._spread.row(root).states[number]
                if not any(self._keeps_saved(state, dim) for state in sorted(states)):
                    return False
        return True

    def _keeps_saved(self, state: State, mapped: State) -> bool:
        """What the pruners say of a saver; asked once."""
        key = (state, mapped)
        if key in self._dropping:
            self._gate.again(self._dropping[key], 1)
        else:
            self._dropping[key] = self._gate.dropping(Saved(state, mapped))
        return self._dropping[key] is None

    def _output_dims(self) -> Iterator[int]:
        dims = self._arena.program.tensor_dims()
        for output in self._arena.program.outputs:
            yield self._arena.mask(tuple(dims[output.tensor]))

    # ------------------------------------------------------------------------------- mapping

    def _mapped(self, complete: Complete, is_late: Late) -> list[Ranked]:
        """The candidates of every complete graph, op DAG by op DAG."""
        out: list[Ranked] = []
        for wired, structures in complete.found.items():
            if not self._gate.keeps(Matched(self._arena, wired)):
                continue
            # late, not even the rest of this one
            out.extend(takewhile(lambda _: not is_late(1.0), self._placed(wired, structures)))
            if len(out) >= self._limits.candidates:
                self._cuts.add("candidates", f"candidates: stopped after {len(out)}")
                break
            if is_late(1.0):
                self._cuts.out_of_time("not every op DAG was mapped")
                break
        return sorted(out, key=lambda found: found.rank)

    def _placed(self, wired: Wired, structures: Mapping[Structure, Seen]) -> Iterator[Ranked]:
        """The candidates of one op DAG."""

        def is_grown(dims: MappedDims, stage: Stage | None) -> bool:
            if not self._concrete:
                return True
            chosen = chosen_of(self._concrete, dims)
            return chosen in structures[structure_of(stage)].choices

        return self.mapper.candidates(
            wired, cache(lambda loop: self._stages(wired, structures, loop)), is_grown
        )

    def _stages(
        self, wired: Wired, structures: Mapping[Structure, Seen], loop: tuple[State, ...]
    ) -> tuple[Stage | None, ...]:
        """The structures that are loop stages under a map of the inputs along the loop."""
        if all(state == REPLICATED for state in loop):
            return (None,) if Structure() in structures else ()
        terms = self._arena.terms
        leaves = {t: leaf_state(terms[t].inputs, loop) for t in wired.leaves}
        is_left = 1 if self._spread.is_off else 1 << self._map_number[loop]
        return tuple(
            stage
            for structure, seen in structures.items()
            if seen.maps & is_left
            for stage in FixedWalk(
                self._arena, wired, leaves, self.mapper.rules, structure
            ).stages()
        )
