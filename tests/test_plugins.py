"""The plug-in door: names, paths, clashes."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from prism import plugins
from prism.errors import PluginError
from prism.plugins import Group, installed, load, load_attribute, make


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


KINDS = """
x = 3
none = None

class Needs:
    def __init__(self, something):
        pass

class Raises:
    def __init__(self):
        raise RuntimeError("first\\nsecond")

class Mute(Exception):
    def __str__(self):
        raise ValueError

class Unspeakable:
    def __init__(self):
        raise Mute

def factory(a, b):
    return a + b
"""


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    file = tmp_path / "kinds.py"
    file.write_text(KINDS)
    return file


@pytest.mark.parametrize("group", [Group.ENCODING, Group.PRUNER, Group.STRATEGY, Group.TARGET])
def test_a_plugin_that_cannot_be_called_is_refused(kinds: Path, group: Group) -> None:
    what = f"{group.name.lower()} '.*kinds.py:x' is a value of type int, not a class"
    with pytest.raises(PluginError, match=what):
        load(group, f"{kinds}:x")
    with pytest.raises(PluginError, match="is None, not a class"):
        make(group, f"{kinds}:none")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Needs", "TypeError: .*something"),
        ("Raises", "RuntimeError: first second$"),
        ("Unspeakable", r"Mute: \(its text cannot be read\)"),
    ],
)
def test_a_plugin_that_cannot_be_made_says_why(kinds: Path, name: str, why: str) -> None:
    with pytest.raises(PluginError, match=rf"^target '.*kinds\.py:{name}' cannot be made: {why}"):
        make(Group.TARGET, f"{kinds}:{name}")


def test_arguments_are_passed_to_what_makes_a_plugin(kinds: Path) -> None:
    assert make(Group.STRATEGY, f"{kinds}:factory", 1, 2) == 3


@pytest.mark.parametrize("raised", ["GeneratorExit", "BaseException('a\\nb')"])
def test_a_file_that_raises_anything_is_one_message(tmp_path: Path, raised: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"raise {raised}\n")
    with pytest.raises(PluginError, match="fails when imported") as caught:
        load_attribute(f"{file}:Mine")
    assert "\n" not in str(caught.value)


def test_an_installed_plugin_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("mine", "broken_plugin:A", Group.ENCODING.value)
    with pytest.raises(PluginError, match=r"'mine' \(here\) cannot be loaded: RuntimeError: no"):
        plugins.Plugin("mine", "here", entry).load()


@pytest.mark.skipif(sys.platform != "linux", reason="paths are Unicode elsewhere")
def test_a_path_that_is_not_utf_8_works(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xffad.py"))
    file.write_text("class Mine:\n    pass\n")
    assert load(Group.ENCODING, f"{file}:Mine").__name__ == "Mine"


@pytest.mark.parametrize("file", ["x" * 5000, "a\0b"])
def test_a_path_that_cannot_be_is_no_file(file: str) -> None:
    with pytest.raises(PluginError, match="there is no file"):
        load(Group.ENCODING, f"{file}.py:Mine")
