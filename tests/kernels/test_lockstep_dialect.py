"""The simulator runs the dialect and nothing else: every other text is refused, naming the line."""

from __future__ import annotations

import pytest
from kernels.lockstep_kernels import HEAD, kernel, launch, line_of, numbers

from prism.errors import KernelError
from prism_kernels.lockstep import FaultKind, LockstepFault
from prism_kernels.lockstep.functions import Kind
from prism_kernels.lockstep.intervals import OPERATORS, Range
from prism_kernels.lockstep.runtime import GLOBALS
from prism_kernels.lockstep.translate import translate

END = "store_float32(out, tid, f32(1.0))"


def refusal_of(text, arrays=()):
    """What a file is refused with."""
    with pytest.raises(KernelError) as caught:
        launch(text, arrays)
    assert not isinstance(caught.value, LockstepFault)
    return str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import numba",
        "from os import system",
        "from numba import cuda, njit",
        "from numba import cuda as c",
        "from prism_kernels.cuda.intrinsics import f32 as os",
        "from prism_kernels.cuda.intrinsics import types",
        "from prism_kernels.cuda import intrinsics",
        "from . import f32",
        "from prism_kernels.cuda.intrinsics import *",
        "x = 1",
        "print(1)",
        "def other():\n    pass",
        "class kernel:\n    pass",
        "async def kernel(out):\n    pass",
        "if True:\n    import os",
        "lambda: 0",
    ],
)
def test_a_file_holds_imports_of_the_dialect_and_one_function(line):
    message = refusal_of(f"{HEAD}{line}\n\ndef kernel(out):\n    pass\n")
    number = HEAD.count("\n") + 1
    assert message.startswith(f"line {number} `{line.splitlines()[0]}`: ")


@pytest.mark.parametrize(
    "function",
    [
        "",
        "def kernel(out):\n    pass\ndef kernel(out):\n    pass",
        "@cuda.jit\ndef kernel(out):\n    pass",
        "def kernel(out=1):\n    pass",
        "def kernel(*out):\n    pass",
        "def kernel(out, /):\n    pass",
        "def kernel(*, out):\n    pass",
        "def kernel(out, **more):\n    pass",
        "def kernel(out: print(1)):\n    pass",
        "def kernel(x, out):\n    pass",
        "def kernel(_out):\n    pass",
        "def kernel(exp):\n    pass",
        "def kernel(cuda):\n    pass",
    ],
)
def test_the_function_has_plain_parameters(function):
    refusal_of(f"{HEAD}{function}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "import os",
        "global tid",
        "nonlocal tid",
        "del tid",
        "return",
        "return tid",
        "raise tid",
        "assert tid",
        "while True:\n    pass",
        "with cuda:\n    pass",
        "try:\n    pass\nexcept:\n    pass",
        "def inner():\n    pass",
        "class Inner:\n    pass",
        "match tid:\n    case 1:\n        pass",
        "for i in range(3):\n    break",
        "for i in range(3):\n    continue",
        "for i in range(3):\n    pass\nelse:\n    pass",
        "for i in [1, 2]:\n    pass",
        "for i in shared:\n    pass",
        "for i, j in range(3):\n    pass",
        "for shared[0] in range(3):\n    pass",
        "for i in range(3):\n    i = 5",
        "for i in range(3):\n    for i in range(2):\n        pass",
        "for i in range(5, 0, -1):\n    pass",
        "for i in range(0, 5, 0):\n    pass",
        "for i in range(f32(3.0)):\n    pass",
        "a: f32 = f32(1.0)",
        "a = b = tid",
        "a, b = tid, tid",
        "(a) = (yield)",
        "tid.real = 1",
        "tid[0] = f32(1.0)",
        "shared[0:2] = f32(1.0)",
        "out[tid] = f32(1.0)",
        "out = tid",
        "exp = tid",
        "f32 = tid",
        "range = tid",
        "_t = tid",
        "__builtins__ = tid",
        "a = unknown",
        "a = __builtins__",
        "a = _v_out",
        "a = _thread",
        "a = kernel",
        "a = cuda",
        "a = exp",
        "a = out",
        "a = shared",
        "a += tid",
        "1 + 2",
        "tid",
        "exp(f32(1.0))",
        "print(1)",
        "exec('import os')",
        "eval('1')",
        "__import__('os')",
        "open('/etc/passwd')",
        "getattr(cuda, 'x')",
        "cuda.jit(tid)",
        "cuda.syncthreads(1)",
        "cuda.syncthreads",
        "a = cuda.syncthreads()",
        "a = cuda.syncwarp()",
        "a = store_float32(out, tid, f32(1.0))",
        "store_float16(out, tid, f32(1.0))",
        "store_float32(shared, tid, f32(1.0))",
        "store_float32(out, tid)",
        "store_float32(out, tid, value=f32(1.0))",
        "store_float32(*out)",
        "store_float32(out, f32(1.0), f32(1.0))",
        "store_float32(out, tid, tid)",
        "a = load_float32(out, tid, tid)",
    ],
)
def test_other_statements_are_refused(statement):
    text = kernel(f"{statement}\n{END}", "out")
    message = refusal_of(text)
    first = line_of(text, "block = ") + 1
    if message.startswith("line "):
        assert first <= int(message.split()[1]) < first + statement.count("\n") + 1
    else:
        assert message.startswith("not a kernel file: SyntaxError")


