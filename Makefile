# Prism: every command a contributor needs. `make` lists them.
#
# The environment is made once, in $(VENV), from the lock of the interpreter's version, and brought
# up to date when a lock or pyproject.toml is newer than its stamp.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
# `make test SLOW=1` runs the tests marked slow too; PYTEST_ARGS goes to pytest as it is. CUDA=no
# leaves out the cuda extra (250 MB to fetch, once), and the tests that compile CUDA kernels.
# EXTRAS=yes adds the extras ray and plots (110 MB), and the tests of charts and, with SLOW=1, on
# local Ray clusters, which want the machine to themselves.
SLOW ?=
CUDA ?= yes
EXTRAS ?= no
PYTEST_ARGS ?=
DEMO ?= -m prism_experiments.demo
# `make bench BENCH_ARGS=--all` measures more; `python -m prism_experiments.bench --help` says what.
BENCH_ARGS ?=

# What `make experiments-smoke` runs; figure6_gpu is left out where the cuda extra is not installed.
GRIDS ?= table2 table3 table4 figure6 figure6_gpu encodings pruners scaling axioms tuning

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CUDA_STAMP := $(VENV)/.installed-cuda
EXTRAS_STAMP := $(VENV)/.installed-extras
LOCK_VERSIONS := 3.11 3.12 3.13
# Caches lie in the environment: the tree itself may be read-only.
export MYPY_CACHE_DIR := $(VENV)/cache/mypy
export RUFF_CACHE_DIR := $(VENV)/cache/ruff
export HYPOTHESIS_STORAGE_DIRECTORY := $(VENV)/cache/hypothesis
PIP := "$(BIN)/python" -m pip --disable-pip-version-check --quiet

.PHONY: help demo test lint bench bench-smoke rivals bench-compile bench-search bench-scaling bench-encodings bench-ablation bench-workers bench-verify bench-tuning experiments-smoke gpu-bundle lock cuda extras clean
.DEFAULT_GOAL := help

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1: \2/p' Makefile
	@echo "Settings: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) SLOW=$(SLOW) CUDA=$(CUDA) PYTEST_ARGS=$(PYTEST_ARGS)"

demo: $(STAMP) ## optimize one small program and show what was found
	@"$(BIN)/python" $(DEMO)

test: $(STAMP) ## run the tests (SLOW=1: the slow ones too)
	@[ "$(CUDA)" = no ] || $(MAKE) --no-print-directory --silent cuda \
	  || echo 'Going on without the cuda extra: tests that compile CUDA kernels are skipped.' >&2
	@[ "$(EXTRAS)" = no ] || $(MAKE) --no-print-directory --silent extras \
	  || echo 'Going on without the extras ray and plots: tests that need them are skipped.' >&2
	@"$(BIN)/python" -m pytest -o cache_dir="$(VENV)/cache/pytest" -n $(JOBS) $(if $(SLOW),--slow) $(PYTEST_ARGS)

lint: $(STAMP) ## check style, types and import directions
	"$(BIN)/python" -m ruff check .
	"$(BIN)/python" -m ruff format --check .
	"$(BIN)/python" -m mypy
	"$(BIN)/lint-imports" --no-logo --cache-dir "$(VENV)/cache/import-linter"

bench: $(STAMP) ## the workloads beside their rivals: table and goals, at most 40 minutes, resumable
	@"$(BIN)/python" -m prism_experiments.bench $(BENCH_ARGS)

bench-smoke: $(STAMP) ## two small cases of it, under two minutes
	@"$(BIN)/python" -m prism_experiments.bench --smoke $(BENCH_ARGS)

rivals: $(STAMP) ## add torch and onnxruntime, for make bench (large)
	@version="$$("$(BIN)/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
	  && $(PIP) install --constraint "locks/py$$version.txt" onnx onnxruntime torch

gpu-bundle: $(STAMP) ## pack build/gpu for a machine with a GPU (experiments/gpu/README.md)
	@"$(BIN)/python" -m prism_experiments.gpu.prepare -o build/gpu

bench-search: $(STAMP) ## what a search costs and finds on every workload, and which goals it reaches
	@"$(BIN)/python" -m prism_experiments.bench_search

bench-scaling: $(STAMP) ## what a search costs as programs, grid dims and kernels grow
	@"$(BIN)/python" -m prism_experiments.bench_scaling

bench-encodings: $(STAMP) ## what each encoding costs in a search, and whether they agree
	@"$(BIN)/python" -m prism_experiments.bench_encodings

bench-ablation: $(STAMP) ## what each pruner and symbolic maps save in a search, under 3 minutes
	@"$(BIN)/python" -m prism_experiments.bench_ablation

