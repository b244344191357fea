"""The text form of a thread graph, made to be read: it is derived, so nothing parses it.

    grid th0, th1
    map m[%2,h,th1] m[%2,n,th0]
    map m[%3,n,th0]
    map m[%5,h,th1] m[%5,n,th0]
    read %2[n, h]  # share [n/th0, h/th1]
    read %3[n]  # share [n/th0]
    %4 = neg(%2)
    %5 = div(%4, %3)
    write %5[n, h]  # share [n/th0, h/th1]

Values go by the names they have in the block graph. A share is what one thread has of the block's
tile, whose own size is not repeated here.
"""

from __future__ import annotations

from prism.ir.graph import GraphOp, InputLoader, OutputSaver, ThreadGraph
from prism.ir.program import DataDim
from prism.ir.sizes import tile_size
from prism.ir.text import format_mapping, node_text, value_names
from prism.ir.threads import thread_kernel


def format_thread_graph(kernel: GraphOp, threads: ThreadGraph) -> tuple[str, ...]:
    """A thread graph of a kernel, a line each."""
    names = value_names(kernel.block.nodes)
    shared = thread_kernel(kernel, threads)
    out = [f"grid {', '.join(p.name for p in shared.grid)}" if shared.grid else "one thread"]
    out += [f"map {line}" for line in format_mapping(shared)]
    for node in shared.block.nodes:
        if isinstance(node, InputLoader):
            out.append(f"read {_share(shared, node.source, node.dims)}")
    out += [f"{names[i]} = {node_text(kernel.block.nodes[i], names)}" for i in threads.nodes]
    for node in shared.block.nodes:
        if isinstance(node, OutputSaver):
            out.append(f"write {_share(shared, node.target, node.dims)}")
    return tuple(out)


def _share(shared: GraphOp, value: str, dims: tuple[DataDim, ...]) -> str:
    sizes = ", ".join(str(tile_size(shared, value, d)) for d in dims)
    return f"{value}[{', '.join(dims)}]" + (f"  # share [{sizes}]" if dims else "")
