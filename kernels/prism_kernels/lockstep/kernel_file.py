"""What a kernel file may hold around its statements: imports of the dialect and its kernels.

The file is parsed, never imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prism.errors import KernelError, one_line
from prism_kernels.cuda import dialect, product, tensor_dialect
from prism_kernels.lockstep.names import Names, Parameter

MAX_CHARACTERS = 1 << 20

IMPORTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "__future__": frozenset({"annotations"}),
        "numba": frozenset({"cuda"}),
        "prism_kernels.cuda.intrinsics": frozenset(
            {*dialect.CASTS, *dialect.CONSTANTS, *dialect.FUNCTIONS}
        ),
        "prism_kernels.cuda.product": product.NAMES,
        "prism_kernels.cuda.tensor_cores": tensor_dialect.NAMES,
        "prism_kernels.cuda.vectors": frozenset(dialect.VECTORS),
    }
)
"""Module -> what a kernel file may import from it. Nothing is imported here."""

_RESERVED = frozenset({"cuda", "range", "len", "kernel"}).union(*IMPORTS.values())
_KERNEL = re.compile(r"kernel\d?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def parsed(text: str) -> ast.Module:
    """The text as a syntax tree.

    Raises:
        KernelError: it does not parse.
    """
    if len(text) > MAX_CHARACTERS:
        raise KernelError(f"a kernel file of {len(text)} characters is too long")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise KernelError(f"not a kernel file: {one_line(error)}") from None


def kernel_named(name: str, tree: ast.Module, names: Names) -> ast.FunctionDef:
    """A function of a file that holds nothing else but kernels and imports of the dialect.

    Raises:
        KernelError: it holds something else, or no one kernel of that name.
    """
    functions = []
    for i, statement in enumerate(tree.body):
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if i == 0:
                pass
            case ast.ImportFrom(module=module, names=aliases, level=0):
                allowed = IMPORTS.get(module or "", frozenset())
                if any(a.name not in allowed or a.asname for a in aliases):
                    raise names.refusal(statement, "a kernel file imports the dialect only")
            case ast.FunctionDef(name=found) if _KERNEL.fullmatch(found):
                functions += [statement] * (found == name)
            case _:
                raise names.refusal(statement, "only imports and `def kernel` may stand here")
    if len(functions) != 1:
        raise KernelError(f"not a kernel file: it must have one function `{name}`")
    return functions[0]


def parameters_of(
    function: ast.FunctionDef, names: Names, dtypes: Sequence[str], inputs: int
) -> tuple[Parameter, ...]:
    """The pointers that the kernel takes.

    Raises:
        KernelError: they are not plain, or not as many as the metadata says.
    """
    args = function.args
    others = [args.posonlyargs, args.kwonlyargs, args.vararg, args.kwarg, args.defaults]
    if any(others) or function.decorator_list or any(a.annotation for a in args.args):
        raise names.refusal(function, "the kernel has plain parameters and no decorator")
    if len(args.args) != len(dtypes):
        reason = f"the kernel has {len(args.args)} parameters, its metadata {len(dtypes)}"
        raise names.refusal(function, reason)
    for arg in args.args:
        require_name(arg, arg.arg, names)
    return tuple(
        Parameter(arg.arg, dtype, is_input=i < inputs)
        for i, (arg, dtype) in enumerate(zip(args.args, dtypes, strict=True))
    )


def require_name(node: ast.AST, name: str, names: Names) -> None:
    """Refuse a name that a variable cannot have: names of ours start with `_`.

    Raises:
        KernelError: it is such a name.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise names.refusal(node, f"a variable cannot be called {name}")
