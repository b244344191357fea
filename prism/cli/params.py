"""The values that options take: sizes, lists of names, words of which this version knows few.

They are callbacks of click options; what they refuse becomes a usage error that names the option.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from prism.plugins import SHIPPED_AXIOMS, Group, installed

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

NO_AXIOMS = "none"

MAX_SIZE = 2**40
"""Larger sizes are a slip of the finger."""

MAX_WORKERS = 1024

MAX_SHOWN = 40
"""Characters of a value that are echoed."""


def _shown(value: str) -> str:
    return repr(value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}...")


def parse_sizes(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> dict[str, int] | None:
    """`n=8,d=4096` -> {"n": 8, "d": 4096}; which dimensions there are, the program says.

    Raises:
        click.BadParameter: a part is not of that form, or a size is out of range.
    """
    del ctx, param
    if value is None:
        return None
    sizes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in value.split(","))):
        name, equals, number = (s.strip() for s in part.partition("="))
        if not equals or not name.isidentifier():
            raise click.BadParameter(
                f"{_shown(part)} is not of the form DIM=SIZE, as in n=8,d=4096"
            )
        if name in sizes:
            raise click.BadParameter(f"the size of {_shown(name)} is given twice")
        if not re.fullmatch(r"[0-9]{1,18}", number) or not 1 <= int(number) <= MAX_SIZE:
            raise click.BadParameter(
                f"the size of {_shown(name)} must be an integer from 1 to 2^40, "
                f"not {_shown(number)}"
            )
        sizes[name] = int(number)
    return sizes


def parse_names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """`a,b,c` -> ("a", "b", "c"); not given -> ().

    Raises:
        click.BadParameter: the list is empty, or names something twice.
    """
    del ctx, param
    if value is None:
        return ()
    names = tuple(filter(None, (n.strip() for n in value.split(","))))
    if not names:
        raise click.BadParameter("a list of names is needed, separated by commas")
    if len(set(names)) != len(names):
        raise click.BadParameter(f"each name once: {_shown(value)}")
    return names


def only(*known: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback that takes the words this version knows and refuses others by name."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        del ctx, param
        if value is not None and value not in known:
            raise click.BadParameter(
                f"{_shown(value)} is not available in this version; available: {', '.join(known)}"
            )
        return value

    return check


def axiom_specs(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """The axiom sets to load: files and folders are added to the set `prism`.

    Naming a set takes exactly what is named; the name `none` is the empty set.

    Raises:
        click.BadParameter: an empty name.
    """
    del ctx, param
    if not all(spec.strip() for spec in value):
        raise click.BadParameter(f"an empty name; for no axioms at all: {NO_AXIOMS}")
    names = [spec for spec in value if not _is_path(spec)]
    base = () if names else (SHIPPED_AXIOMS,)
    return (*base, *(spec for spec in value if spec != NO_AXIOMS))


def _is_path(spec: str) -> bool:
    if spec == NO_AXIOMS or spec in installed(Group.AXIOMS):
        return False
    return spec.endswith((".egg", ".toml")) or os.sep in spec or Path(spec).is_dir()


def worker_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """`4` -> 4; `auto` -> 0, one for each core.

    Raises:
        click.BadParameter: neither.
    """
    del ctx, param
    if value is None:
        return None
    if value == "auto":
        return 0
    if not re.fullmatch(r"[0-9]{1,4}", value) or int(value) > MAX_WORKERS:
        raise click.BadParameter(
            f"a number from 0 to {MAX_WORKERS} or auto is needed, not {_shown(value)}"
        )
    return int(value)


def seed_option(function: Decorated) -> Decorated:
    """`--seed`, on every command."""
    return click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="N",
        help="For everything random.",
    )(function)


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    del ctx, param
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"a number of seconds is needed, not {value}")
    return value


def budget_option(default: float | None) -> Callable[[Decorated], Decorated]:
    """`--budget SECONDS`."""
    return click.option(
        "--budget",
        type=click.FloatRange(0, min_open=True),
        callback=_finite,
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help="Stop after this long with what was found.",
    )


def sizes_option(function: Decorated) -> Decorated:
    """`--sizes n=8,d=4096`, required."""
    return click.option(
        "--sizes",
        required=True,
        callback=parse_sizes,
        metavar="SIZES",
        help="The size of every dimension, as in n=8,d=4096,h=4096.",
    )(function)


def several_sizes(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> list[dict[str, int]]:
    """Each of a repeated `--sizes`.

    Raises:
        click.BadParameter: one of them is not of the form, or is there twice.
    """
    every = [parse_sizes(ctx, param, text) or {} for text in value]
    for place, sizes in enumerate(every):
        if sizes in every[:place]:
            raise click.BadParameter(f"{_shown(value[place])} is there twice")
    return every


def situation_options(function: Decorated) -> Decorated:
    """`--sizes` and `--target` of a search, which does without."""
    function = click.option(
        "--target",
        metavar="NAME",
        help="Search for this target's device alone; without, for every one.",
    )(function)
    return click.option(
        "--sizes",
        callback=parse_sizes,
        metavar="SIZES",
        help="Search for these sizes alone, as in n=8,d=4096,h=4096; without, for all.",
    )(function)


def limit_option(
    name: str, least: int, text: str, *, most: int | None = None
) -> Callable[[Decorated], Decorated]:
    """A limit of the search; when it is not given, the search chooses."""
    text = f"{text} Default: as the program needs; printed as `limits`."
    return click.option(name, type=click.IntRange(least, most), metavar="N", help=text)


def search_options(function: Decorated) -> Decorated:
    """The options of a search, for `search` and `optimize` alike."""
    options = (
        limit_option("--max-ops", 1, "Most block operators: inputs, operators, accumulators."),
        limit_option("--max-kernels", 1, "Most kernels of a graph, up to 3.", most=3),
        limit_option("--max-accumulators", 0, "Most accumulators of a block graph."),
        limit_option("--max-graphs", 1, "Most graphs to verify, best looking first."),
        limit_option("--grid-dims", 0, "Most grid dimensions.", most=3),
        limit_option("--loop-dims", 1, "Most loops, one inside the other (search).", most=2),
        click.option("--encoding", metavar="NAME|FILE.py:CLASS", help="Who finds the mappings."),
        click.option(
            "--without",
            callback=parse_names,
            metavar="PRUNER,..",
            help="Pruners to switch off.",
        ),
        click.option(
            "--also",
            callback=parse_names,
            metavar="PRUNER|FILE.py:CLASS,..",
            help="Optional pruners to add, or your own.",
        ),
        click.option(
            "--axioms",
            multiple=True,
            callback=axiom_specs,
            metavar="NAME|FILE.egg",
            help="Axioms for verification; repeatable. Files are added to the set `prism`, names "
            "replace it (`none`: the empty set).",
        ),
        click.option(
            "--generator",
            default="cone",
            show_default=True,
            metavar="cone|forward",
            help="Who builds graphs: cone, or forward, the paper's own, which is slower.",
        ),
        click.option(
            "--concrete",
            callback=parse_names,
            metavar="imap,fmap,omap",
            help="Maps to enumerate during the search (forward only).",
        ),
        click.option(
            "--workers",
            callback=worker_count,
            metavar="N|auto",
            help="Processes that verify where there is much to do; the result is the same.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def ray_option(text: str) -> Callable[[Decorated], Decorated]:
    """`--ray ADDRESS`."""
    return click.option(
        "--ray",
        metavar="ADDRESS",
        help=f"{text} (auto, HOST:PORT or ray://HOST:PORT); extra `ray`.",
    )


def tune_options(function: Decorated) -> Decorated:
    """`--target` and `--dtype`."""
    function = click.option(
        "--dtype",
        default="float32",
        show_default=True,
        metavar="NAME",
        help="Of arguments and results: float32, float16, bfloat16 or float64.",
    )(function)
    return click.option(
        "--target", default="cpu", show_default=True, metavar="NAME", help="Where the kernel runs."
    )(function)
