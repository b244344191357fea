# ruff: noqa: INP001 - a script in a bundle, not a module of a package
"""Run a GPU session from its bundle: `python run.py --out RESULTS.json`.

Needs only the standard library: it installs the bundle's wheel in a private folder (nothing is
fetched, nothing outside that folder is changed), and starts the session with it. README.md beside
this file in the source tree says what is measured and what the results mean.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

INSTALL_LIMIT_S = 60.0
GRACE_S = 20.0
"""The session ends by itself at its limit; after this much more it is ended."""

LATE = 3
"""Exit status of a session that had to be ended."""


def main() -> int:
    """Install, run, clean up."""
    parser = argparse.ArgumentParser(prog="run.py", description="Run a GPU session.")
    parser.add_argument("--out", type=Path, required=True, help="the results, a JSON file")
    parser.add_argument(
        "--target",
        choices=("cuda", "lockstep", "cpu"),
        default="cuda",
        help="cuda: the session itself; the others rehearse it at tiny sizes",
    )
    parser.add_argument("--limit-s", type=float, default=450.0, help="seconds for everything")
    given = parser.parse_args()
    start = time.monotonic()
    bundle = Path(__file__).resolve().parent
    wheels = sorted(bundle.glob("*.whl"))
    if len(wheels) != 1 or not (bundle / "plan.json").is_file():
        print(f"{bundle} is no bundle: make one with `make gpu-bundle`", file=sys.stderr)
        return 2
    out = given.out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    for stale in (out, out.with_suffix(".log"), out.with_suffix(".trials.jsonl")):
        stale.unlink(missing_ok=True)
    work = Path(tempfile.mkdtemp(prefix="prism-gpu-"))
    try:
        how = install(wheels[0], work / "site")
        left = given.limit_s - (time.monotonic() - start)
        options = ["--bundle", str(bundle), "--out", str(out), "--target", given.target]
        return run_session(work, left, [*options, "--install", how])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def install(wheel: Path, site: Path) -> str:
    """Install the wheel into `site`; says how it was done."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-compile", "--disable-pip-version-check", "--target", str(site), str(wheel)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=INSTALL_LIMIT_S
        )
        problem = done.stderr.strip()[-300:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"no end after {INSTALL_LIMIT_S:.0f} s"
    if not problem:
        return f"pip, {wheel.name}"
    # a wheel of pure Python is an archive of what pip would put there
    shutil.rmtree(site, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return f"unpacked, {wheel.name}, since pip failed: {problem}"


def run_session(work: Path, limit_s: float, options: list[str]) -> int:
    """Start the session with the installed wheel; its exit status."""
    paths = [str(work / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    temporary = work / "tmp"
    temporary.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(paths),
        "PRISM_CACHE_DIR": str(work / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "TRITON_CACHE_DIR": str(work / "triton"),
    }
    command = [sys.executable, "-P", "-m", "prism_experiments.gpu.session"]
    command += ["--work", str(work), "--limit-s", f"{limit_s:.1f}", *options]
    try:
        return subprocess.run(
            command, check=False, env=environment, cwd=work, timeout=limit_s + GRACE_S
        ).returncode
    except subprocess.TimeoutExpired:
        print("the session did not end by itself; what it found is written", file=sys.stderr)
        return LATE


if __name__ == "__main__":
    sys.exit(main())
