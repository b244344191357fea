"""The contestants that need torch or onnxruntime (`prism.bench.Contestant`), for any program.

Each tries the ways in which a user of its library might write the program and lay out its weights,
and leaves it to the benchmark to keep the fastest that is right. The libraries are the extra
`bench`; without one its contestants say so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.bench import NotAvailableError, Outputs, Prepared, Task, Way
from prism.bench.task import make_inputs, task_program
from prism.errors import to_install
from prism.ir import DataDim, Program, bind_sizes
from prism_experiments.rivals.composites import Composite, find_attention, find_composites
from prism_experiments.rivals.onnx_model import onnx_model
from prism_experiments.rivals.torch_source import torch_function, torch_source
from prism_experiments.rivals.weights import weights_of

Arrays = tuple[NDArray[np.generic], ...]

NO_ATTENTION = "the program holds no attention: softmax(q k^T) v"

MODES: Mapping[str, bool] = MappingProxyType({"default": False, "max-autotune": True})
"""Mode of torch.compile -> whether weights are constants (`freezing`), which it then packs."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task, taken apart."""

    program: Program
    sizes: dict[DataDim, int]
    inputs: Arrays
    weights: frozenset[str]

    @staticmethod
    def of(task: Task) -> Case:
        """From the task."""
        program = task_program(task)
        sizes = bind_sizes(program, dict(task.sizes))
        return Case(program, sizes, make_inputs(program, task), weights_of(program))

    @property
    def forms(self) -> dict[str, Mapping[int, Composite]]:
        """The ways to write it: with the functions that a library has, and operator by operator."""
        found = find_composites(self.program, self.sizes)
        return {**({"fused functions": found} if found else {}), "operators": {}}


def required(module: str, package: str) -> Any:  # noqa: ANN401 - the module
    """A module of the extra.

    Raises:
        NotAvailableError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotAvailableError(
            f"not installed: pip install {package}, or {to_install('bench')} ({error})"
        ) from None


# --- torch -------------------------------------------------------------------------------------


def open_torch(task: Task) -> Any:  # noqa: ANN401 - the module
    """Torch, with the task's number of threads."""
    torch = required("torch", "torch")
    torch.set_num_threads(task.threads)
    return torch


def as_tensor(torch: Any, array: NDArray[np.generic]) -> Any:  # noqa: ANN401
    """A tensor with the same numbers; NumPy's bfloat16 is unknown to torch, its bits are not."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def tensor_outputs(result: Any) -> Outputs:  # noqa: ANN401 - a tensor, or a tuple of them
    """What a form returned, in NumPy."""
    tensors = result if isinstance(result, tuple) else (result,)
    return tuple(t.double().numpy() if t.dtype.itemsize == 2 else t.numpy() for t in tensors)


def layouts(torch: Any, case: Case) -> Iterator[tuple[str, list[Any]]]:  # noqa: ANN401
    """The arguments as given; and with matrices of weights stored as nn.Linear stores them."""
    tensors = [as_tensor(torch, array) for array in case.inputs]
    yield "as given", tensors
    arguments = zip(case.program.arguments, tensors, strict=True)
    turned = [
        t.mT.contiguous().mT if a.name in case.weights and t.dim() == 2 else t for a, t in arguments
    ]
    if any(new is not old for new, old in zip(turned, tensors, strict=True)):
        yield "weights transposed", turned


class TorchContestant:
    """Torch, eager: each operator a call."""

    def prepare(self, task: Task) -> Sequence[Way]:
        """A way for each form and layout."""
        torch, case = open_torch(task), Case.of(task)
        return [
            Way(
                f"{form}, {layout}",
                lambda composites=composites, tensors=tensors: eager(  # type: ignore[misc]
                    torch, torch_source(case.program, case.sizes, composites), tensors
                ),
            )
            for layout, tensors in layouts(torch, case)
            for form, composites in case.forms.items()
        ]


def eager(torch: Any, source: str, tensors: Sequence[Any]) -> Prepared:  # noqa: ANN401
    """A form called as it is."""
    form = torch_function(source, torch)

    def call() -> Any:  # noqa: ANN401 - tensors
        with torch.inference_mode():
            return form(*tensors)

    return Prepared(call, tensor_outputs, source=source)


class TorchCompileContestant:
    """torch.compile, the best of its modes."""

    def prepare(self, task: Task) -> Sequence[Way]:
        """A way for each mode."""
        torch, case = open_torch(task), Case.of(task)
        form = next(iter(case.forms.values()))
        source = torch_source(case.program, case.sizes, form)
        return [Way(mode, maker(torch, case, source, mode)) for mode in MODES]


class SdpaContestant:
    """Torch's scaled_dot_product_attention, eager and compiled."""

    def prepare(self, task: Task) -> Sequence[Way]:
        """Two ways, where the program holds attention.

        Raises:
            NotAvailableError: it does not.
        """
        torch, case = open_torch(task), Case.of(task)
        found = find_attention(case.program, case.sizes)
        if not found:
            raise NotAvailableError(NO_ATTENTION)
        source = torch_source(case.program, case.sizes, found)
        tensors = [as_tensor(torch, array) for array in case.inputs]
        return [
            Way("eager", lambda: eager(torch, source, tensors)),
            Way("compiled", maker(torch, case, source, "default")),
        ]


