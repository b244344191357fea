"""`make demo`: RMSNorm and a linear layer, superoptimized end to end on this machine.

The demo is three commands anyone can type: it prints each one, runs it, and shows what it says.
Nothing is taken from the cache, so every number is measured now; the exit status says whether the
stages worked, not how fast the kernel is.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from prism.cache import cache_folder


@click.command()
@click.option("--program", default="rmsnorm", show_default=True)
@click.option("--sizes", default="n=8,d=4096,h=4096", show_default=True)
@click.option("--budget", default=60.0, show_default=True, help="Seconds of tuning.")
@click.option("--rounds", default=7, show_default=True, help="Rounds of the benchmark.")
@click.option("--seed", default=0, show_default=True)
def main(program: str, sizes: str, budget: float, rounds: int, seed: int) -> None:
    """Search, tune and time one program."""
    folder = cache_folder() / "demo" / Path(program).stem
    tuning = ("--budget", str(budget))
    timing = ("--rounds", str(rounds))
    for arguments in commands(program, sizes, folder, tuning, timing):
        command = (*arguments, "--seed", str(seed))
        click.echo(f"$ prism {shlex.join(command)}\n")
        status = run_prism(command)
        if status != 0:
            click.echo(f"the command ended with status {status}", err=True)
            sys.exit(status)
        click.echo()


def commands(
    program: str, sizes: str, folder: Path, tuning: tuple[str, ...], timing: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """The commands of the demo, in order."""
    at = ("--sizes", sizes)
    yield "search", program, "-o", str(folder / "search.json")
    yield "optimize", program, *at, *tuning, "--no-cache", "--save", str(folder)
    yield "bench", program, *at, *timing, "--against", "numpy", "--kernel", str(folder)


def run_prism(arguments: tuple[str, ...]) -> int:
    """Run `prism` with this interpreter; its output goes where ours goes."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "prism", *arguments], check=False).returncode


if __name__ == "__main__":
    main()
