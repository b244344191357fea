"""What a candidate's last answer makes of its trial: the outcome, and what is known by then."""

from __future__ import annotations

import math
from dataclasses import replace

from prism.record import Outcome, Trial
from prism.tune.check import CheckResult
from prism.tune.pool import Answer, Died, TimedOut
from prism.tune.timing import Timing
from prism.tune.worker import Built, Failed


def concluded(
    trial: Trial, answer: Answer, built: Built | None, checked: CheckResult | None
) -> Trial:
    """The trial as the answer ends it; what was built and checked before is kept."""
    if built is not None:
        trial = replace(
            trial, source=built.source, compile_s=built.compile_s,
            predicted_s=finite(built.predicted_s), facts=built.facts,
        )  # fmt: skip
    if checked is not None:
        trial = replace(trial, max_error=finite(checked.max_error))
    match answer:
        case (Timing() as timing,):
            ended = replace(trial, outcome=Outcome.OK, median_s=timing.median_s, min_s=timing.min_s)
        case Built() if trial.predicted_s is None:
            ended = replace(trial, detail="the target predicts no time for it")
        case Built():
            ended = replace(trial, outcome=Outcome.OK)
        case CheckResult(outcome=outcome, max_error=error, detail=detail):
            ended = replace(trial, outcome=outcome, max_error=finite(error), detail=detail)
        case Failed(outcome=outcome, detail=detail):
            ended = replace(trial, outcome=outcome, detail=detail)
        case TimedOut():
            late = Outcome.TIMEOUT_COMPILE if built is None else Outcome.TIMEOUT_RUN
            ended = replace(trial, outcome=late)
        case Died(last_words=words):
            ended = replace(trial, outcome=Outcome.CRASH, detail=words)
        case _:
            raise AssertionError(answer)
    return ended


def finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None
