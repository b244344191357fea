"""What the NVIDIA driver and its tools say, asked without numba or torch."""

from __future__ import annotations

import ctypes
import subprocess

QUERY: tuple[tuple[str, str], ...] = (
    ("gpu", "name"),
    ("driver", "driver_version"),
    ("memory_mib", "memory.total"),
    ("clock_sm_mhz", "clocks.sm"),
    ("clock_sm_most_mhz", "clocks.max.sm"),
    ("clock_memory_mhz", "clocks.mem"),
    ("clock_memory_most_mhz", "clocks.max.mem"),
    ("power_limit_w", "power.limit"),
    ("temperature_c", "temperature.gpu"),
)
"""Name in the results -> field of nvidia-smi."""

SMI_LIMIT_S = 10.0

SICK = ("CUDA_ERROR", "CUDA error", "DeviceLostError")
"""What a failure says after which nothing in its process can be trusted."""


def cuda_version() -> str | None:
    """The newest CUDA the driver runs, as `13.0`."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int(0)
    if driver.cuDriverGetVersion(ctypes.byref(number)):
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def smi_facts() -> dict[str, str]:
    """What nvidia-smi says of the first GPU; nothing where there is no such tool."""
    fields = ",".join(field for _, field in QUERY)
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SMI_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    if len(values) != len(QUERY):
        return {}
    return {name: value for (name, _), value in zip(QUERY, values, strict=True)}
