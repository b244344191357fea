"""`prism show ARTIFACT [--graph ID]`: what a search saved, in the text form that parses back."""

from __future__ import annotations

from pathlib import Path

import click

from prism.artifact import load_artifact
from prism.cli.answer import Answer
from prism.cli.inputs import find_graph
from prism.cli.run import Run, answering
from prism.cli.search import graphs_table, listed_json
from prism.ir import GraphOp, format_program, format_sgraph, thread_graphs


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
                "thread_graphs": [_thread_graphs(kernel) for kernel in g.graph.kernels],
            }
            for g in chosen
        ],
    }
    if graph_id is not None:
        graph = chosen[0].graph
        fused = [
            f"kernel {k}, one thread: {' '.join(f'%{i}' for i in nodes)}"
            for k, kernel in enumerate(graph.kernels)
            for nodes in _thread_graphs(kernel)
        ]
        return Answer(fields, (format_sgraph(graph).rstrip(), *fused))
    return Answer(fields, (program.rstrip(), "", graphs_table(chosen)))


def _thread_graphs(kernel: GraphOp) -> list[list[int]]:
    return [list(fused.nodes) for fused in thread_graphs(kernel)]
