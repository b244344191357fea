"""What a product costs that is left to the library, beside a call of torch's own, as predicted.

The launcher, streams and views of ours are all that can make a difference to `torch.matmul`; how
far the prediction is off is what the cost model's constants are to be fitted to
(`prism_kernels.cuda.product_cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from prism.dtypes import dtype_of
from prism.errors import one_line
from prism.files import write_atomically
from prism.ir import MuGraph, parse_sgraph
from prism.protocols import Kernel, Target
from prism_experiments.gpu.rivals import as_tensor

PRODUCT = """\
sgraph
program product
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = matmul[d](x, w)
  return %2[n, h]
kernel 0 library
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  save %2 as out0[n, h]
"""

SIZES: Mapping[bool, tuple[tuple[int, int, int], ...]] = MappingProxyType(
    {True: ((8, 4096, 4096), (256, 4096, 4096), (4096, 4096, 4096)), False: ((4, 16, 8),)}
)
"""Whether it is on a GPU -> rows, depth, columns."""
DTYPES: Mapping[bool, tuple[str, ...]] = MappingProxyType(
    {True: ("float16", "bfloat16", "float32"), False: ("float32",)}
)

Call = Callable[[], Any]


def products(
    target: Target,
    torch: Any,  # noqa: ANN401 - the module, or None
    path: Path,
) -> Iterator[tuple[str, str, Call | None]]:
    """Name, what there is to say, and the call to be timed; none where it cannot be run.

    A kernel that cannot be made is a row that says why: the next one may be.
    """
    is_gpu = target.name == "cuda"
    for dtype in DTYPES[is_gpu]:
        for shape in SIZES[is_gpu]:
            name = f"{'x'.join(map(str, shape))} {dtype}"
            try:
                detail, kernel = _ours(target, shape, dtype, path)
                arrays = [] if kernel is None else _arrays(shape, dtype)
                if is_gpu:
                    arrays = [as_tensor(torch, array, "cuda") for array in arrays]
            except Exception as error:  # whatever an emitter, a driver or the GPU's memory raises
                yield f"library {name}", one_line(error), None
                continue
            yield f"library {name}", detail, None if kernel is None else partial(kernel, *arrays)
            if is_gpu and kernel is not None:
                yield f"torch.matmul {name}", "", partial(torch.matmul, *arrays)


def _ours(
    target: Target, shape: tuple[int, int, int], dtype: str, path: Path
) -> tuple[str, Kernel | None]:
    """What was predicted and our kernel; or why it is refused."""
    mu = _product(shape)
    reason = target.refusal(mu, dtype)
    if reason is not None:
        return reason, None
    source = target.emit(mu, dtype)
    write_atomically(path, source.text)
    return f"predicted {target.estimate(mu, dtype) * 1e6:.1f} us", target.load(path, source.meta)


def _product(shape: tuple[int, int, int]) -> MuGraph:
    return MuGraph(parse_sgraph(PRODUCT), tuple(zip(("n", "d", "h"), shape, strict=True)), ((),))


def _arrays(shape: tuple[int, int, int], dtype: str) -> list[Any]:
    rows, depth, columns = shape
    rng = np.random.default_rng(0)
    drawn = (rng.standard_normal(s, np.float32) for s in ((rows, depth), (depth, columns)))
    return [array.astype(dtype_of(dtype)) for array in drawn]
