"""The command line as a whole: help, lists, errors, what is printed where."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import click
import pytest
from cli_checks import assert_refused

from prism.cli import app
from prism.cli.answer import Status, plain
from prism.cli.render import seconds
from prism.plugins import Group, installed


def test_help_names_every_command(prism):
    result = prism("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in app.COMMANDS)


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_has_help(prism, name):
    result = prism(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: prism {name}")


@pytest.mark.parametrize(
    ("kind", "group", "known"),
    [
        ("workloads", Group.WORKLOAD, "rmsnorm"),
        ("encodings", Group.ENCODING, "boolean"),
        ("axioms", Group.AXIOMS, "prism"),
        ("pruners", Group.PRUNER, "expression"),
        ("strategies", Group.STRATEGY, "random"),
        ("targets", Group.TARGET, "cpu"),
        ("provers", Group.PROVER, "z3"),
        ("contestants", Group.CONTESTANT, "numpy"),
    ],
)
def test_list_gives_names_and_sources(prism, prism_json, kind, group, known):
    data = prism_json("list", kind)
    assert data["schema"] == "prism.cli.list/1"
    assert {entry["name"] for entry in data[kind]} == set(installed(group))
    assert known in {entry["name"] for entry in data[kind]}
    assert all(entry["source"] for entry in data[kind])
    text = prism("list", kind).stdout
    assert all(entry["name"] in text and entry["source"] in text for entry in data[kind])


def test_seed_is_echoed(prism_json):
    assert prism_json("list", "targets", "--seed", "7")["seed"] == 7


LIGHT = """
import resource, sys
sys.argv = ["prism", *ARGS]
try:
    from prism.cli import main
    main()
except SystemExit:
    pass
usage = resource.getrusage(resource.RUSAGE_SELF)
heavy = {"egglog", "numba", "numpy", "ortools", "z3"} & set(sys.modules)
print(usage.ru_utime + usage.ru_stime, sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize("args", [["--help"], ["list", "workloads"], ["list", "axioms", "--json"]])
def test_light_commands_start_fast_and_import_nothing_heavy(args):
    code = LIGHT.replace("ARGS", repr(args))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    cpu_s, _, heavy = done.stderr.partition(" ")
    assert heavy == "[]\n"
    assert float(cpu_s) < 0.5


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ([], ["Missing command", "prism --help"]),
        (["serch"], ["No such command 'serch'"]),
        (["list"], ["Missing argument", "prism list --help"]),
        (["list", "plugins"], ["'plugins'", "workloads"]),
        (["list", "targets", "--seed", "-1"], ["--seed", "-1"]),
        (["list", "targets", "--color"], ["No such option", "--color"]),
    ],
)
def test_bad_usage_is_one_message(prism, args, parts):
    assert_refused(prism(*args), *parts)


@pytest.fixture
def failing(monkeypatch):
    """Makes `prism list` raise what the test gives."""

    def install(error):
        def fail():
            raise error

        command = click.Command("list", callback=fail)
        monkeypatch.setattr(app.PrismGroup, "get_command", lambda *_: command)

    return install


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/x/out.json"), "Permission denied: /x/out.json"),
        (IsADirectoryError(21, "Is a directory", "here"), "Is a directory: here"),
        (OSError("disk on fire"), "disk on fire"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_what_the_system_refuses_is_one_message(prism, failing, error, message):
    failing(error)
    assert_refused(prism("list"), message)


def test_an_internal_error_is_one_line_and_status_70(prism, failing, monkeypatch):
    failing(ZeroDivisionError("division by zero"))
    monkeypatch.delenv("PRISM_DEBUG")
    result = prism("list")
    assert result.exit_code == Status.INTERNAL
    assert result.stderr == (
        "internal error: ZeroDivisionError: division by zero; "
        "run with PRISM_DEBUG=1 for the traceback\n"
    )


def test_an_internal_error_shows_its_traceback_when_asked(prism, failing):
    failing(ZeroDivisionError("division by zero"))
    assert isinstance(prism("list").exception, ZeroDivisionError)


def test_an_interrupt_says_what_is_saved(prism, failing):
    interrupt = KeyboardInterrupt()
    interrupt.add_note("12 trials are in r.jsonl")
    failing(interrupt)
    result = prism("list")
    assert (result.exit_code, result.stderr) == (130, "interrupted; 12 trials are in r.jsonl\n")


def test_a_broken_pipe_is_quiet(prism, failing):
    failing(BrokenPipeError(32, "Broken pipe"))
    result = prism("list")
    assert (result.exit_code, result.output) == (Status.BROKEN_PIPE, "")


def test_a_reader_that_leaves_early_sees_no_traceback():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "prism", "list", "workloads"]
    done = subprocess.run(command, check=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (Status.BROKEN_PIPE, b"")


@pytest.mark.parametrize(("redirect", "status"), [(">&-", 0), ("2>&-", 0), (">/dev/full", 2)])
def test_a_closed_or_full_output_is_no_fault_of_ours(redirect, status):
    command = f"'{sys.executable}' -m prism list workloads {redirect}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True)
    assert done.returncode == status
    assert done.stderr == ("error: No space left on device\n" if status else "")


def test_the_search_half_may_be_missing(prism, monkeypatch):
    monkeypatch.setitem(sys.modules, "prism.cli.verify", None)

    def fail(name):
        raise ModuleNotFoundError(f"No module named {name}", name="egglog.bindings")

    monkeypatch.setattr(app.importlib, "import_module", fail)
    assert_refused(prism("verify", "a", "b"), "prism verify needs egglog", "not installed here")


def test_numbers_that_json_lacks_become_null():
    assert plain({"a": float("inf"), "b": [float("nan"), 1.5], 3: (True, None)}) == {
        "a": None,
        "b": [None, 1.5],
        "3": [True, None],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (2.0, "2 s"), (1234.5, "1,234 s"), (0.00226, "2.26 ms"), (4e-6, "4 us")],
)
def test_durations_read_in_the_unit_that_fits(value, text):
    assert seconds(value) == text


