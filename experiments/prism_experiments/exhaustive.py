"""Exhaustive records: every config of a small space, timed, to judge strategies by.

A space that `optimize` tunes has thousands of configs, too many to time each. `thinned` keeps a
seeded sample of every graph's counts, the same share of each graph, so that good configs are as
rare as in the whole. `measured` builds and checks them all in this process, then times them in
turns for several rounds; the median of its rounds is a config's time. Configs of one muGraph share
a kernel and its time.

A record is one JSON file that holds graphs, counts, times and what the cost model said when it was
made: a replay needs no compiler and no target, and gives the same on every machine.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prism.errors import KernelError, ParseError
from prism.ir import Program, format_program, format_sgraph, parse_program, parse_sgraph
from prism.protocols import Kernel, Target
from prism.record import Counts, Outcome, versions
from prism.scope import sizes_text
from prism.tune import Config, GraphSpace, Known, Space, build_space, carried, instantiate
from prism.tune.cases import prepare
from prism.tune.check import check, nan_filled
from prism.tune.instantiate import mu_identity
from prism.tune.timing import time_kernels

SCHEMA = "prism.exhaustive/1"

NANOSECONDS = 1e9
"""Times are kept in whole nanoseconds."""

Step = Callable[[int, int], None]
"""Called with (done, total) after every kernel that was built."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A config's time (None: it failed), and what the cost model said (infinite: refused)."""

    seconds: float | None
    estimate: float


@dataclass(frozen=True, slots=True)
class ExhaustiveRecord:
    """A space, and what is known of every config of it."""

    program: Program
    sizes: Counts
    dtype: str
    device: str
    versions: tuple[tuple[str, str], ...]
    space: Space
    trials: dict[Config, Measured]

    @property
    def name(self) -> str:
        """The program's name and its sizes, as in `rmsnorm n=8,d=1024,h=1024`."""
        return f"{self.program.name} {self.sizes_text}"

    @property
    def sizes_text(self) -> str:
        """The sizes that a user chooses, in the program's order."""
        sizes = dict(self.sizes)
        return sizes_text({name: sizes[name] for name in self.program.size_names})

    @property
    def best_s(self) -> float:
        """The time of the best config."""
        return min(trial.seconds for trial in self.trials.values() if trial.seconds is not None)

    def identity(self, config: Config) -> str:
        """Equal for configs that run the same."""
        graphs = {graph.graph_id: graph for graph in self.space.graphs}
        return mu_identity(instantiate(graphs[config.graph_id], config))

    def estimate(self, config: Config) -> float:
        """What strategies are given as the cost model."""
        return self.trials[config].estimate

    def estimated_by(self, target: Target) -> ExhaustiveRecord:
        """The same times with what a target's cost model says of the configs now."""
        graphs = {graph.graph_id: graph for graph in self.space.graphs}

        def estimate(config: Config) -> float:
            try:
                return target.estimate(instantiate(graphs[config.graph_id], config), self.dtype)
            except KernelError:
                return math.inf

        trials = {c: Measured(t.seconds, estimate(c)) for c, t in self.trials.items()}
        return replace(self, trials=trials)

    def save(self, path: Path) -> None:
        """Write the record."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "program": format_program(self.program),
            "sizes": dict(self.sizes),
            "dtype": self.dtype,
            "threads": self.space.threads,
            "device": self.device,
            "versions": dict(self.versions),
        }
        text = data["program"]
        graphs = [_graph_to_json(graph, self.trials, text) for graph in self.space.graphs]
        lines = ",\n".join(json.dumps(graph, separators=(",", ":")) for graph in graphs)
        head = json.dumps(data)[:-1]
        path.write_text(f'{head}, "graphs": [\n{lines}\n]}}\n', encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> ExhaustiveRecord:
        """Read what `save` wrote.

        Raises:
            ParseError: it is something else.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != SCHEMA:
            raise ParseError(f"{path} is not of schema {SCHEMA}")
        sizes = tuple(data["sizes"].items())
        trials: dict[Config, Measured] = {}
        graphs: list[GraphSpace] = []
        for found in data["graphs"]:
            graph = _graph_from_json(found, sizes, data["program"])
            graphs.append(graph)
            times = zip(found["seconds"], found["estimates"], strict=True)
            for index, (seconds, estimate) in enumerate(times):
                trials[graph.config(index)] = Measured(
                    None if seconds is None else seconds / NANOSECONDS,
                    math.inf if estimate is None else estimate / NANOSECONDS,
                )
        return cls(
            parse_program(data["program"]),
            sizes,
            data["dtype"],
            data["device"],
            tuple(data["versions"].items()),
            Space(tuple(graphs), threads=data["threads"]),
            trials,
        )


_PROGRAM = "PROGRAM\n"
"""Stands for the program's text, which every graph repeats."""


