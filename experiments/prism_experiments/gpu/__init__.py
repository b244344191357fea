"""The GPU session: one bundle made here, one script run on a machine with a GPU.

    prepare     here: wheel, search artifacts, plan, tests -> a folder under 64 MiB
    run.py      there: installs the wheel in a private folder and starts `session`
    session     the stages in order, each a process of its own with a time limit
    child       that process: `environment`, `cell` (tuning and rivals), `overhead`
    gputests    tests/gpu under pytest, or under `fallback` where there is none
    results     the JSON they fill; `show` prints it

What happens there is written down after every step, so that nothing but the step under way is lost
to a crash, a hang, or the end of the time.
"""

from __future__ import annotations