def run_on_a_terminal(*command, **env):
    """What a command writes when its output and its errors are a terminal."""
    leader, follower = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "prism", *command],
        check=True,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", **env},
    )
    os.close(follower)
    assert done.returncode == 0
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose other side is closed
        while part := os.read(leader, 1 << 16):
            written += part
    os.close(leader)
    return written


def test_colours_are_for_terminals_only():
    command = ("list", "workloads")
    env = {**os.environ, "FORCE_COLOR": "1"}
    piped = subprocess.run(
        [sys.executable, "-m", "prism", *command], check=True, capture_output=True, env=env
    )
    assert b"\x1b[" not in piped.stdout + piped.stderr
    assert b"\x1b[" in run_on_a_terminal(*command)
    assert b"\x1b[" not in run_on_a_terminal(*command, NO_COLOR="1")


def test_progress_is_for_terminals_only(prism):
    assert b"verify" in run_on_a_terminal("search", "matmul", "--grid-dims", "1", "--max-ops", "4")
    assert prism("search", "matmul", "--grid-dims", "1", "--max-ops", "4").stderr == ""


def test_an_error_that_nobody_can_read_keeps_its_status():
    command = f"'{sys.executable}' -m prism list nothing 2>/dev/full"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True)
    assert done.returncode == Status.BAD_INPUT
    assert done.stdout == b""


PRINTS = r"""
import click
from prism.cli import app
from prism.cli.answer import console, say

def show():
    console().print("gr\u00f6\udcff")
    say("gr\u00f6\udcff")

app.PrismGroup.get_command = lambda *_: click.Command("list", callback=show)
app.main(["list"])
"""


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"gr\\xf6\\udcff\n"), ("utf-8", b"gr\xc3\xb6\\udcff\n")]
)
def test_any_text_can_be_printed(encoding, shown):
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", PRINTS], check=False, capture_output=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, shown)


def test_an_internal_error_of_any_text_is_one_line(prism, failing, monkeypatch):
    failing(ZeroDivisionError("one\ntwo"))
    monkeypatch.delenv("PRISM_DEBUG")
    result = prism("list")
    assert result.exit_code == Status.INTERNAL
    assert result.stderr.startswith("internal error: ZeroDivisionError: one two; run")


@pytest.mark.parametrize("budget", ["nan", "inf", "-inf", "-1", "0"])
@pytest.mark.parametrize("command", ["search", "optimize"])
def test_a_budget_is_a_number_of_seconds(prism, command, budget):
    sizes = () if command == "search" else ("--sizes", "n=1,d=1,h=1")
    assert_refused(prism(command, "matmul", *sizes, "--budget", budget), "--budget", budget)


@pytest.mark.parametrize("spec", ["", "  "])
def test_an_empty_name_of_axioms_is_refused(prism, spec):
    assert_refused(prism("search", "matmul", "--axioms", spec), "--axioms", "none")
