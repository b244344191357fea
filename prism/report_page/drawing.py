"""Draws an sGraph as SVG, as the paper's Figure 1c does: kernel graph above, block graphs below.

The kernel graph has the tensors in device memory and a box for each kernel. Below, each kernel's
block graph is framed; its loaders and savers name their maps (imap, omap over the grid, fmap over
the loop), and what runs in every iteration of a loop is in a dashed frame of its own. Constants
and sizes stand in their users, where one would write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prism.report_page.layout import Layout, Point, lay_out
from prism.report_page.markup import Markup, join, number, tag
from prism.report_page.shapes import STAGES, BlockOp, GraphShape, KernelShape

CHARACTER = 7.3
"""Width of a letter of the drawing's font."""
LINE = 15.0
PADDING = 10.0
MARGIN = 16.0
HEADING = 24.0
MAX_LABEL = 60
"""Characters of a label; longer names are cut."""

REPLICATED = "φ"
"""How the paper's figures write that no dimension is mapped."""

INLINE = ("const", "size")
"""What is written in its user."""

STYLE = """
.sg text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:currentColor;text-anchor:middle}
.sg text.sg-head{text-anchor:start;font-weight:600}
.sg text.sg-map{font-size:11px;opacity:.8}
.sg rect{fill:none;stroke:currentColor;stroke-width:1.2}
.sg rect.sg-tensor{fill:#4c8dd6;fill-opacity:.16;stroke:#4c8dd6}
.sg rect.sg-kernel{fill:#7a6fd0;fill-opacity:.18;stroke:#7a6fd0}
.sg rect.sg-load,.sg rect.sg-save{fill:#4c8dd6;fill-opacity:.16;stroke:#4c8dd6}
.sg rect.sg-acc{fill:#d9822b;fill-opacity:.2;stroke:#d9822b}
.sg rect.sg-frame{stroke:#7a6fd0}
.sg rect.sg-loop{stroke:#2f9e63;stroke-dasharray:6 4;fill:#2f9e63;fill-opacity:.06}
.sg path{fill:none;stroke:currentColor;stroke-width:1.2;opacity:.65}
.sg polygon{fill:currentColor;opacity:.65}
""".strip()