def _graph_to_json(
    graph: GraphSpace, trials: dict[Config, Measured], program: str
) -> dict[str, Any]:
    found = [trials[graph.config(i)] for i in range(len(graph))]
    return {
        "id": graph.graph_id,
        "graph": format_sgraph(graph.graph).replace(program, _PROGRAM),
        "pars": [[name for name, _ in kernel] for kernel in graph.counts[0]],
        "counts": [[n for kernel in counts for _, n in kernel] for counts in graph.counts],
        "schedules": dict(graph.schedules),
        "seconds": [None if t.seconds is None else _whole(t.seconds) for t in found],
        "estimates": [_whole(t.estimate) if math.isfinite(t.estimate) else None for t in found],
    }


def _whole(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _graph_from_json(data: dict[str, Any], sizes: Counts, program: str) -> GraphSpace:
    def named(flat: list[int]) -> tuple[Counts, ...]:
        left = iter(flat)
        return tuple(tuple((name, next(left)) for name in kernel) for kernel in data["pars"])

    schedules = tuple((name, tuple(choices)) for name, choices in data["schedules"].items())
    counts = tuple(named(flat) for flat in data["counts"])
    graph = parse_sgraph(data["graph"].replace(_PROGRAM, program))
    return GraphSpace(data["id"], graph, sizes, counts, schedules)


def thinned(space: Space, most: int, seed: int) -> Space:
    """A sample of about `most` configs, the same share of every graph and at least one of each."""
    rng = random.Random(seed)
    share = min(1.0, most / max(1, len(space)))
    graphs: list[GraphSpace] = []
    for graph in space.graphs:
        kept = rng.sample(range(len(graph.counts)), max(1, round(share * len(graph.counts))))
        counts = tuple(graph.counts[i] for i in sorted(kept))
        graphs.append(replace(graph, counts=counts))
    return replace(space, graphs=tuple(graphs))


def like(record: ExhaustiveRecord, sizes: dict[str, int], target: Target) -> Space:
    """The configs of a record carried over to other sizes: how much transfers shows only there.

    Two samples of their own would hardly have a config in common.
    """
    graphs = tuple((graph.graph_id, graph.graph) for graph in record.space.graphs)
    space = build_space(graphs, sizes, target)
    there = {graph.graph_id: graph for graph in record.space.graphs}
    kept: list[GraphSpace] = []
    for graph in space.graphs:
        configs = (
            carried(Known(graph, record.sizes, counts, ()))[0]
            for counts in there[graph.graph_id].counts
        )
        chosen = {config.par_sizes for config in configs}
        kept.append(replace(graph, counts=tuple(c for c in graph.counts if c in chosen)))
    return replace(space, graphs=tuple(kept))


def measured(  # noqa: PLR0913 - what is measured, and how
    program: Program,
    space: Space,
    target: Target,
    dtype: str,
    *,
    rounds: int,
    step: Step,
    before_timing: Callable[[], None] = lambda: None,
) -> ExhaustiveRecord:
    """Build, check and time every config of a space; wrong and refused ones count as failed."""
    sizes = dict(space.graphs[0].sizes)
    with tempfile.TemporaryDirectory(prefix="prism-exhaustive-") as folder:
        data = prepare(program, sizes, dtype, 0, Path(folder))
        kernels: dict[str, Kernel] = {}
        identities: dict[Config, str] = {}
        estimates: dict[Config, float] = {}
        for done, (config, graph) in enumerate(_configs(space), start=1):
            mu = instantiate(graph, config)
            identity = identities[config] = mu_identity(mu)
            try:
                estimates[config] = target.estimate(mu, dtype)
                if identity not in kernels:
                    source = target.emit(mu, dtype)
                    path = Path(folder) / f"kernel{done}.py"
                    path.write_text(source.text, encoding="utf-8")
                    kernel = target.load(path, source.meta)
                    if check(kernel, data).outcome is Outcome.OK:
                        kernels[identity] = kernel
            except KernelError:
                estimates.setdefault(config, math.inf)
            step(done, len(space))
        arrays = [np.array(array, order="C") for array in data.inputs()]
        references = data.references("drawn")
        outputs = nan_filled(references, dtype)  # shared: kernels run one after the other
        bound = [kernel.bind(arrays, outputs) for kernel in kernels.values()]
        before_timing()
        timings = time_kernels(bound, target.flush, rounds)
    seconds = {name: t.median_s for name, t in zip(kernels, timings, strict=True)}
    trials = {
        config: Measured(seconds.get(identity), estimates[config])
        for config, identity in identities.items()
    }
    return ExhaustiveRecord(
        program, tuple(sizes.items()), dtype, target.device().text, versions(), space, trials
    )


def _configs(space: Space) -> Iterator[tuple[Config, GraphSpace]]:
    for graph in space.graphs:
        yield from ((graph.config(i), graph) for i in range(len(graph)))
