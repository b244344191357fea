"""What the trials of one cell say together: outcomes, first failures, predicted against measured.

The record file itself is kept beside the results; this is what a reader wants at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from prism.artifact import Artifact
from prism.errors import PrismError
from prism.protocols import Target
from prism.record import Outcome, Trial
from prism.tune import Config, GraphSpace, instantiate

Predict = Callable[[Trial], float | None]


def summarize(trials: Iterable[Trial], predict: Predict | None = None) -> dict[str, Any]:
    """Trials as the results file has them (`results.TRIALS`)."""
    known = list(trials)
    first: dict[str, str] = {}
    for trial in known:
        if trial.outcome is not Outcome.OK:
            first.setdefault(trial.outcome.value, trial.detail)
    return {
        "outcomes": dict(Counter(trial.outcome.value for trial in known)),
        "first_details": first,
        "timed": [
            {
                "graph": trial.graph_id,
                "par_sizes": [dict(counts) for counts in trial.key.par_sizes],
                "schedule": dict(trial.key.schedule),
                "median_s": trial.median_s,
                "min_s": trial.min_s,
                "predicted_s": trial.predicted_s or (None if predict is None else predict(trial)),
            }
            for trial in known
            if trial.outcome is Outcome.OK
        ],
    }


def predictor(artifact: Artifact, target: Target) -> Predict:
    """The target's cost model on trials of an artifact."""
    graphs = {found.id: found.graph for found in artifact.graphs}

    def predict(trial: Trial) -> float | None:
        graph = graphs.get(trial.graph_id)
        if graph is None:
            return None
        space = GraphSpace(trial.graph_id, graph, trial.key.sizes, (), ())
        config = Config(trial.graph_id, trial.key.par_sizes, trial.key.schedule)
        try:
            return target.estimate(instantiate(space, config), trial.key.dtype)
        except PrismError:
            return None

    return predict
