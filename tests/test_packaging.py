"""What a user installs: wheel and sdist carry every axiom file, every entry point loads.

The build runs offline in the test environment (hatchling is a dev dependency); the wheel goes into
a fresh environment that sees our dependencies but not the source tree.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = PYPROJECT["project"]["entry-points"]
EGG_FILES = sorted(
    path.relative_to(ROOT / "axioms").as_posix() for path in (ROOT / "axioms").rglob("*.egg")
)

# Runs in the fresh environment: prints where prism came from, its entry points, its axiom files.
PROBE = """
import importlib.metadata, importlib.resources, json, pathlib, prism, prism_axioms
points = importlib.metadata.entry_points
groups = {group: {p.name: p.value for p in points(group=group)} for group in GROUPS}
unloadable = {}
for group in GROUPS:
    for point in points(group=group):
        try:
            point.load()
        except (ImportError, AttributeError) as error:
            unloadable[f"{group}:{point.name}"] = repr(error)
root = pathlib.Path(prism_axioms.__file__).parent
print(json.dumps({
    "prism": prism.__file__,
    "version": importlib.metadata.version("prism-superopt"),
    "groups": groups,
    "unloadable": unloadable,
    "eggs": sorted(p.relative_to(root.parent).as_posix() for p in root.rglob("*.egg")),
}))
"""

# Runs in our environment with the search half's solvers out of reach.
TUNE_HALF = """
import importlib, importlib.util, pkgutil, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"egglog", "ortools", "z3"}:
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)

sys.meta_path.insert(0, Block())
for name in ("prism.ir", "prism.tune", "prism_kernels"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if module.name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:  # what the cuda extra brings, where it is not installed
            has_extra = importlib.util.find_spec("numba_cuda") is not None
            if has_extra or not str(error.name).startswith("numba.cuda"):
                raise
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Runs `command` and returns what it printed; fails with its errors."""
    done = subprocess.run(  # noqa: PLW1510 - the check below shows stderr
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(f"{command[:4]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder with the sdist and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory) -> dict:
    """What the probe sees of the wheel in a fresh environment."""
    where = tmp_path_factory.mktemp("venv")
    venv.create(where, system_site_packages=True, with_pip=False, symlinks=True)
    python = where / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))", cwd=where)
                .strip())  # fmt: skip
    # Our dependencies by path: .pth files that lie there, our editable install's among them, are
    # not read a second time.
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(ours)) + "\n", encoding="utf-8")
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=where)
    probe = f"GROUPS = {sorted(ENTRY_POINTS)!r}\n{PROBE}"
    return {"site": site, **json.loads(run(python, "-I", "-c", probe, cwd=where))}


@pytest.mark.slow
def test_wheel_and_sdist_carry_every_axiom_file(dist):
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    in_wheel = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        in_sdist = [name.partition("/")[2] for name in archive.getnames()]
    assert EGG_FILES, "axioms/ holds no .egg file"
    assert sorted(name for name in in_wheel if name.endswith(".egg")) == EGG_FILES
    assert sorted(n for n in in_sdist if n.endswith(".egg") and n.startswith("axioms/")) == [
        f"axioms/{name}" for name in EGG_FILES
    ]


@pytest.mark.slow
def test_the_wheel_carries_every_grid(dist):
    (wheel,) = dist.glob("*.whl")
    folder = ROOT / "experiments" / "prism_experiments" / "grids"
    grids = {f"prism_experiments/grids/{path.name}" for path in folder.iterdir() if path.suffix}
    assert any(name.endswith("table2.toml") for name in grids)
    assert grids <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_wheel_holds_nothing_but_our_packages(dist):
    (wheel,) = dist.glob("*.whl")
    version = PYPROJECT["project"]["version"]
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    expected = {Path(package).name for package in packages}
    assert tops == expected | {f"prism_superopt-{version}.dist-info"}


@pytest.mark.slow
def test_installed_wheel_is_found_without_the_source_tree(installed):
    assert Path(installed["prism"]).is_relative_to(installed["site"])
    assert installed["version"] == PYPROJECT["project"]["version"]
    assert installed["eggs"] == EGG_FILES


@pytest.mark.slow
def test_installed_wheel_has_every_entry_point(installed):
    assert installed["groups"] == ENTRY_POINTS
    assert installed["unloadable"] == {}


def test_git_ignores_no_axiom_file():
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = [f"axioms/{name}" for name in EGG_FILES]
    command = [git, "-C", str(ROOT), "check-ignore", "axioms/prism_axioms/new.egg", *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.stdout, f".gitignore hides {done.stdout}"


def test_tune_half_imports_without_the_solvers():
    run(sys.executable, "-c", TUNE_HALF, cwd=ROOT)
