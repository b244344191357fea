"""`prism show ARTIFACT [--graph ID]`: what a search saved, in the text form that parses back."""

from __future__ import annotations

from pathlib import Path

import click

from prism.artifact import load_artifact
from prism.cli.answer import Answer
from prism.cli.inputs import find_graph
from prism.cli.run import Run, answering
from prism.cli.search import graphs_table, listed_json
from prism.cli.threads import threads_json, threads_text
from prism.ir import format_program, format_sgraph


@click.command("show")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--graph", "graph_id", metavar="ID", help="Print this graph in full.")
@answering("show")
def command(run: Run, artifact: Path, graph_id: str | None) -> Answer:
    """Print a search artifact: its program and graphs, or one graph in full."""
    del run
    found = load_artifact(artifact)
    chosen = found.graphs
    if graph_id is not None:
        chosen = (find_graph(found, str(artifact), graph_id),)
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
        derived = (f"# {line}" for line in threads_text(graph))  # the text parses back
        return Answer(fields, (format_sgraph(graph).rstrip(), *derived))
    return Answer(fields, (program.rstrip(), "", graphs_table(chosen)))
