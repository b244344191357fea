"""What a cell may not be: refused when its grid is read, with the names that there are.

Nothing of a user's is run for it: whoever reads a grid may only want to see its cells. So a file
has to be there, and say the name that is looked for in it; what comes of it, the cell says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prism.errors import UsageError
from prism.operators import package_texts
from prism.plugins import SHIPPED_AXIOMS, Group, installed, load
from prism.sweep.settings import DO, SETTINGS, Setting, has_effect, path_of, texts_of

REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "search": ("program",),
        "verify": ("program", "candidate"),
        "optimize": ("program", "sizes"),
        "tune": ("program", "sizes"),
        "bench": ("program", "sizes"),
    }
)

LARGEST = 2**53
LEAST: Mapping[str, float] = MappingProxyType({"timeout_s": 0.1, "cpus": 1, "explain": 0})
"""The least value of settings that are no command's option; the others, the commands check."""

KINDS: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {"text": str, "names": list, "integer": int, "number": (int, float), "flag": bool}
)
DESCRIBED: Mapping[str, str] = MappingProxyType(
    {
        "text": "a text",
        "names": "a list of texts",
        "integer": "an integer",
        "number": "a number",
        "flag": "true or false",
    }
)


def aspects_of(settings: Mapping[str, Any]) -> set[str]:
    """What there is to check about a cell; cells that have only what others had are right."""
    do = repr(settings.get("do"))
    return {f"{do} {[*settings]}", *(f"{do} {name} {value!r}" for name, value in settings.items())}


def check_settings(settings: Mapping[str, Any], base: Path) -> None:
    """Refuse settings that no command could be made of, before anything is run.

    Raises:
        UsageError: names the setting, and what it may be.
    """
    do = settings.get("do")
    if not isinstance(do, str) or do not in DO:
        raise UsageError(f"do = {do!r}: a cell does one of {', '.join(DO)}")
    for name in REQUIRED[do]:
        if name not in settings:
            raise UsageError(f"{name} is missing: do = {do!r} needs it")
    for name, value in settings.items():
        if name == "do":
            continue
        if name not in SETTINGS:
            raise UsageError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
        if not has_effect(name, do):
            raise UsageError(f"{name} has no effect where do = {do!r}; leave it out")
        _check_value(SETTINGS[name], value, base)


def _check_value(setting: Setting, value: Any, base: Path) -> None:  # noqa: ANN401 - from TOML
    is_right = isinstance(value, KINDS[setting.kind]) and (
        setting.kind == "flag" or not isinstance(value, bool)
    )
    if not is_right or not all(isinstance(name, str) for name in texts_of(value)):
        raise UsageError(f"{setting.name} = {value!r}: it is {DESCRIBED[setting.kind]}")
    if setting.kind in ("integer", "number") and not abs(value) < LARGEST:  # nan is not, either
        raise UsageError(f"{setting.name} = {value!r}: it is too large, or no number")
    if (least := LEAST.get(setting.name)) is not None and value < least:
        raise UsageError(f"{setting.name} = {value!r}: it is {least} or more")
    for text in texts_of(value):
        if not text or text.startswith("-"):
            raise UsageError(f"{setting.name} = {text!r}: a name is needed")
        _check_name(setting, text, base)


def _check_name(setting: Setting, text: str, base: Path) -> None:
    """A name is known, a path is there, and so is what it names in a file of Python."""
    if setting.is_file and (path := path_of(text, base)) is not None:
        if not path.exists():
            raise UsageError(f"{setting.name} = {text!r}: there is no file {path}")
        if path.suffix == ".py" and not _may_define(path, text.rpartition(":")[2]):
            raise UsageError(f"{setting.name} = {text!r}: {path} does not define it")
        return
    known = _known(setting)
    if known and text not in known:
        form = "FILE.egg or FOLDER/" if setting.group is Group.AXIOMS else "FILE.py:NAME"
        or_path = f"; or {form}, to the grid's own folder" if setting.is_file else ""
        raise UsageError(f"{setting.name} = {text!r}: known are {', '.join(known)}{or_path}")


def _known(setting: Setting) -> tuple[str, ...]:
    """The names that a value may be; none where any text will do."""
    if setting.name == "without_axioms":
        return tuple(dict.fromkeys(Path(name).stem for name in families()))
    return (*(() if setting.group is None else installed(setting.group)), *setting.words)


def families() -> Mapping[str, str]:
    """The files of the axiom set `prism` by name: a family each, with its operators."""
    texts = package_texts(load(Group.AXIOMS, SHIPPED_AXIOMS), SHIPPED_AXIOMS, (".egg", ".toml"))
    return {Path(name).name: text for name, text in texts}


_DYNAMIC = re.compile(r"import \*|\b(globals|vars|exec|setattr|__getattr__)\b")


def _may_define(path: Path, name: str) -> bool:
    """Whether a file of Python says the name at all, or what it defines cannot be read off it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True  # the cell says what is wrong
    return bool(re.search(rf"\b{re.escape(name)}\b", text) or _DYNAMIC.search(text))
