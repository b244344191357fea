"""`make gpu-bundle`: everything a GPU session needs, in one folder that can be carried to it.

The wheel of the project, a search artifact of every shipped workload, the plan, the GPU tests with
what they import from `tests/`, and run.py. The folder is made anew and must stay small, since it is
copied over slow links.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import prism_experiments
from prism.artifact import save_artifact
from prism.errors import PrismError, UsageError
from prism.frontend import load_program
from prism.plugins import Group, installed
from prism.search import SearchOptions, search
from prism_experiments.gpu.plan import make_plan

MOST_BYTES = 64 * 2**20
DISTRIBUTION = "prism-superopt"
REFERENCE = SearchOptions(max_ops=11, max_accumulators=3)
"""The limits of the paper's artifact, for which its numbers of graphs are known."""

PYTEST_INI = """\
[pytest]
addopts = --import-mode=importlib -ra
pythonpath = . gpu
markers =
    gpu: needs an NVIDIA GPU and the cuda extra; skipped elsewhere
    slow: runs with --slow only
    timeout: seconds a test may take, where pytest-timeout is installed
"""
"""Without `filterwarnings = error`: other versions of libraries warn of other things."""

MARKER = "plan.json"
"""A folder without it is not replaced: it is somebody's own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle and say how to run it."""
    parser = argparse.ArgumentParser(prog="prepare", description="Make the bundle for a GPU.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/gpu"))
    parser.add_argument("--workloads", default="", help="NAME,.. instead of all shipped workloads")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    chosen = tuple(filter(None, given.workloads.split(","))) or shipped()
    try:
        size = prepare(given.output, chosen, given.seed)
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.output}: {size / 2**20:.1f} MiB, {len(chosen)} workloads")
    print(f"on the machine with the GPU: python {given.output}/run.py --out results.json")
    return 0


def shipped() -> tuple[str, ...]:
    """Our own workloads, in the order of their table."""
    plugins = installed(Group.WORKLOAD).values()
    return tuple(p.name for p in plugins if p.source.startswith(f"{DISTRIBUTION}:"))


def prepare(folder: Path, workloads: Sequence[str], seed: int = 0) -> int:
    """Make the bundle in `folder`; its size in bytes.

    Raises:
        UsageError: no checkout, a folder that is not a bundle, or a bundle too large.
    """
    root = checkout()
    clear(folder)
    build_wheel(root, folder)
    artifacts = {name: f"artifacts/{name}.json" for name in workloads}
    plan = make_plan(workloads, artifacts, version(DISTRIBUTION), seed)
    for name, path in artifacts.items():
        print(f"searching {name}", file=sys.stderr)
        _, program = load_program(name)
        save_artifact(search(program, REFERENCE), folder / path)
    shutil.copy(root / "experiments" / "gpu" / "run.py", folder / "run.py")
    copy_tests(root / "tests", folder / "tests")
    (folder / MARKER).write_text(plan.to_text(), encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise UsageError(
            f"{folder} takes {size >> 20} MiB, more than {MOST_BYTES >> 20}: leave workloads out "
            "(--workloads)"
        )
    return size


def checkout() -> Path:
    """The root of the source tree.

    Raises:
        UsageError: this is an installed wheel.
    """
    root = Path(prism_experiments.__file__).parents[2]
    if not (root / "pyproject.toml").is_file():
        raise UsageError("a bundle is made in a checkout of the project: install with pip -e")
    return root


def clear(folder: Path) -> None:
    """Make way for a new bundle.

    Raises:
        UsageError: something else lies there.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MARKER).is_file():
            raise UsageError(f"{folder} is no bundle of ours: name an empty folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # a bundle that was cut short may be replaced too
    (folder / MARKER).touch()


def build_wheel(root: Path, folder: Path) -> None:
    """Build the project's wheel into `folder`, with the build backend of this environment.

    Raises:
        UsageError: the build fails.
    """
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(
        [*command, str(root)], check=False, capture_output=True, text=True, cwd=folder
    )
    if done.returncode:
        raise UsageError(f"the wheel cannot be built: {done.stderr.strip()[-1000:]}")


def copy_tests(tests: Path, to: Path) -> None:
    """Copy tests/gpu and what it imports from `tests`, so that pytest and the fallback find it."""
    to.mkdir()
    (to / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
    for path in needed_tests(tests):
        target = to / path.relative_to(tests)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def needed_tests(tests: Path) -> list[Path]:
    """The files below tests/gpu, the conftest above it, and the modules of `tests` they import."""
    folder = tests / "gpu"
    found = [p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    if not found:
        return []
    if (tests / "conftest.py").is_file():
        found.append(tests / "conftest.py")
    for path in found:  # grows while it is walked
        if path.suffix == ".py":
            found += [p for p in imported_by(path, tests) if p not in found]
    return found


def imported_by(path: Path, tests: Path) -> Iterator[Path]:
    """Modules beside `path` or in `tests` that it imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        for name in names:
            relative = Path(*name.split(".")).with_suffix(".py")
            for folder in (path.parent, tests):
                if (folder / relative).is_file():
                    yield folder / relative
                    break


if __name__ == "__main__":
    sys.exit(main())
