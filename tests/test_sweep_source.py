"""What the digest of a cell's source covers: what the cell may load, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from prism.plugins import Group, installed
from prism.sweep import source
from prism.sweep.source import digest_of, groups_of

SEARCH = {"do": "search"}
OPTIMIZE = {"do": "optimize"}
BENCH = {"do": "bench"}

PACKAGES = {
    "acme_axioms": {"__init__.py": "", "mine.egg": "", "notes.txt": ""},
    "acme_kernels": {"__init__.py": "", "emit.py": ""},
    "acme_bench": {
        "__init__.py": "",
        "programs/__init__.py": "from acme_bench.programs.layers import layer",
        "programs/layers.py": "import math, acme_bench.scales as scales\nfrom ..tables import rows",
        "programs/other.py": "",
        "scales.py": "import prism",
        "tables.py": "",
        "rivals.py": "from acme_bench import scales",
    },
}

PLUGINS = {
    Group.AXIOMS: "acme_axioms",
    Group.TARGET: "acme_kernels.emit",
    Group.WORKLOAD: "acme_bench.programs",
    Group.CONTESTANT: "acme_bench.rivals",
    Group.GRID: "acme_bench.tables",
}


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """The packages of a stranger with plug-ins of many kinds, and none but these."""
    for package, files in PACKAGES.items():
        for name, text in files.items():
            path = tmp_path / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {
        group: {"acme": SimpleNamespace(entry=SimpleNamespace(module=module))}
        for group, module in PLUGINS.items()
    }
    monkeypatch.setattr(source, "installed", lambda group: found.get(group, {}))
    return tmp_path


def is_covered(settings, path, programs=()):
    """Whether an edit of a file makes another cell."""
    before = digest_of(groups_of(settings), programs)
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited", encoding="utf-8")
    return digest_of(groups_of(settings), programs) != before


@pytest.mark.parametrize("name", ["__init__.py", "mine.egg"])
def test_axiom_files_and_the_code_around_them_are_source(acme, name):
    assert is_covered(SEARCH, acme / "acme_axioms" / name)


def test_other_files_of_a_package_are_none(acme):
    assert not is_covered(BENCH, acme / "acme_axioms" / "notes.txt")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(SEARCH, False), ({**SEARCH, "target": "cpu"}, True), (OPTIMIZE, True), (BENCH, True)],
)
def test_what_emits_kernels_counts_where_there_is_a_target(acme, settings, expected):
    assert is_covered(settings, acme / "acme_kernels" / "__init__.py") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__init__.py", True),
        ("programs/other.py", True),
        ("programs/layers.py", True),
        ("scales.py", True),  # imported by a program's module
        ("tables.py", True),  # the same, by a relative name
        ("rivals.py", False),
    ],
)
def test_of_a_program_what_its_modules_import_counts(acme, name, expected):
    assert is_covered(SEARCH, acme / "acme_bench" / name) == expected


def test_an_import_of_a_package_is_of_all_of_it(acme):
    (acme / "acme_bench" / "programs" / "other.py").write_text("from .. import x", encoding="utf-8")
    assert is_covered(SEARCH, acme / "acme_bench" / "rivals.py")


def test_rivals_count_where_they_are_measured(acme):
    assert not is_covered(OPTIMIZE, acme / "acme_bench" / "rivals.py")
    assert is_covered(BENCH, acme / "acme_bench" / "rivals.py")


def test_what_a_users_program_imports_of_a_plug_in_counts(acme):
    program = acme / "mine.py"
    program.write_text("import acme_kernels.emit", encoding="utf-8")
    emit = acme / "acme_kernels" / "emit.py"
    assert not is_covered(SEARCH, emit)
    assert is_covered(SEARCH, emit, [program])


def test_the_source_of_prism_counts_in_every_cell(acme, monkeypatch):
    before = digest_of(groups_of(SEARCH), ())
    tree = source._tree
    monkeypatch.setattr(
        source, "_tree", lambda name, suffixes: () if name == "prism" else tree(name, suffixes)
    )
    assert digest_of(groups_of(SEARCH), ()) != before


def test_a_package_that_is_not_there_has_no_files(acme, monkeypatch):
    gone = {"acme": SimpleNamespace(entry=SimpleNamespace(module="acme_gone.programs"))}
    monkeypatch.setattr(source, "installed", lambda group: gone)
    without = digest_of(groups_of(BENCH), ())
    monkeypatch.setattr(source, "installed", lambda group: {})
    assert digest_of(groups_of(BENCH), ()) == without


@pytest.mark.parametrize("line", ["import os, \\\n    sys", '"""\nimport a, (b)\n"""', "import ,"])
def test_an_import_that_is_hard_to_read_ends_nothing(line, acme):
    program = acme / "mine.py"
    program.write_text(f"{line}\nimport acme_kernels.emit\n", encoding="utf-8")
    assert is_covered(SEARCH, acme / "acme_kernels" / "emit.py", [program])


def test_shipped_workloads_do_not_depend_on_benchmarks_or_kernels():
    found = source._Followed(
        {p.entry.module.split(".")[0] for g in Group for p in installed(g).values()}
    )
    for plugin in installed(Group.WORKLOAD).values():
        found.module(plugin.entry.module)
    folders = {str(Path(name).parent) for name in found.files}
    assert folders == {"prism_experiments", "prism_experiments/workloads"}