bench-workers: $(STAMP) ## what processes that verify save in a search, and whether they find the same
	@"$(BIN)/python" -m prism_experiments.bench_workers

bench-verify: $(STAMP) ## milliseconds per proof on the workloads of the paper, and where they go
	@"$(BIN)/python" -m prism_experiments.bench_verify

bench-tuning: $(STAMP) ## how many trials each strategy needs, replayed from exhaustive records
	@OMP_NUM_THREADS=1 "$(BIN)/python" -m prism_experiments.bench_tuning

experiments-smoke: $(STAMP) ## a small cell of every shipped grid, and their report, under 3 minutes
	@"$(BIN)/python" -m prism_experiments.smoke --jobs $(JOBS) $(GRIDS)

bench-compile: $(CUDA_STAMP) ## compile every graph for GPUs that are not here: spills, throughput
	@"$(BIN)/python" -m prism_experiments.bench_compile

lock: $(STAMP) ## resolve the dependencies anew and rewrite locks/
	$(PIP) install uv
	@for version in $(LOCK_VERSIONS); do \
	  lock="locks/py$$version.txt"; \
	  compile="$(BIN)/uv pip compile pyproject.toml --quiet --no-header \
	    --upgrade --no-emit-index-url --no-emit-find-links --python-version $$version"; \
	  echo "$$lock"; \
	  $$compile --extra dev -o "$$lock" >/dev/null || exit 1; \
	  $$compile --extra cuda --python-platform x86_64-manylinux_2_28 -c "$$lock" \
	    -o "locks/py$$version-cuda.txt" >/dev/null || exit 1; \
	  $$compile --extra ray --extra plots -c "$$lock" -o "locks/py$$version-extras.txt" \
	    >/dev/null || exit 1; \
	done

cuda: $(CUDA_STAMP) ## add the cuda extra (x86-64 Linux)

extras: $(EXTRAS_STAMP) ## add the extras ray and plots

clean: ## remove the environment and every cache
	rm -rf "$(VENV)" .venv-ci .tools build dist .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# One line for each interpreter that will do. An explicit PYTHON is taken or refused; the default
# falls back on the versioned names.
CANDIDATES := "$(PYTHON)" $(if $(filter file,$(origin PYTHON)),python3.13 python3.12 python3.11)
IS_SUPPORTED := import sys; \
  sys.exit(not (sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] < (3, 14)))

$(STAMP): pyproject.toml $(wildcard locks/py*.txt)
	@python=; if ! "$(BIN)/python" -m pip --version >/dev/null 2>&1; then \
	  for candidate in $(CANDIDATES); do \
	    "$$candidate" -c '$(IS_SUPPORTED)' 2>/dev/null && python="$$candidate" && break; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo 'Prism needs CPython 3.11, 3.12 or 3.13; $(PYTHON) is' \
	      "$$('$(PYTHON)' -VV 2>/dev/null || echo 'not there')." >&2; \
	    echo 'Name one: make PYTHON=/path/to/python3.12' >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$python" -V) (once)..."; \
	  rm -rf "$(VENV)"; \
	  "$$python" -m venv "$(VENV)" >/dev/null 2>&1 || { \
	    echo 'This Python has no working venv: taking virtualenv.'; \
	    rm -rf "$(VENV)"; \
	    "$$python" -m pip --disable-pip-version-check install --quiet --upgrade \
	      --target .tools/virtualenv virtualenv \
	      && PYTHONPATH=.tools/virtualenv "$$python" -m virtualenv --quiet "$(VENV)"; \
	  } || { \
	    echo 'Neither venv nor virtualenv works: install the python3-venv package.' >&2; exit 1; \
	  }; \
	fi
	@version="$$("$(BIN)/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
	  && echo "Installing locks/py$$version.txt into $(VENV)..." \
	  && $(PIP) install --no-deps -r "locks/py$$version.txt" \
	  && $(PIP) install --no-deps --no-build-isolation --editable . \
	  && touch "$@"

$(CUDA_STAMP): $(STAMP)
	@version="$$("$(BIN)/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
	  && [ "$$(uname -sm)" = "Linux x86_64" ] \
	    || { echo 'The cuda extra is for x86-64 Linux; this is' "$$(uname -sm)." >&2; exit 1; } \
	  && echo "Installing locks/py$$version-cuda.txt into $(VENV)..." \
	  && $(PIP) install --retries 1 --no-deps -r "locks/py$$version-cuda.txt" \
	  && touch "$@"

$(EXTRAS_STAMP): $(STAMP)
	@version="$$("$(BIN)/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
	  && echo "Installing locks/py$$version-extras.txt into $(VENV)..." \
	  && $(PIP) install --retries 1 --no-deps -r "locks/py$$version-extras.txt" \
	  && touch "$@"
