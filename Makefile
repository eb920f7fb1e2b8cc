# Every target makes its own environment when there is none: Python 3.11 is all that must be there.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: demo test test-slow lint docs browser characterise structure bench bench-compare bench-entropy bench-train bench-scale bench-network bench-untuned bench-features bench-coverage bench-open bench-guarantee bench-own bench-integrity bench-published bench-posterior bench-forensics bench-ablations bench-leaderboard figures clean

FEW := credal-coverage credal-lj credal-dual vanilla classical-ensemble credal-ensemble mc-dropout energy knn gnnsafe evidential gpn
demo: $(READY)  ## some methods on a graph of handwritten digits: which detect the classes 8 and 9 that training left out? (runs/demo)
	$(BIN)/credalgnn bench -d digits -m $(FEW) --seeds 3 --out runs/demo

test: lint browser  ## lint, types, import direction, tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The page is tested in a real browser. Without one, and without the right to install it, those tests are skipped.
browser:
	@command -v chromedriver > /dev/null || \
	{ test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
	  { apt-get install -yqq chromium chromium-driver || { apt-get update -qq && apt-get install -yqq chromium chromium-driver; }; } > /dev/null; } || \
	echo "no Chromium and no way to install it: the tests of the page are skipped"

test-slow: $(READY)  ## the long statistical checks
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DOCS_READY)  ## guides and API reference as a site without network: docs/_build/html/index.html
	$(BIN)/python docs/tables.py
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . docs/_build/html

# Another checkout to compare with: git worktree add ../base COMMIT, then make characterise BASE=../base
characterise: $(READY)  ## bits of predictions, scores, records and saved files of every method: the same as in BASE?
	$(BIN)/python -W ignore benchmarks/characterise.py --base $(BASE) --ray

bench-compare: $(READY)  ## training steps and a large graph: time and memory relative to BASE (minutes, quiet machine)
	$(BIN)/python -W ignore benchmarks/compare.py --base $(BASE)

structure: $(READY)  ## size, prose, names and imports of the package, and their limits
	$(BIN)/python benchmarks/structure.py

bench: bench-entropy bench-train bench-untuned bench-features bench-coverage bench-open bench-guarantee bench-own bench-integrity bench-published bench-posterior bench-forensics bench-ablations bench-leaderboard bench-scale  ## all benchmarks

bench-entropy: $(READY)  ## speed and correctness of the entropies, against SciPy and the greedy pour
	$(BIN)/python benchmarks/entropy.py

# Raw files of the real graphs: CREDALGNN_MIRROR, or the folder beside the checkout, or the cache (and the network).
MIRROR := $(or $(CREDALGNN_MIRROR),$(wildcard ../shared/datasets))

bench-train: $(READY)  ## milliseconds a training step, against stock PyG
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/train.py

bench-untuned: $(READY)  ## what untuned credal-lj reaches on real graphs, five seeds
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/untuned.py

bench-features: $(READY)  ## what changes if every node's features are divided by their sum
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/features.py

bench-published: $(READY)  ## ours beside what the originals publish, where the protocol can be followed (a quarter of an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/published.py

bench-forensics: $(READY)  ## from our figures to the paper's, choice by choice, with small budgets (an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/forensics.py --jobs 2

bench-ablations: $(READY)  ## credal models with other latents and backbones on five graphs (half an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/ablations.py

bench-coverage: $(READY)  ## how credal-coverage degrades with fewer labels, fewer OOD nodes and noisy labels (an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/degradation.py

bench-open: $(READY)  ## what keeps the intervals of credal-lj open, judged by ID validation nodes (half an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/open_intervals.py

bench-own: $(READY)  ## a graph of 2 million nodes from Parquet tables to predictions: time and memory (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/own_graph.py

bench-leaderboard: $(READY)  ## every method on every graph, all conditions of the leaderboard (some hours; resumable)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python benchmarks/leaderboard.py

bench-guarantee: $(READY)  ## false alarms, prediction sets and OOD nodes detected, and what breaks the guarantee (an hour)
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/guarantee.py

bench-integrity: $(READY)  ## what checksums cost: of a benchmark, and of loading a graph of the size of Reddit2 (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore benchmarks/integrity.py

bench-posterior: $(READY)  ## the true posterior of the block model: its Monte Carlo error, time and calibration (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/csbm_posterior.py

bench-scale: $(READY)  ## graphs of the size of ArXiv, Reddit2, Patents and a tenth of papers100M: time and memory (hours)
	$(BIN)/python benchmarks/scale.py
	CREDALGNN_MIRROR=$(MIRROR) $(BIN)/python -W ignore benchmarks/convergence.py
	$(BIN)/python -W ignore benchmarks/twin.py

bench-network: $(READY)  ## one and two workers, and tasks that predict, on networks of several speeds (as root, with iproute2)
	$(BIN)/python -W ignore benchmarks/network.py

figures: $(READY)  ## the figures in docs/
	$(BIN)/python docs/figures.py && $(BIN)/python docs/paper_figures.py && $(BIN)/python examples/digits.py --out docs/images

clean:
	rm -rf $(VENV) runs docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# torch first and by its exact version: a range would fetch a build with gigabytes of GPU libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $(DOCS_READY)
