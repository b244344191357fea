"""What our kernels are measured against: any traced program as torch and onnxruntime would run it.

`composites` finds in a program what those libraries have one function for (softmax, norms,
attention), `lower` turns named dimensions into axes, `torch_source` and `onnx_model` write the
result down, `contestants` are what `prism bench --against` names. Nothing here knows a workload.
"""

from __future__ import annotations
