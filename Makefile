# `make demo` and `make test` work from a fresh clone: the first call makes a virtual environment and installs into it.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Local distributions are installed in one call, so that no sibling is taken from an index. The core stands there
# without extras too: pip takes only that for what the backends require.
LOCAL = schedulers/tempo_greedy schedulers/tempo_polyhedral backends/tempo_jax backends/tempo_torch
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt $(LOCAL:%=--editable %) --editable .
BACKENDS = numpy jax torch
PPO_numpy = --iterations 40
PPO_torch = --iterations 100
MODELS = rnn lstm linear_recurrence wave value_iteration edit_distance kalman
BENCHMARKS = import_time numpy_loop scalar_loops front_end scheduling operators device_loop host_step decode attention compile_time compile_scaling models \
	ppo ppo_gymnasium n_step_memory
SUITE = $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -p tempo.conformance.plugin --pyargs tempo.conformance

.PHONY: help demo test sweep check format benchmarks clean

help:
	@echo "make demo        run the examples on every backend against their peers; pictures in out/"
	@echo "make test        run the tests, and the conformance suite on every backend and scheduler"
	@echo "make sweep       run 5,000 random programs against the reference evaluator, 400 more on every backend"
	@echo "make check       ruff, mypy, import contracts"
	@echo "make benchmarks  measure, a few minutes; tables and plots in benchmarks/results/"

$(READY): pyproject.toml $(LOCAL:%=%/pyproject.toml) constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[cli,progress,examples,test]'
	@touch $@

$(VENV)/.ready-dev: $(READY)
	$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(BACKENDS:%=demo-%)

demo-%: $(READY) out/tiny-llama/tokenizer.json
	@echo "== $*"
	$(BIN)/python examples/cartpole_rollout.py --backend $* --check --plot out/cartpole-$*.png
	$(BIN)/python examples/decode.py --backend $* --model out/tiny-llama --check --plot out/decode-$*.png
	$(BIN)/python examples/ppo.py --backend $* --plot out/ppo-$*.png $(PPO_$*)
	$(BIN)/python examples/reinforce.py --backend $* --iterations 60 --plot out/reinforce-$*.png
	for name in $(MODELS); do $(BIN)/python examples/$$name.py --backend $* --check --plot out/$$name-$*.png || exit 1; done

out/tiny-llama/tokenizer.json: $(READY) examples/make_tiny_llama.py
	$(BIN)/python examples/make_tiny_llama.py out/tiny-llama

test: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --hypothesis-seed=0 tests tempo $(LOCAL)
	for backend in $(BACKENDS); do $(SUITE) --tempo-backend=$$backend --tempo-passes=few || exit 1; done
	$(SUITE).test_extents --tempo-backend=numpy --tempo-passes=each
	TEMPO_CACHE=0 $(SUITE) --tempo-backend=numpy --tempo-scheduler=polyhedral --tempo-passes=few

sweep: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) -m sweep
	for backend in $(BACKENDS); do $(SUITE).test_edges --tempo-backend=$$backend --tempo-edges=0:400 || exit 1; done

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: $(READY)
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks $$name --quick || exit 1; done

clean:
	rm -rf $(VENV) out build dist *.egg-info schedulers/*/*.egg-info schedulers/*/build
