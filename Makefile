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
BENCHMARKS = import_time numpy_loop scalar_loops front_end scheduling operators device_loop host_step decode attention compile_time compile_scaling models \
	ppo ppo_gymnasium n_step_memory memory memory_limit paper
PYTEST = $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --hypothesis-seed=0
SUITE = $(PYTEST) -p tempo.conformance.plugin --pyargs tempo.conformance
# Of the suite, what `make test` runs: all passes, few random programs. NumPy runs every combination of parameters, the
# others each parameter's values, also with the choices of a GPU; all of them in `tox`.
FEW = -m "not slow" --tempo-random-programs=15 --tempo-edges=0:3
QUICK = $(FEW) --tempo-passes=all
BRIEF = $(QUICK) --tempo-brief

# Of the suite, what has many loops of data's making to compile: `make test` runs it on PyTorch, `make test-all` on all.
MANY_LOOPS = test_checkpoints or test_compaction or test_frontiers or test_indirect or test_memory or test_moving_reads or \
	test_nested_rows or test_packed_rows or test_ragged or test_unread_points or test_wavefront

# Of the suite, what draws programs. JAX takes few of those that are drawn for a family; all of them in `tox -e jax-*`.
RANDOM = .test_edges tempo.conformance.test_random_programs

# Of the suite, what runs without passes and under the polyhedral scheduler in `make test-all`; all of it does in `tox`, on
# each backend, as JAX and PyTorch run what is slow.
IN_LOOPS = .test_definitions $(addprefix tempo.conformance.,test_gradients test_indirect test_stopping test_storage test_streams test_wavefront)

# Of the suite, what is compiled for a GPU without one in `make test-all`: operators, reads, writes and loops of each
# kind. `tox` does so with all of it.
FOR_GPU = .test_operators $(addprefix tempo.conformance.,test_attention test_compaction test_definitions test_extents test_gradients \
	test_indexing test_indirect test_moving_reads test_random test_rows test_stopping test_storage test_streams test_wavefront)

# Of the suite, of which slow tests are left to `tox`: random rows, of which others run.
OF_ROWS = packed_rows or nested_rows

# Of the suite, what runs on a mesh in `make test-all`; all of it does in `tox -e mesh`.
ON_MESH = .test_mesh $(addprefix tempo.conformance.,test_pipelines test_definitions)

# Tests and examples start many processes; none is to compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-long test test-all sweep check format docs wheels cuda-wheels cuda benchmarks clean

help:
	@echo "make demo        run the examples against their peers, five minutes; pictures in out/"
	@echo "make demo-long   run each on every backend, and train for longer"
	@echo "make test        run the tests and the conformance suite on every backend, twelve minutes"
	@echo "make test-all    and what takes longer: slow tests, every property, each scheduler, with passes and without"
	@echo "make sweep       run 5,000 random programs against the reference evaluator, 400 more on every backend"
	@echo "make check       ruff, mypy, import contracts"
	@echo "make docs        make the site, docs/_build/html/index.html"
	@echo "make wheels      build all distributions into dist/, and try them in an empty environment"
	@echo "make cuda-wheels make what \`make cuda\` needs on a machine that can fetch nothing, in wheels/"
	@echo "make cuda        run the suite and the benchmarks on a GPU, with the machine's own JAX and PyTorch"
	@echo "make benchmarks  measure, a few minutes; tables and plots in benchmarks/results/"

$(READY): pyproject.toml $(LOCAL:%=%/pyproject.toml) constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[cli,progress,examples,test]'
	@touch $@

$(VENV)/.ready-dev: $(READY)
	$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

demo-long: $(READY)
	$(BIN)/python examples/demo.py --long

# Compiling by XLA takes a third less. In `make test-all` random programs have its whole effort, in `tox` everything has.
OWN = $(filter-out backends/tempo_jax,$(LOCAL))
test test-all: export JAX_DISABLE_MOST_OPTIMIZATIONS = 1
test: $(READY)
	$(PYTEST) -m "not slow and not sweep" --hypothesis-profile=few tests tempo $(OWN)
	$(SUITE) --tempo-backend=numpy $(QUICK) -k "not ($(MANY_LOOPS))"
	$(SUITE) --tempo-backend=torch $(BRIEF)
	$(SUITE) --tempo-backend=jax $(BRIEF) --tempo-random-programs=5 --tempo-edges=0:1 -k "not ($(MANY_LOOPS))"

test-all: test
	$(SUITE) --tempo-backend=numpy $(QUICK) -k "$(MANY_LOOPS)"
	$(SUITE) --tempo-backend=jax $(BRIEF) --tempo-random-programs=5 --tempo-edges=0:1 -k "$(MANY_LOOPS)"
	$(PYTEST) -m "(slow or hypothesis) and not sweep" --hypothesis-profile=some tests tempo $(OWN)
	$(PYTEST) -m "not sweep" backends/tempo_jax
	$(SUITE) --tempo-backend=numpy --tempo-passes=all -m slow -k "not ($(OF_ROWS))"
	for backend in numpy torch; do $(SUITE).test_edges --tempo-backend=$$backend --tempo-passes=all --tempo-edges=0:15 || exit 1; done
	$(SUITE)$(IN_LOOPS) --tempo-backend=numpy --tempo-passes=none $(FEW)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(SUITE)$(RANDOM) --tempo-backend=jax --tempo-passes=all --tempo-brief --tempo-random-programs=40 --tempo-edges=0:15
	$(SUITE)$(FOR_GPU) --tempo-backend=torch --tempo-device=cuda --tempo-fake $(BRIEF)
	$(SUITE)$(FOR_GPU) --tempo-backend=jax --tempo-device=cuda --tempo-lower-only $(BRIEF)
	$(SUITE)$(ON_MESH) --tempo-backend=jax --tempo-mesh=2 $(QUICK)
	$(SUITE)$(ON_MESH) --tempo-backend=torch --tempo-mesh=2 $(QUICK)
	TEMPO_CACHE=0 $(SUITE)$(IN_LOOPS) --tempo-backend=numpy --tempo-scheduler=polyhedral $(QUICK)

sweep: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) -m sweep tests tempo $(LOCAL)
	for backend in $(BACKENDS); do $(SUITE).test_edges --tempo-backend=$$backend --tempo-edges=0:400 || exit 1; done

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.ready-dev
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheels: $(VENV)/.ready-dev
	$(BIN)/python .ci/release.py wheels

# Needs nothing from outside: the machine's own JAX and PyTorch, and wheels/. What has passed is not run again.
cuda-wheels:
	$(PYTHON) .ci/cuda.py wheels

cuda:
	$(PYTHON) .ci/cuda.py run $(PARTS)

benchmarks: $(READY)
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks $$name --quick || exit 1; done

clean:
	rm -rf $(VENV) out build dist docs/_build *.egg-info schedulers/*/*.egg-info schedulers/*/build
