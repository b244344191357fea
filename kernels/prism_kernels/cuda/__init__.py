"""The CUDA targets: Numba CUDA source, compiled without a GPU, launched with one."""
