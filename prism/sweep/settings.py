"""What a cell may set, and the command lines it becomes: one row per setting.

A cell does one thing (`do`), which is one command or two in turn:

  search    prism search
  verify    prism verify
  optimize  prism optimize
  tune      prism search, for all sizes, then prism tune of what it found
  bench     prism optimize, then prism bench of its kernel: optimization time and kernel time

The axioms that proofs need are asked for as well (`explain`, 0: not): `prism search` is told to,
and for the graph of the kernel that won `prism verify` is run at the end, after what is measured.

Commands are run in a scratch folder of the cell, so the files between them have plain names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prism.dtypes import TOLERANCES
from prism.plugins import Group

DO: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "search": ("search",),
        "verify": ("verify",),
        "optimize": ("optimize",),
        "tune": ("search", "tune"),
        "bench": ("optimize", "bench"),
    }
)
"""What a cell does -> its commands."""

TIMED = ("tune", "optimize", "bench")
"""What times kernels: one at a time on a machine."""

ARTIFACT = "artifact.json"
KERNEL = "kernel.py"
TRIALS = "trials.jsonl"
SAVED = "saved"
"""The folder of `prism optimize --save`."""
AXIOMS = "axioms"
"""The folder of what is left of the axiom set `prism`."""
WINNER = "winner.sgraph"
"""The graph of the kernel that won."""
PROOF = "verify"
"""What is asked about the winner, after all that is timed."""

EXPLAINED = 3
"""Graphs of a search whose proofs are explained: those that a report draws."""

TIMEOUT_S = 3600.0

SEARCHING = ("search", "optimize")
MEASURING = ("tune", "optimize", "bench")


@dataclass(frozen=True, slots=True)
class Setting:
    """One name of a grid file: its values, and the option of the commands that it becomes.

    `kind` is text, names (a list of texts), integer, number or flag; an empty `option` is no option
    of a command. `group`: the plug-ins that a value may name.
    """

    name: str
    kind: str
    option: str
    commands: tuple[str, ...]
    group: Group | None = None
    repeated: bool = False
    """The option once for each name, not one option with all."""
    is_file: bool = False
    """A value may be a path, to the grid file's folder."""
    words: tuple[str, ...] = ()
    """Values that are no plug-in's name, and are right all the same."""


def _searching(name: str, kind: str = "integer") -> Setting:
    return Setting(name, kind, f"--{name.replace('_', '-')}", SEARCHING)


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            Setting(
                "program",
                "text",
                "",
                ("search", "verify", *MEASURING),
                Group.WORKLOAD,
                is_file=True,
            ),
            Setting("candidate", "text", "", ("verify",), Group.WORKLOAD, is_file=True),
            Setting("sizes", "text", "--sizes", ("search", *MEASURING)),
            Setting("dtype", "text", "--dtype", MEASURING, words=tuple(TOLERANCES)),
            Setting(
                "target", "text", "--target", ("search", *MEASURING), Group.TARGET, is_file=True
            ),
            Setting("encoding", "text", "--encoding", SEARCHING, Group.ENCODING, is_file=True),
            Setting("without", "names", "--without", SEARCHING, Group.PRUNER),
            Setting("also", "names", "--also", SEARCHING, Group.PRUNER, is_file=True),
            Setting(
                "axioms",
                "names",
                "--axioms",
                (*SEARCHING, "verify", "bench"),
                Group.AXIOMS,
                repeated=True,
                is_file=True,
                words=("none",),
            ),
            Setting("without_axioms", "names", "", (*SEARCHING, "verify")),
            Setting("generator", "text", "--generator", SEARCHING),
            Setting("concrete", "names", "--concrete", SEARCHING),
            Setting("mode", "text", "--mode", SEARCHING),
            Setting("verify", "text", "--verify", ("search",)),
            _searching("max_ops"),
            _searching("max_kernels"),
            _searching("max_accumulators"),
            _searching("max_graphs"),
            _searching("grid_dims"),
            _searching("loop_dims"),
            Setting("workers", "integer", "--workers", SEARCHING),
            Setting("search_budget", "number", "--budget", ("search",)),
            Setting("budget", "number", "--budget", ("search", "optimize", "tune")),
            Setting("strategy", "text", "--strategy", ("tune",), Group.STRATEGY, is_file=True),
            Setting("trials", "integer", "--trials", ("tune",)),
            Setting(
                "against",
                "names",
                "--against",
                ("bench",),
                Group.CONTESTANT,
                is_file=True,
                words=("all",),
            ),
            Setting("rounds", "integer", "--rounds", ("bench",)),
            Setting("processes", "integer", "--processes", ("bench",)),
            Setting("threads", "integer", "--threads", ("bench",)),
            Setting("seed", "integer", "--seed", ("search", "verify", *MEASURING)),
            Setting("keep", "flag", "", ("search",)),
            Setting("explain", "integer", "", ("search", *MEASURING)),
            Setting("timeout_s", "number", "", ("search", "verify", *MEASURING)),
            Setting("cpus", "integer", "", ("search", "verify", *MEASURING)),
        )
    }
)
"""Name -> setting. `keep` saves the artifact of a search, `explain` how many proofs are explained,
`timeout_s` ends the cell, `cpus` is what a cell takes of a Ray cluster."""