_STANDALONE = (
    ".sg{color:#1b1f24;background:#fff}"
    "@media(prefers-color-scheme:dark){.sg{color:#e4e7eb;background:#14171a}}"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Markup that begins at the origin, and its size."""

    markup: Markup
    width: float
    height: float


def draw(graph: GraphShape, *, standalone: bool = False) -> Markup:
    """An sGraph as an SVG element; `standalone` as a file's whole content, with its style."""
    parts = [kernel_graph(graph.kernels)]
    parts += [block_graph(kernel, i) for i, kernel in enumerate(graph.kernels)]
    width = max(part.width for part in parts) + 2 * MARGIN
    placed, top = [], MARGIN
    for part in parts:
        place = f"translate({number((width - part.width) / 2)},{number(top)})"
        placed.append(tag("g", part.markup, transform=place))
        top += part.height + MARGIN
    name = f"sGraph {graph.id}"
    content = [tag("title", name), tag("desc", _description(graph.kernels)), *placed]
    if standalone:
        content.insert(0, tag("style", Markup(_STANDALONE + STYLE)))
    return tag(
        "svg",
        content,
        xmlns="http://www.w3.org/2000/svg" if standalone else None,
        class_="sg",
        role="img",
        aria_label=name,
        viewBox=f"0 0 {number(width)} {number(top)}",
        width=width,
        height=top,
    )


def _description(kernels: Sequence[KernelShape]) -> str:
    """The drawing in words, for those who do not see it."""
    told = []
    for i, kernel in enumerate(kernels):
        computed = [op.op for op in kernel.ops if op.op not in (*INLINE, "load", "save")]
        parts = (("reads", kernel.inputs), ("computes", computed), ("writes", kernel.outputs))
        words = ", ".join(f"{verb} {', '.join(names) or 'nothing'}" for verb, names in parts)
        told.append(f"kernel {i} {words}")
    return "; ".join(told)


def kernel_graph(kernels: Sequence[KernelShape]) -> Part:
    """The top level: tensors in device memory and kernels, one layer after another."""
    tensors = list(dict.fromkeys(t for k in kernels for t in (*k.inputs, *k.outputs)))
    number_of = {tensor: len(kernels) + i for i, tensor in enumerate(tensors)}
    edges = [(number_of[t], i) for i, kernel in enumerate(kernels) for t in kernel.inputs]
    edges += [(i, number_of[t]) for i, kernel in enumerate(kernels) for t in kernel.outputs]
    layers = _kernel_layers(kernels, number_of)
    edges = [(a, b) for a, b in edges if layers[a] < layers[b]]
    texts = [(f"kernel {i}",) for i in range(len(kernels))] + [(_cut(t),) for t in tensors]
    kinds = ["kernel"] * len(kernels) + ["tensor"] * len(tensors)
    layout = lay_out([_box(lines) for lines in texts], edges, layers)
    return Part(_nodes(layout, texts, kinds), layout.width, layout.height)


def _kernel_layers(kernels: Sequence[KernelShape], number_of: Mapping[str, int]) -> list[int]:
    """Kernels in their order; an input stands just above the first kernel that reads it."""
    layers = [0] * (len(kernels) + len(number_of))
    made: dict[str, int] = {}
    for i, kernel in enumerate(kernels):
        layers[i] = max([1, *(made[t] + 1 for t in kernel.inputs if t in made)])
        made.update(dict.fromkeys(kernel.outputs, layers[i] + 1))
    for tensor, node in number_of.items():
        readers = [layers[i] for i, kernel in enumerate(kernels) if tensor in kernel.inputs]
        layers[node] = made.get(tensor, min(readers, default=1) - 1)
    return layers


def block_graph(kernel: KernelShape, index: int) -> Part:
    """A kernel's block graph in its frame."""
    drawn = [i for i, op in enumerate(kernel.ops) if op.op not in INLINE]
    place = {i: k for k, i in enumerate(drawn)}
    edges = [(place[o], place[i]) for i in drawn for o in kernel.ops[i].operands if o in place]
    texts = [tuple(map(_cut, _lines(kernel, i))) for i in drawn]
    kinds = [_kind(kernel.ops[i]) for i in drawn]
    layers = _block_layers(kernel, drawn, edges)
    layout = lay_out([_box(lines) for lines in texts], list(dict.fromkeys(edges)), layers)
    title = _title(kernel, index)
    width = max(layout.width, len(title) * CHARACTER) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + HEADING + PADDING
    shift = f"translate({number((width - layout.width) / 2)},{number(MARGIN + HEADING)})"
    markup = [
        tag("rect", class_="sg-frame", width=width, height=height, rx=8),
        tag("text", title, class_="sg-head", x=PADDING, y=17),
        *_loop_frames(kernel, layout, [kernel.ops[i].stage for i in drawn], layers, width),
        tag("g", _nodes(layout, texts, kinds), transform=shift),
    ]
    return Part(join(markup), width, height)


def _title(kernel: KernelShape, index: int) -> str:
    grid = ", ".join(kernel.grid) or "of one block"
    loop = f", loop {', '.join(kernel.loops)}" if kernel.loops else ", no loop"
    return f"kernel {index}: grid {grid}{loop}"


IN_A_LOOP = (("body",), ("outer", "body", "between"))
"""Stages that the innermost loop runs, and those that the one about it does."""


def _loop_frames(
    kernel: KernelShape,
    layout: Layout,
    stages: Sequence[str],
    layers: Sequence[int],
    width: float,
) -> Iterator[Markup]:
    """A dashed frame for each loop about what every iteration runs, the outer one first."""
    depth = len(kernel.loops)
    for level, loop in enumerate(kernel.loops):
        run = IN_A_LOOP[min(depth - level, len(IN_A_LOOP)) - 1]
        inside = [layer for layer, stage in zip(layers, stages, strict=True) if stage in run]
        if not inside:
            continue
        room = 8 + 6 * (depth - 1 - level)
        top = layout.rows[min(inside)][0] + MARGIN + HEADING - room
        bottom = layout.rows[max(inside)][1] + MARGIN + HEADING + room
        x = 6 * (level + 1)
        yield tag(
            "rect", class_="sg-loop", x=x, y=top, width=width - 2 * x, height=bottom - top, rx=6
        )
        # names stand beside each other: frames may end together
        yield tag("text", f"for {loop}", class_="sg-head sg-map", x=12 + 50 * level, y=bottom - 5)


def _block_layers(
    kernel: KernelShape, drawn: Sequence[int], edges: Sequence[tuple[int, int]]
) -> list[int]:
    """Layers by longest path; those of a later stage are all below those of an earlier one."""
    layers = [0] * len(drawn)
    base = 0
    above: dict[int, list[int]] = {}
    for upper, lower in edges:
        above.setdefault(lower, []).append(upper)
    for stage in STAGES:
        members = [k for k, i in enumerate(drawn) if kernel.ops[i].stage == stage]
        for k in members:
            layers[k] = max([base, *(layers[upper] + 1 for upper in above.get(k, ()))])
        base = max([base, *(layers[k] + 1 for k in members)])
    return layers


def _kind(op: BlockOp) -> str:
    if op.op in ("load", "save"):
        return op.op
    return "acc" if op.op.startswith("accumulate") else "op"


def _lines(kernel: KernelShape, i: int) -> Iterator[str]:
    """What stands in a node: its operator, and for loaders and savers their maps."""
    op = kernel.ops[i]
    match op.op:
        case "load":
            yield f"{op.tensor} [{', '.join(op.dims)}]"
            yield from _map_lines(("imap", kernel.imap.get(op.tensor, {})))
            yield from _map_lines(("fmap", kernel.fmap.get(op.tensor, {})))
        case "save":
            yield f"{op.tensor} [{', '.join(op.dims)}]"
            yield from _map_lines(("omap", kernel.omap.get(op.tensor, {})))
        case _:
            name = f"{op.op}[{op.dim}]" if op.dim else op.op
            name = f"{name} over {op.par}" if op.par else name
            written = [_operand(kernel.ops[o]) for o in op.operands]
            yield f"{name}({', '.join(written)})" if any(w != "." for w in written) else name


def _map_lines(named: tuple[str, Mapping[str, str | None]]) -> Iterator[str]:
    name, row = named
    if row:
        yield f"{name} " + ", ".join(f"{par}→{dim or REPLICATED}" for par, dim in row.items())


def _operand(op: BlockOp) -> str:
    match op.op:
        case "const":
            return op.value or "const"
        case "size":
            return f"|{op.dim}|"
        case _:
            return "."


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL]}..."


