"""`make experiments-smoke`: a small cell or more of every shipped grid, then their report.

Each grid is one `prism sweep --smoke`, as a user would run it; the report reads all of them. Under
3 minutes on 2 cores. A grid for a GPU compiles for one that need not be here, where the extra is
that it takes; without it, that grid is left out, and said.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import click

OUTPUT = Path("build/experiments")
CUDA_GRIDS = ("figure6_gpu",)


@click.command()
@click.argument("grids", nargs=-1, required=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Cells at once.")
@click.option("--output", type=click.Path(path_type=Path), default=OUTPUT, show_default=True)
def main(grids: tuple[str, ...], jobs: int, output: Path) -> None:
    """Run the small form of GRIDS, and write their report; exit status 1 if a cell failed."""
    begin = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    runs, failed = [], []
    for grid in grids:
        if grid in CUDA_GRIDS and importlib.util.find_spec("numba_cuda") is None:
            click.echo(f"{grid}: left out, the extra cuda is not installed")
            continue
        run = output / f"{grid}-smoke.jsonl"
        run.unlink(missing_ok=True)
        started = time.monotonic()
        arguments = ["sweep", grid, "--smoke", "--jobs", str(jobs), "-o", str(run)]
        if not _prism(arguments):
            failed.append(grid)
        runs.append(str(run))
        click.echo(f"{grid}: {time.monotonic() - started:.0f} s\n")
    report = output / "report.html"
    if not _prism(["report", *runs, "--published", "paper", "-o", str(report)]):
        failed.append("the report")
    click.echo(f"{len(runs)} grids in {time.monotonic() - begin:.0f} s")
    if failed:
        click.echo(f"failed: {', '.join(failed)}", err=True)
        sys.exit(1)


def _prism(arguments: list[str]) -> bool:
    """Whether a command of ours succeeded; what it says goes where ours goes."""
    return subprocess.run([sys.executable, "-m", "prism", *arguments], check=False).returncode == 0


if __name__ == "__main__":
    main()
