"""The process of a stage: answers requests until its input ends.

A request is one JSON line, {"stage": NAME, ...}; the answers are any number of {"partial": {...}},
then {"done": {...}} or {"failed": "why"}.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from types import MappingProxyType

from prism.errors import one_line
from prism_experiments.gpu.channel import Channel

STAGES: Mapping[str, str] = MappingProxyType(
    {
        "environment": "prism_experiments.gpu.environment",
        "ready": "prism_experiments.gpu.ready",
        "cell": "prism_experiments.gpu.cell",
        "overhead": "prism_experiments.gpu.overhead",
    }
)
"""Stage -> the module whose `run(request, tell)` does it; imported when it is asked for."""


def main() -> None:
    """Serve the parent."""
    channel = Channel()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            module = importlib.import_module(STAGES[request["stage"]])
            done = module.run(request, lambda part: channel.send({"partial": part}))
        except Exception as error:  # whatever a library raises costs this request
            channel.send({"failed": one_line(error)})
        else:
            channel.send({"done": done})


if __name__ == "__main__":
    main()
