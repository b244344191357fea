"""Whether the machine is ours: what the CPUs do while nothing of the benchmark runs.

The load average will not do: tuning, a moment ago, was our own load.
"""

from __future__ import annotations

import time
from pathlib import Path

STAT = Path("/proc/stat")
WATCHED_S = 0.5
_IDLE = (3, 4)
"""Idle and waiting for a disk, among the numbers of a line of /proc/stat."""
_COUNTED = 8
"""The rest counts a guest's time a second time."""


def others_share(stat: Path = STAT, seconds: float = WATCHED_S) -> float | None:
    """The share of all CPUs that is in use while we sleep; None where the system does not say."""
    before = _ticks(stat)
    time.sleep(seconds)
    after = _ticks(stat)
    if before is None or after is None:
        return None
    busy, total = after[0] - before[0], after[1] - before[1]
    return busy / total if total > 0 else None


def _ticks(stat: Path) -> tuple[int, int] | None:
    """Ticks in use and ticks in all, of all CPUs since the start."""
    try:
        words = stat.read_text(encoding="ascii").splitlines()[0].split()
        numbers = [int(word) for word in words[1 : 1 + _COUNTED]]
    except (OSError, ValueError, IndexError):
        return None
    total = sum(numbers)
    return total - sum(numbers[i] for i in _IDLE if i < len(numbers)), total
