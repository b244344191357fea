"""The plug-in door: names, paths, clashes."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from prism import plugins
from prism.errors import PluginError
from prism.plugins import Group, installed, load

if TYPE_CHECKING:
    from pathlib import Path


def test_our_own_alternatives_come_through_the_door() -> None:
    assert {"boolean", "backtracking"} <= set(installed(Group.ENCODING))
    assert {"expression", "dimension", "placement"} <= set(installed(Group.PRUNER))
    assert {"random", "model"} <= set(installed(Group.STRATEGY))
    assert "cpu" in installed(Group.TARGET)
    assert {"rmsnorm", "rmsnorm_paper", "softmax_matmul", "matmul"} <= set(
        installed(Group.WORKLOAD)
    )


@pytest.mark.parametrize("group", list(Group))
def test_every_installed_plugin_loads(group: Group) -> None:
    for plugin in installed(group).values():
        assert plugin.load() is not None


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PluginError, match=r"no encoding named 'bolean'.*backtracking, boolean"):
        load(Group.ENCODING, "bolean")


def test_a_path_works_where_a_name_does(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    name = 'mine'\n")
    assert load(Group.ENCODING, f"{file}:Mine").name == "mine"


def test_a_path_to_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="there is no file"):
        load(Group.ENCODING, f"{tmp_path / 'none.py'}:Mine")


def test_a_file_alone_asks_for_the_name_in_it() -> None:
    with pytest.raises(PluginError, match=r"mine\.py is a file: say what in it, mine\.py:NAME"):
        load(Group.WORKLOAD, "mine.py")


def test_a_missing_attribute_lists_what_the_file_defines(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\nfrom pathlib import Path\nMine = 1\n")
    with pytest.raises(PluginError, match=r"has no 'Yours'; it defines Mine$"):
        load(Group.ENCODING, f"{file}:Yours")


def test_a_file_that_fails_names_its_error(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("1 / 0\n")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        load(Group.ENCODING, f"{file}:Mine")


def test_a_file_with_a_syntax_error_names_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f(:\n")
    with pytest.raises(PluginError, match="SyntaxError"):
        load(Group.ENCODING, f"{file}:f")


def test_a_name_claimed_twice_names_both_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        EntryPoint("mine", "one.pkg:A", Group.ENCODING.value),
        EntryPoint("mine", "two.pkg:B", Group.ENCODING.value),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: entries)
    installed.cache_clear()
    try:
        with pytest.raises(PluginError, match=r"claimed twice.*one\.pkg:A.*two\.pkg:B"):
            installed(Group.ENCODING)
    finally:
        installed.cache_clear()
