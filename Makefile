# `make demo` and `make test` work from a fresh clone: the first call makes a virtual environment and installs into it.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Local distributions are installed in one call, so that no sibling is taken from an index.
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable schedulers/tempo_greedy

.PHONY: help demo test sweep check format benchmarks clean

help:
	@echo "make demo        run both examples against their peers; pictures in out/"
	@echo "make test        run the tests"
	@echo "make sweep       run 5,000 random programs against the reference evaluator"
	@echo "make check       ruff, mypy, import contracts"
	@echo "make benchmarks  measure; figures on the terminal"

$(READY): pyproject.toml schedulers/tempo_greedy/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[cli,progress,examples,test]'
	@touch $@

$(VENV)/.ready-dev: $(READY)
	$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/python examples/cartpole_rollout.py --check --plot out/cartpole.png
	$(BIN)/python examples/make_tiny_llama.py out/tiny-llama
	$(BIN)/python examples/decode.py --model out/tiny-llama --check --plot out/decode.png

test: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS)

sweep: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) -m sweep

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: $(READY)
	$(BIN)/python -m benchmarks import_time
	$(BIN)/python -m benchmarks numpy_loop
	$(BIN)/python -m benchmarks front_end
	$(BIN)/python -m benchmarks greedy_scheduling

clean:
	rm -rf $(VENV) out build dist *.egg-info schedulers/*/*.egg-info schedulers/*/build
