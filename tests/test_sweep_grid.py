"""Grid files: what they expand to, the command lines of cells, and what is refused."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from sweep_grids import SMALL, grid_of

from prism.errors import PluginError, PrismError, UsageError
from prism.plugins import Group, file_of, installed
from prism.sweep import load_grid, make_job, shard_of
from prism.sweep.settings import SETTINGS, command_lines

ROOT = Path(__file__).parent.parent

GRIDS = sorted(
    Path(str(path))
    for path in resources.files("prism_experiments.grids").iterdir()
    if path.name.endswith(".toml") and path.name != "published.toml"
)


def test_every_combination_is_a_cell_and_the_last_axis_is_the_fastest(tmp_path):
    cells = grid_of(tmp_path).cells
    assert [cell.index for cell in cells] == list(range(8))
    assert [tuple(cell.labels.values()) for cell in cells[:3]] == [
        ("matmul", "boolean", "0"),
        ("matmul", "boolean", "1"),
        ("matmul", "integer", "0"),
    ]
    assert cells[0].settings == {
        "do": "search", "max_ops": 6, "program": "matmul", "encoding": "boolean", "seed": 0,
    }  # fmt: skip


def test_a_table_on_an_axis_sets_several_things_under_one_label(tmp_path):
    text = SMALL + 'limits = [{ label = "few", max_kernels = 1 }, { max_kernels = 2 }]'
    cells = grid_of(tmp_path, text).cells
    assert {cell.labels["limits"] for cell in cells} == {"few", "2"}
    assert all("label" not in cell.settings for cell in cells)
    assert {cell.settings["max_kernels"] for cell in cells} == {1, 2}


def test_rows_take_cells_away_and_add_others(tmp_path):
    text = SMALL + (
        '[[exclude]]\nprogram = "matmul"\nencoding = "integer"\n'
        '[[include]]\nlabel = "more"\ndo = "verify"\nprogram = "ffn"\ncandidate = "ffn"\n'
    )
    cells = grid_of(tmp_path, text).cells
    assert len(cells) == 7
    assert cells[-1].labels == {"label": "more"}
    assert cells[-1].settings == {"do": "verify", "program": "ffn", "candidate": "ffn"}
    assert ("matmul", "integer") not in {
        (c.settings["program"], c.settings.get("encoding")) for c in cells
    }


def test_the_smoke_form_replaces_axes_and_overrides_settings(tmp_path):
    text = SMALL + '[smoke]\nsettings.max_ops = 3\naxes.program = ["ffn"]\naxes.seed = [7]\n'
    cells = grid_of(tmp_path, text, smoke=True).cells
    assert [(c.settings["program"], c.settings["max_ops"], c.settings["seed"]) for c in cells] == [
        ("ffn", 3, 7)
    ] * 2
    assert len(grid_of(tmp_path, text).cells) == 8


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_shards_are_all_cells_each_once_and_of_like_size(tmp_path, count):
    cells = grid_of(tmp_path).cells
    shards = [shard_of(cells, number, count) for number in range(1, count + 1)]
    assert sorted(c.index for shard in shards for c in shard) == list(range(8))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


MEASURE = """
[settings]
do = "optimize"
program = "matmul"
sizes = "n=1,d=1,h=1"
{}
[axes]
seed = [0]
"""

TWICE = "\n[[include]]\nprogram = 'matmul'\nencoding = 'boolean'\nseed = 0"

REFUSED = {
    "not TOML": ("do = = 1", "not TOML"),
    "unknown part": ("cells = 3", "no part 'cells'"),
    "no cells": ("[settings]\ndo = 'search'", "no cells"),
    "axis without values": ("[axes]\nprogram = []", "axes.program"),
    "twice the same value": (SMALL + "kernels = [1, 1]", "twice"),
    "unknown setting": (SMALL + "colour = [1]", "no setting 'colour'"),
    "unknown command": (SMALL.replace('"search"', '"dance"'), "do = 'dance'"),
    "setting of another command": (SMALL + "trials = [3]", "no effect"),
    "missing sizes": (SMALL.replace('"search"', '"optimize"'), "sizes is missing"),
    "unknown encoding": (SMALL.replace('"integer"', '"decimal"'), "'decimal': known are"),
    "unknown workload": (SMALL.replace('"matmul"', '"matmull"'), "'matmull': known are"),
    "unknown dtype": (
        MEASURE.replace("{}", 'dtype = "float3"'),
        "'float3': known are float64, float32,",
    ),
    "unknown target": (MEASURE.replace("{}", 'target = "gpu"'), "'gpu': known are cpu, cuda,"),
    "unknown strategy": (
        MEASURE.replace("{}", 'strategy = "luck"').replace("optimize", "tune"),
        "'luck': known are evolutionary,",
    ),
    "unknown family": (SMALL + 'without_axioms = [["roof"]]', "'roof': known are activations,"),
    "unknown candidate": (
        SMALL.replace('"search"', '"verify"\ncandidate = "matmull"'),
        "'matmull': known are",
    ),
    "a file and no name": (
        SMALL.replace('"matmul"', '"mine.py"'),
        "or FILE.py:NAME, to the grid's own folder",
    ),
    "unknown axioms": (SMALL + 'axioms = [["prsm"]]', "'prsm': known are prism, none"),
    "missing file": (SMALL.replace('"matmul"', '"mine.py:f"'), "there is no file"),
    "wrong type": (SMALL + 'max_kernels = ["two"]', "it is an integer"),
    "a flag is no number": (SMALL.replace("= 6", "= true"), "it is an integer"),
    "an option as a name": (SMALL.replace('"matmul"', '"--help"'), "a name is needed"),
    "a label is a text": (SMALL + "k = [{ label = 3, max_graphs = 4 }]", "label = 3"),
    "an empty label": (SMALL + "k = [{ label = ' ', max_graphs = 4 }]", "label = ' '"),
    "a row's label": (SMALL + "\n[[include]]\nlabel = 3\nprogram = 'ffn'", "include: label = 3"),
    "no number": (SMALL.replace("= 6", "= 6\nbudget = nan"), "budget = nan"),
    "no end": (SMALL.replace("= 6", "= 6\nbudget = inf"), "budget = inf"),
    "no time": (SMALL.replace("= 6", "= 6\ntimeout_s = 0"), "timeout_s = 0: it is 0.1 or more"),
    "a date": (SMALL.replace("= 6", "= 2020-01-01"), "it is an integer"),
    "smoke is no table": ("smoke = 3\n" + SMALL, "smoke is not a table"),
    "an unknown part of smoke": (SMALL + "[smoke]\ntitle = 'x'", "smoke has no part 'title'"),
    "too many cells": (SMALL + f"k = {list(range(9999))}\nj = {list(range(99))}", "than 100000"),
    "no smoke form": (SMALL, "no part [smoke]"),
    "same cell twice": (SMALL + TWICE, "same"),
    "exclude of no axis": (SMALL + "\n[[exclude]]\ndtype='x'", "no axis sets 'dtype'"),
    "escape codes": (SMALL.replace("small", "\\u001b[31m"), "control character"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_grid_that_cannot_be_run_is_refused_with_its_file_and_place(tmp_path, case):
    text, part = REFUSED[case]
    with pytest.raises(PrismError) as refused:
        grid_of(tmp_path, text, smoke=case == "no smoke form")
    assert part in str(refused.value)
    assert "small.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "is_there"),
    [
        ("def layer(x): ...", True),
        ("from elsewhere import layer", True),
        ("from elsewhere import *", True),
        ("globals()['lay' + 'er'] = max", True),
        ("def layer_2(x): ...", False),
        ("", False),
    ],
)
def test_a_name_that_a_file_never_says_is_refused_before_it_is_run(tmp_path, content, is_there):
    (tmp_path / "mine.py").write_text(content, encoding="utf-8")
    text = SMALL.replace('"matmul"', '"mine.py:layer"')
    if is_there:
        assert len(grid_of(tmp_path, text).cells) == 8
        return
    with pytest.raises(UsageError, match=r"program = 'mine.py:layer': .*mine.py does not define"):
        grid_of(tmp_path, text)


def test_a_cell_is_checked_once_for_all_that_have_nothing_else(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("prism.sweep.grid.check_settings", lambda cell, _: asked.append(cell))
    assert len(grid_of(tmp_path, SMALL.replace("[0, 1]", "[0, 1, 2, 3, 4]")).cells) == 20
    assert [cell["seed"] for cell in asked[:5]] == [0, 1, 2, 3, 4]
    assert len(asked) == 5 + 1 + 1  # then another encoding, another program


def test_a_tuned_cell_is_a_search_for_every_shape_and_a_tuning_run(tmp_path):
    settings = {
        "do": "tune", "program": "ffn", "sizes": "n=1", "target": "cpu", "without": ["placement"],
        "search_budget": 5.0, "budget": 9.0, "strategy": "random", "seed": 3,
    }  # fmt: skip
    search, tune, proof = (" ".join(line) for line in command_lines(settings, tmp_path))
    assert search == "search --json --without placement --budget 5.0 --seed 3 -o artifact.json ffn"
    assert tune == (
        "tune --json --sizes n=1 --target cpu --budget 9.0 --strategy random --seed 3 "
        "-o kernel.py --records trials.jsonl artifact.json"
    )
    assert proof == "verify --json --seed 3 --explain ffn winner.sgraph"


def test_a_bench_cell_times_the_kernel_it_optimized_and_nothing_from_the_cache(tmp_path):
    settings = {"do": "bench", "program": "ffn", "sizes": "n=1", "against": ["numpy", "torch"]}
    optimize, bench, _ = (" ".join(line) for line in command_lines(settings, tmp_path))
    assert (
        optimize == "optimize --json --sizes n=1 --no-cache --save saved --records trials.jsonl ffn"
    )
    assert bench == "bench --json --sizes n=1 --against numpy,torch --kernel saved ffn"


def test_proofs_are_explained_unless_that_is_not_wanted(tmp_path):
    search = {"do": "search", "program": "ffn"}
    (line,) = command_lines(search, tmp_path)
    assert line[-3:] == ["--explain", "3", "ffn"]
    for settings in (search, {"do": "optimize", "program": "ffn", "sizes": "n=1"}):
        (line,) = command_lines({**settings, "explain": 0}, tmp_path)
        assert line[-3:] in (["--explain", "0", "ffn"], ["--records", "trials.jsonl", "ffn"])


def test_own_files_are_found_beside_the_grid_and_are_part_of_the_key(tmp_path):
    program = tmp_path / "mine.py"
    program.write_text("layer = 1", encoding="utf-8")
    (tmp_path / "mine.egg").write_text("", encoding="utf-8")
    text = SMALL.replace('"matmul"', '"mine.py:layer"') + 'axioms = [["mine.egg"]]'
    grid = grid_of(tmp_path, text)
    before = make_job(grid, grid.cells[0]).cell
    (line,) = before.commands
    assert line[-1] == f"{program}:layer"
    assert line[line.index("--axioms") + 1] == str(tmp_path / "mine.egg")
    assert before.inputs.keys() == {"mine.py:layer", "mine.egg"}
    program.write_text("layer = 2", encoding="utf-8")
    assert make_job(grid, grid.cells[0]).cell.key != before.key


def test_what_axioms_bring_along_is_part_of_the_key(tmp_path):
    folder = tmp_path / "rules"
    folder.mkdir()
    for path in (tmp_path / "mine.egg", tmp_path / "mine.toml", folder / "a.egg", folder / "b.py"):
        path.write_text("", encoding="utf-8")
    text = SMALL.replace("[0, 1]", "[0]") + 'axioms = [["mine.egg"], ["rules/"], ["none"]]'
    grid = grid_of(tmp_path, text)
    cells = [make_job(grid, cell).cell for cell in grid.cells[:3]]
    assert [sorted(cell.inputs) for cell in cells] == [
        ["mine.egg", "mine.toml"],
        ["rules/a.egg"],
        [],
    ]
    assert str(folder) in cells[1].commands[0]


def test_the_key_is_of_what_matters_for_the_result_alone(tmp_path, monkeypatch):
    first = grid_of(tmp_path, SMALL)
    slower = grid_of(tmp_path, SMALL.replace("max_ops = 6", "max_ops = 6\ntimeout_s = 5"))
    key = make_job(first, first.cells[0]).cell.key
    assert make_job(slower, slower.cells[0]).cell.key == key
    assert len({make_job(first, cell).cell.key for cell in first.cells}) == 8
    monkeypatch.setattr("prism.sweep.origin._first_seen", lambda *_: "another")
    assert make_job(first, first.cells[0]).cell.key != key


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_shipped_grid_is_sound_in_both_forms_and_small_in_its_smoke_form(path):
    grid, smoke = load_grid(path), load_grid(path, smoke=True)
    assert 1 <= len(smoke.cells) <= 4
    assert len(grid.cells) > len(smoke.cells)
    keys = [make_job(grid, cell).cell.key for cell in grid.cells]
    assert len(set(keys)) == len(keys)


def test_every_shipped_grid_has_a_name_and_a_smoke_run():
    named = {name: file_of(Group.GRID, name, ".toml") for name in installed(Group.GRID)}
    assert {name: path.stem for name, path in named.items()} == {p.stem: p.stem for p in GRIDS}
    assert all(path.is_file() for path in named.values())
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (smoked,) = re.findall(r"^GRIDS \?= (.*)$", makefile, flags=re.MULTILINE)
    assert sorted(smoked.split()) == sorted(named)
    assert "experiments-smoke" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_a_name_that_is_no_grid_lists_those_there_are_and_a_path_stays_one(tmp_path, monkeypatch):
    with pytest.raises(PluginError, match=r"no grid named 'tabel2'; known: axioms, .*table2"):
        file_of(Group.GRID, "tabel2", ".toml")
    monkeypatch.chdir(tmp_path)
    Path("mine").touch()
    with pytest.raises(PluginError, match=r"the path of that file is \./mine"):
        file_of(Group.GRID, "mine", ".toml")
    for path in ("table2.toml", "./table2", "/etc/table2"):
        assert file_of(Group.GRID, path, ".toml") == Path(path)


def test_every_grid_that_was_promised_is_shipped():
    promised = {"table2", "table3", "table4", "figure6", "encodings", "pruners", "scaling"}
    assert promised | {"axioms", "tuning"} <= {path.stem for path in GRIDS}


def test_the_encodings_grid_has_every_installed_encoding_and_workload():
    cells = load_grid(next(p for p in GRIDS if p.stem == "encodings")).cells
    assert {cell.settings["encoding"] for cell in cells} == set(installed(Group.ENCODING))
    assert {cell.settings["program"] for cell in cells} == set(installed(Group.WORKLOAD))


def test_the_axioms_grid_leaves_out_every_family():
    families = {
        p.name[:-4] for p in resources.files("prism_axioms").iterdir() if p.name[-4:] == ".egg"
    }
    cells = load_grid(next(p for p in GRIDS if p.stem == "axioms")).cells
    assert {name for c in cells for name in c.settings["without_axioms"]} == families


def test_figure6_has_the_published_configurations_in_order():
    from prism_experiments.sizes import PUBLISHED, sizes_text  # noqa: PLC0415 - this test's alone

    cells = load_grid(next(p for p in GRIDS if p.stem == "figure6")).cells
    ours = [(cell.settings["program"], cell.settings["sizes"]) for cell in cells]
    assert ours == [(workload, sizes_text(workload, shape)) for workload, shape in PUBLISHED]


def test_published_figures_go_by_the_labels_of_the_grids():
    import tomllib  # noqa: PLC0415 - this test's alone

    text = resources.files("prism_experiments.grids").joinpath("published.toml").read_text()
    published = tomllib.loads(text)
    grids = {path.stem: load_grid(path) for path in GRIDS}
    assert [c.labels["workload"] for c in grids["figure6"].cells] == list(published["kernels"])
    assert {c.labels["workload"] for c in grids["table2"].cells} == set(published["search"])
    assert {c.labels["maps"] for c in grids["table4"].cells} == set(published["maps"])


def test_every_setting_is_an_option_of_the_commands_that_take_it():
    import importlib  # noqa: PLC0415 - this test's alone

    for setting in SETTINGS.values():
        for name in setting.commands if setting.option else ():
            command = importlib.import_module(f"prism.cli.{name}").command
            assert setting.option in {o for p in command.params for o in p.opts}, (setting, name)