UNKEYED = ("timeout_s", "cpus")
"""Settings that say nothing about the result: a cell with others is the same cell."""

BETWEEN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "search": ("-o", ARTIFACT),
        "tune": ("-o", KERNEL, "--records", TRIALS),
        "optimize": ("--no-cache", "--save", SAVED, "--records", TRIALS),
        "bench": ("--kernel", SAVED),
        PROOF: ("--explain",),
    }
)
"""Command -> what it leaves for the next one, or for the line."""

LATER: Mapping[str, tuple[str, ...]] = MappingProxyType({"tune": ("sizes", "target", "budget")})
"""Of what two commands take, what only the second one is given: a search for every shape."""


def has_effect(name: str, do: str) -> bool:
    """Whether a cell that does this takes a setting; one that is none is for others to refuse."""
    if name not in SETTINGS or do not in DO:
        return True
    if name == "search_budget":
        return do == "tune"
    return bool(set(SETTINGS[name].commands) & set(DO[do]))


def texts_of(value: Any) -> Sequence[Any]:  # noqa: ANN401 - from TOML
    """A text as a list of one; a list as it is; nothing of other values."""
    if isinstance(value, str):
        return (value,)
    return value if isinstance(value, list) else ()


def path_of(text: str, base: Path) -> Path | None:
    """The file or folder that a value names, if it names one.

    `FILE.py:NAME`, `ART.json:ID`, `FILE.egg`, `folder/`.
    """
    head, colon, _ = text.rpartition(":")
    file = head if colon and head.endswith((".py", ".json")) else text
    if file != text or file.endswith((".egg", ".toml", ".sgraph", os.sep)):
        return base / file
    return None


def files_of(settings: Mapping[str, Any], base: Path) -> Iterator[tuple[str, Path]]:
    """The user's files that settings name: as named, and where they are.

    What is read along with a file is one of them too: the operators beside axioms.
    """
    for name, value in settings.items():
        if name in SETTINGS and SETTINGS[name].is_file:
            for text in texts_of(value):
                path = path_of(text, base)
                if path is not None:
                    yield from _read_with(text, path)


def _read_with(text: str, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.suffix in (".egg", ".toml") and inner.is_file():
                yield f"{text}{inner.name}", inner
        return
    yield text, path
    if path.suffix == ".egg" and (table := path.with_suffix(".toml")).is_file():
        yield f"{text.removesuffix('.egg')}.toml", table


def command_lines(settings: Mapping[str, Any], base: Path) -> list[list[str]]:
    """The commands of a cell, each without `prism` itself."""
    commands = DO[settings["do"]]
    lines = [_line(settings, base, name, is_last=name == commands[-1]) for name in commands]
    is_asked = settings["do"] in TIMED and settings.get("explain", EXPLAINED)
    return [*lines, _line(settings, base, PROOF, is_last=True)] if is_asked else lines


def _line(settings: Mapping[str, Any], base: Path, command: str, *, is_last: bool) -> list[str]:
    line = [command, "--json"]
    for name, value in settings.items():
        if name in SETTINGS and command in SETTINGS[name].commands:
            if not is_last and name in LATER.get(settings["do"], ()):
                continue
            line += _option(SETTINGS[name], value, base)
    if settings.get("without_axioms") and command in (*SEARCHING, "verify"):
        line += ["--axioms", "none", "--axioms", AXIOMS]
    return [*line, *_between(settings, command), *_arguments(settings, base, command)]


def _option(setting: Setting, value: Any, base: Path) -> list[str]:  # noqa: ANN401 - from TOML
    if not setting.option or value == []:
        return []
    texts = [_resolved(setting, text, base) for text in texts_of(value)]
    if setting.repeated:
        return [word for text in texts for word in (setting.option, text)]
    return [setting.option, ",".join(texts) if texts else str(value)]


def _resolved(setting: Setting, text: str, base: Path) -> str:
    path = path_of(text, base) if setting.is_file else None
    if path is None:
        return text
    return str(path.resolve()) + (f":{text.rpartition(':')[2]}" if _has_name(text) else "")


def _has_name(text: str) -> bool:
    return text.rpartition(":")[0].endswith((".py", ".json"))


def _between(settings: Mapping[str, Any], command: str) -> list[str]:
    """The files that one command leaves for the next one, or for the line."""
    if command == "search" and settings["do"] != "tune":
        explained = ["--explain", str(settings.get("explain", EXPLAINED))]
        return [*(["-o", ARTIFACT] if settings.get("keep") else []), *explained]
    if command == PROOF and settings["do"] not in TIMED:
        return []
    return list(BETWEEN[command])


def _arguments(settings: Mapping[str, Any], base: Path, command: str) -> list[str]:
    if command == "tune":
        return [ARTIFACT]
    names = ("program", "candidate") if settings["do"] == "verify" else ("program",)
    found = [_resolved(SETTINGS[name], settings[name], base) for name in names]
    return [*found, WINNER] if command == PROOF and settings["do"] in TIMED else found
