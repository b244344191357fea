"""The text form of a thread graph, made to be read: it is derived, so nothing parses it.

    grid th0, th1
    map m[%3,h,th0] m[%3,n,th1]
    map m[%5,h,th0] m[%5,n,th1]
    map m[%8,n,th1]
    read %3[n, h]  # share [n/th1, h/th0]
    read %8[n]  # share [n/th1]
    %4 = neg(%3)
    %5 = div(%4, %8)
    write %5[n, h]  # share [n/th1, h/th0]

Values go by the names they have in the block graph. A share is what one thread has of the block's
tile, whose own size is not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir.graph import GraphOp, InputLoader, OutputSaver, ThreadGraph
from prism.ir.program import DataDim
from prism.ir.sizes import tile_size
from prism.ir.text import format_mapping, node_text, value_names
from prism.ir.threads import thread_kernel


def format_thread_graph(
    kernel: GraphOp, threads: ThreadGraph, order: Sequence[DataDim]
) -> tuple[str, ...]:
    """A thread graph of a kernel, a line each; dims in the given order."""
    names = value_names(kernel.block.nodes)
    shared = thread_kernel(kernel, threads)
    out = [f"grid {', '.join(p.name for p in shared.grid) or 'of one thread'}"]
    out += [f"map {line}" for line in format_mapping(shared)]
    loads = [n for n in shared.block.nodes if isinstance(n, InputLoader)]
    saves = [n for n in shared.block.nodes if isinstance(n, OutputSaver)]
    out += [f"read {_share(shared, n.source, n.dims, order)}" for n in loads]
    out += [f"{names[i]} = {node_text(kernel.block.nodes[i], names)}" for i in threads.nodes]
    out += [f"write {_share(shared, n.target, n.dims, order)}" for n in saves]
    return tuple(out)


def _share(shared: GraphOp, value: str, dims: Sequence[DataDim], order: Sequence[DataDim]) -> str:
    ordered = sorted(dims, key=order.index)
    sizes = ", ".join(str(tile_size(shared, value, d)) for d in ordered)
    return f"{value}[{', '.join(ordered)}]" + (f"  # share [{sizes}]" if dims else "")
