"""Breaks cycles between e-classes: a DAG needs one direction, an e-graph may have none.

Classes that contain each other (r = sqrt(m) and m = r * r) form a strongly connected component.
Inside one, the classes are put in a fixed order and only operators that read earlier classes are
kept. The order is the caller's priority: the program's own classes first, as the program computes
them, then shallower before deeper ones; so every class keeps at least its shallowest operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from prism.search.macros import ClassId, Operator

Priority = tuple[int, int, int]


def acyclic(
    choices: Mapping[ClassId, tuple[Operator, ...]],
    priority: Mapping[ClassId, Priority],
    computable: frozenset[ClassId],
) -> tuple[dict[ClassId, tuple[Operator, ...]], bool]:
    """The choices without cycles, and whether a computable one was lost."""
    component = _components(choices)
    kept: dict[ClassId, tuple[Operator, ...]] = {}
    is_cut = False
    for cls, nodes in choices.items():
        good = tuple(
            node
            for node in nodes
            if all(
                component.get(c) != component[cls] or priority[c] < priority[cls]
                for c in node.children
            )
        )
        lost = set(nodes) - set(good)
        is_cut = is_cut or any(computable.issuperset(node.children) for node in lost)
        kept[cls] = good
    return kept, is_cut


def _components(choices: Mapping[ClassId, tuple[Operator, ...]]) -> dict[ClassId, int]:
    """The number of each class's strongly connected component (Kosaraju, without recursion)."""
    children = {
        cls: tuple(dict.fromkeys(c for n in nodes for c in n.children if c in choices))
        for cls, nodes in choices.items()
    }
    parents: dict[ClassId, list[ClassId]] = {cls: [] for cls in choices}
    for cls, below in children.items():
        for c in below:
            parents[c].append(cls)
    component: dict[ClassId, int] = {}
    for start in reversed(_finish_order(children)):
        stack = [start]
        while stack:
            cls = stack.pop()
            if cls not in component:
                component[cls] = component.get(start, start)
                stack.extend(p for p in parents[cls] if p not in component)
    return component


def _finish_order(children: Mapping[ClassId, tuple[ClassId, ...]]) -> list[ClassId]:
    """Classes in the order in which a depth-first walk leaves them."""
    out: list[ClassId] = []
    seen: set[ClassId] = set()
    for start in children:
        stack = [(start, False)]
        while stack:
            cls, is_done = stack.pop()
            if is_done:
                out.append(cls)
            elif cls not in seen:
                seen.add(cls)
                stack.append((cls, True))
                stack.extend((c, False) for c in children[cls] if c not in seen)
    return out