def maker(torch: Any, case: Case, source: str, mode: str) -> Callable[[], Prepared]:  # noqa: ANN401
    """Compiles a form when it is called; what is compiled is a module with the weights in it."""

    def make() -> Prepared:
        torch.compiler.reset()
        form = torch_function(source, torch)
        names = [argument.name for argument in case.program.arguments]
        held = {
            i: as_tensor(torch, case.inputs[i]) for i, n in enumerate(names) if n in case.weights
        }
        passed = [as_tensor(torch, a) for i, a in enumerate(case.inputs) if i not in held]

        class Layer(torch.nn.Module):  # type: ignore[misc]
            """The program as a layer."""

            def __init__(self) -> None:
                super().__init__()
                for i, tensor in held.items():
                    self.register_parameter(
                        f"w{i}", torch.nn.Parameter(tensor, requires_grad=False)
                    )

            def forward(self, *given: Any) -> Any:  # noqa: ANN401 - tensors
                rest = iter(given)
                return form(
                    *(
                        getattr(self, f"w{i}") if i in held else next(rest)
                        for i in range(len(names))
                    )
                )

        compiled = torch.compile(Layer().eval(), mode=mode, dynamic=False, fullgraph=True)
        config = importlib.import_module("torch._inductor.config")

        def call() -> Any:  # noqa: ANN401 - tensors
            with torch.no_grad():
                return compiled(*passed)

        with ExitStack() as stack:
            stack.enter_context(config.patch(freezing=MODES[mode]))
            call()  # compiles
        return Prepared(call, tensor_outputs, source=source)

    return make


# --- onnxruntime -------------------------------------------------------------------------------


class OnnxRuntimeContestant:
    """onnxruntime on the CPU: weights are constants of the model, arguments and results bound."""

    def prepare(self, task: Task) -> Sequence[Way]:
        """A way for each form, with the operator Attention where there is one.

        Raises:
            NotAvailableError: it is not installed, or has no such dtype.
        """
        runtime = required("onnxruntime", "onnxruntime")
        onnx = required("onnx", "onnx")
        if task.dtype == "bfloat16":
            raise NotAvailableError("onnxruntime takes no bfloat16 arrays from NumPy")
        case = Case.of(task)
        attention = find_attention(case.program, case.sizes)
        forms = {**({"Attention": attention} if attention else {}), **case.forms}
        return [
            Way(
                name,
                lambda composites=composites: session(  # type: ignore[misc]
                    runtime, onnx, case, composites, task.threads
                ),
            )
            for name, composites in forms.items()
        ]


def session(
    runtime: Any,  # noqa: ANN401 - the module
    onnx: Any,  # noqa: ANN401 - the module
    case: Case,
    composites: Mapping[int, Composite],
    threads: int,
) -> Prepared:
    """A model loaded and its arguments bound."""
    importlib.import_module("onnx.numpy_helper")
    model = onnx_model(case.program, case.sizes, composites, case.inputs, case.weights, onnx)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    loaded = runtime.InferenceSession(model.SerializeToString(), options, providers=providers)
    binding = loaded.io_binding()
    arguments = zip(case.program.arguments, case.inputs, strict=True)
    passed = {f"a{i}": x for i, (a, x) in enumerate(arguments) if a.name not in case.weights}
    for name, array in passed.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    results = []
    for output in loaded.get_outputs():
        value = runtime.OrtValue.ortvalue_from_numpy(
            np.zeros(output.shape, case.inputs[0].dtype), "cpu"
        )
        binding.bind_ortvalue_output(output.name, value)
        results.append(value)

    def call() -> Any:  # noqa: ANN401 - its results
        loaded.run_with_iobinding(binding)
        return results

    text = "\n".join(onnx.printer.to_text(node) for node in model.graph.node)
    return Prepared(call, lambda values: tuple(v.numpy() for v in values), source=text)
