"""`prism show ARTIFACT [--graph ID] [--svg FILE]`: what a search saved, as text that parses back.

One graph can be drawn too, as the reports draw it.
"""

from __future__ import annotations

from pathlib import Path

import click

from prism.artifact import FoundGraph, load_artifact
from prism.cli.answer import Answer
from prism.cli.inputs import check_output, find_graph
from prism.cli.run import Run, answering
from prism.cli.search import graphs_table, listed_json
from prism.cli.threads import threads_json, threads_text
from prism.describe import graph_json
from prism.errors import UsageError
from prism.files import write_atomically
from prism.ir import format_program, format_sgraph


@click.command("show")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--graph", "graph_id", metavar="ID", help="Print this graph in full.")
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw this graph as well."
)
@answering("show")
def command(run: Run, artifact: Path, graph_id: str | None, svg: Path | None) -> Answer:
    """Print a search artifact: its program and graphs, or one graph in full."""
    del run
    if svg is not None and graph_id is None:
        raise UsageError("--svg draws one graph: say which, with --graph ID")
    check_output(svg)
    found = load_artifact(artifact)
    chosen = found.graphs
    if graph_id is not None:
        chosen = (find_graph(found, str(artifact), graph_id),)
    if svg is not None:
        write_atomically(svg, _drawn(chosen[0]))
    program = format_program(found.program)
    fields = {
        "artifact": str(artifact),
        "program": found.program.name,
        "text": program,
        "complete": found.complete,
        "graphs": [
            {
                **listed_json(g),
                "text": format_sgraph(g.graph),
                "thread_graphs": [threads_json(kernel) for kernel in g.graph.kernels],
            }
            for g in chosen
        ],
    }
    if graph_id is not None:
        graph = chosen[0].graph
        known = [] if chosen[0].proof is None else [f"proved {chosen[0].proof}"]
        derived = (f"# {line}" for line in (*known, *threads_text(graph)))  # the text parses back
        return Answer(fields, (format_sgraph(graph).rstrip(), *derived))
    return Answer(fields, (program.rstrip(), "", graphs_table(chosen)))


def _drawn(found: FoundGraph) -> str:
    """A graph as the text of an SVG file."""
    from prism.report_page import Facts, draw, read_graph  # noqa: PLC0415 - text does without

    shape = read_graph(Facts(graph_json(found.id, found.graph, found.verdict.value), found.id))
    return f"{draw(shape, standalone=True)}\n"