def _box(lines: Sequence[str]) -> tuple[float, float]:
    widest = max(map(len, lines), default=0)
    return widest * CHARACTER + 2 * PADDING, len(lines) * LINE + PADDING


def _nodes(layout: Layout, texts: Sequence[Sequence[str]], kinds: Sequence[str]) -> Markup:
    """Edges first: boxes lie above them."""
    boxes = [_box(lines) for lines in texts]
    tops = {
        centre: centre[1] - box[1] / 2 for centre, box in zip(layout.centres, boxes, strict=True)
    }
    parts = []
    for route in layout.routes:
        start = 2 * route[0][1] - tops[route[0]]
        parts.append(_arrow(((route[0][0], start), *route[1:-1], (route[-1][0], tops[route[-1]]))))
    for centre, box, lines, kind in zip(layout.centres, boxes, texts, kinds, strict=True):
        parts.append(_node(centre, box, lines, kind))
    return join(parts)


def _arrow(points: Sequence[Point]) -> Markup:
    """A smooth line through points, downwards, with a head."""
    x, y = points[0]
    path = [f"M{number(x)} {number(y)}"]
    end_x, end_y = points[-1]
    for next_x, next_y in (*points[1:-1], (end_x, end_y - 5)):
        middle = number((y + next_y) / 2)
        path.append(
            f"C{number(x)} {middle} {number(next_x)} {middle} {number(next_x)} {number(next_y)}"
        )
        x, y = next_x, next_y
    corners = ((end_x, end_y), (end_x - 3.5, end_y - 7), (end_x + 3.5, end_y - 7))
    head = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
    return join([tag("path", d=" ".join(path)), tag("polygon", points=head)])


def _node(centre: Point, box: tuple[float, float], lines: Sequence[str], kind: str) -> Markup:
    (x, y), (width, height) = centre, box
    parts = [
        tag(
            "rect", class_=f"sg-{kind}", x=x - width / 2, y=y - height / 2, width=width,
            height=height, rx=12 if kind == "tensor" else 4,
        )
    ]  # fmt: skip
    for i, line in enumerate(lines):
        base = y - height / 2 + PADDING / 2 + (i + 0.75) * LINE
        parts.append(tag("text", line, class_="sg-map" if i else None, x=x, y=base))
    return join(parts)