@pytest.mark.parametrize(
    "expression",
    [
        "tid.real",
        "tid.__class__",
        "().__class__.__bases__[0].__subclasses__()",
        "cuda.threadIdx",
        "cuda.threadIdx.y",
        "cuda.threadIdx.x.real",
        "cuda.blockDim.x",
        "cuda.__dict__",
        "cuda.shared.array(4, f32)",
        "shared.shape",
        "[tid]",
        "(tid, tid)",
        "{tid: tid}",
        "[i for i in range(3)]",
        "(i for i in range(3))",
        "lambda: tid",
        "f'{tid}'",
        "'text'",
        "b'text'",
        "None",
        "...",
        "1j",
        "1.5",
        "99999999999999999999",
        "(a := tid)",
        "(yield tid)",
        "(yield from tid)",
        "tid if True else f32(1.0)",
        "tid @ tid",
        "tid ** 2",
        "tid / 2",
        "~tid",
        "+tid",
        "tid is tid",
        "tid in tid",
        "0 < tid < 5",
        "tid << tid",
        "tid >> 64",
        "tid << -1",
        "tid + f32(1.0)",
        "f32(1.0) * 2",
        "f32(1.0) % f32(2.0)",
        "f32(1.0) == 1",
        "tid == (tid == 1)",
        "(tid == 1) + (tid == 2)",
        "f32(1.0) and tid",
        "not f32(1.0)",
        "u32(f32(1.0))",
        "f32('inf')",
        "f32(tid, tid)",
        "exp(tid)",
        "exp(2.0)",
        "maximum(f32(1.0))",
        "smaller(tid, f32(1.0))",
        "unknown(tid)",
        "tid(1)",
        "shared[f32(1.0)]",
        "shared[tid == 1]",
        "shared[tid, tid]",
        "shared[::2]",
        "tid[0]",
        "out[tid]",
        "cuda.shfl_xor_sync(0xffff, tid, 1)",
        "cuda.shfl_xor_sync(tid, tid, 1)",
        "cuda.shfl_xor_sync(0xffffffff, tid)",
        "cuda.shfl_xor_sync(0xffffffff, tid, f32(1.0))",
        "cuda.any_sync(0xffffffff, f32(1.0))",
        "cuda.atomic.add(shared, 0, f32(1.0))",
        "cuda.unknown(tid)",
    ],
)
def test_other_expressions_are_refused(expression):
    text = kernel(f"a = {expression}\n{END}", "out")
    assert refusal_of(text).startswith(f"line {line_of(text, 'a = ')} `a = ")


@pytest.mark.parametrize(
    "use",
    [
        "if n - tid > 3:\n    pass",
        "if u32(n - 5) - tid > 3:\n    pass",
        "a = n - tid",
        "for i in range(n - tid):\n    pass",
        "a = shared[n - tid]",
        "a = smaller(n - tid, n)",
        "a = (n - tid) // 2",
        "a = (n - tid) >> 1",
        "a = f32(n - tid)",
        "a = cuda.shfl_sync(0xffffffff, n - tid, 0)",
    ],
)
def test_a_difference_that_wraps_on_the_gpu_only_is_refused(use):
    text = kernel(f"n = u32(block + 3)\n{use}\n{END}", "out")
    assert "unsigned" in refusal_of(text)


@pytest.mark.parametrize(
    "use",
    [
        "if u32(n - tid) > 3:\n    pass",
        "if n - 1 > 3:\n    pass",
        "if 1024 + n - tid > 3:\n    pass",
        "a = (n - tid) & 31",
        "a = u32((n - tid) * 4 + 1)",
        "for i in range(4):\n    if n - i > 2:\n        pass",
    ],
)
def test_differences_that_are_the_same_on_the_gpu_are_fine(use):
    launch(kernel(f"n = u32(block + 3)\n{use}\n{END}", "out"))


@pytest.mark.parametrize(
    "array",
    [
        "h = cuda.local.array(tid, f32)",
        "h = cuda.local.array(0, f32)",
        "h = cuda.local.array(-1, f32)",
        "h = cuda.local.array(True, f32)",
        "h = cuda.local.array(1000000000, f32)",
        "h = cuda.local.array(4, i32)",
        "h = cuda.local.array((2, 2), f32)",
        "h = cuda.local.array(4)",
        "h = cuda.local.array(shape=4, dtype=f32)",
        "h = cuda.local.array(4, f32)\nh = cuda.local.array(4, f32)",
        "tid = cuda.local.array(4, f32)",
        "h = cuda.const.array(4, f32)",
        "shared = tid",
        "shared += tid",
        "h = cuda.shared.array(0, f32, alignment=16)",
    ],
)
def test_arrays_are_made_in_one_way(array):
    refusal_of(kernel(f"{array}\n{END}", "out"))


def test_shared_memory_is_made_at_the_top_and_aligned():
    for made in (
        "shared = cuda.shared.array(0, f32)",
        "shared = cuda.shared.array(64, f32, alignment=16)",
        "shared = cuda.shared.array(0, f32, alignment=8)",
        "if True:\n        shared = cuda.shared.array(0, f32, alignment=16)",
    ):
        refusal_of(f"{HEAD}def kernel(out):\n    {made}\n    pass\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "def kernel(out:",
        "x" * (2 << 20),
        f"{HEAD}def kernel(out):\n    a = {'(' * 300}1{')' * 300}\n",
        f"{HEAD}def kernel(out):\n    a = {'-' * 5000}1\n",
        f"{HEAD}def kernel(out):\n    a = {' + '.join(['1'] * 20000)}\n",
        HEAD + "def kernel(out):\n" + "".join(
            f"{'    ' * d}for i{d} in range(1):\n" for d in range(1, 30)
        ) + "    " * 30 + "pass\n",
    ],
    ids=["empty", "nul", "cut", "long", "parentheses", "minuses", "sum", "loops"],
)  # fmt: skip
def test_text_that_is_no_kernel_is_refused_in_few_words(text):
    assert len(refusal_of(text)) < 700


def test_numbers_stay_small_whatever_a_kernel_computes():
    body = "n = 3\nfor i in range(2000):\n    n = n * n\nstore_float32(out, tid, f32(n))"
    launch(kernel(body, "out"), threads=1, shape=1)
    product = " * ".join(["n"] * 5)
    assert "wrap its parts in u32" in refusal_of(
        kernel(f"n = 3\nn = n + 1\nn = {product}\n{END}", "out")
    )


def test_a_kernel_reaches_nothing_but_its_own_functions():
    translated = translate(kernel(END, "out"), "kernel", ("float32",), 0, checks=True)
    reachable = translated.function.__globals__
    assert reachable["__builtins__"] == {}
    constants = {name for name in reachable if name.startswith("_c")}
    assert set(reachable) == {"__builtins__", "kernel", *GLOBALS, *constants}


def test_a_parameter_of_another_dtype_is_refused():
    text = kernel(f"r = load_float16(x, tid)\n{END}")
    assert "x holds float32, not float16" in refusal_of(text, [numbers(32)])


def test_a_store_into_an_input_is_a_fault_before_anything_runs():
    text = kernel("store_float32(x, 0, f32(1.0))")
    with pytest.raises(LockstepFault) as caught:
        translate(text, "kernel", ("float32",) * 2, 1, checks=True)
    assert caught.value.fault.kind is FaultKind.INPUT_WRITE


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.__name__)
def test_the_range_of_an_integer_operator_holds_all_its_results(operator):
    rule = OPERATORS[operator]
    ends = [(-5, -2), (-3, 4), (0, 0), (0, 7), (2, 2), (3, 9), (16, 40)]
    for a in ends:
        for b in ends:
            known = rule.range(Range(*a), Range(*b))
            for i in range(a[0], a[1] + 1):
                for j in range(b[0], b[1] + 1):
                    if known is None or (j == 0 and rule.symbol in {"//", "%"}):
                        continue
                    assert known.low <= eval(f"{i} {rule.symbol} {j}") <= known.high


def test_kinds_are_what_messages_call_them():
    text = kernel(f"a = tid + f32(1.0)\n{END}", "out")
    message = refusal_of(text)
    assert Kind.INT.value in message
    assert Kind.FLOAT.value in message
