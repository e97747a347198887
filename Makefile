# What a developer types. Every target that runs Python makes the environment first: `make test` works from a fresh
# clone with Python 3.11 or newer and nothing else.
#
#   make VENV=/path ...     another place for the environment (default .venv)
#   make PYTHON=/path ...   the interpreter to make it with
#   make test TESTS=tests/unit ARGS='-k tree -x'
#   make test THOROUGH=1    draws three times as many random examples, for nights
#   make bench QUICK=1      within a minute

.POSIX:

VENV ?= .venv
PYTHON ?=
TESTS ?=
ARGS ?=
QUICK ?=
THOROUGH ?=
FROM ?= 2e778af
BENCH ?=
TRACES ?=
SECONDS ?= 600
SEEDS ?= 2000
SEEDS_NEW ?= 500
SEEDS_LARGE ?= 20

BIN = $(VENV)/bin
READY = $(VENV)/.installed
STAGE = sh scripts/stage.sh
# The layers are read from the sources, whether or not an installation points at them.
SOURCES = .:daemons:cli

.PHONY: help venv demo test check check-types check-audit check-collect format lint types layers proto proto-check docs docs-check site man packages bench bench-relay \
	bench-recovery bench-plan bench-estimator bench-federation bench-esp bench-cooperation curves sim verify-upgrade verify-compose verify-contained integration worlds security clients fuzz audit secrets lock clean

help:
	@echo 'make demo         a whole cluster on this machine and one real job, from nothing'
	@echo 'make test         all tests but the next three (TESTS=path, ARGS="pytest options"; THOROUGH=1: more random examples)'
	@echo 'make integration  tests of real processes on loopback: daemons, commands, whole clusters and what they survive'
	@echo 'make worlds       tests on simulated clusters: drawn faults, planted bugs, seeds that failed once'
	@echo 'make security     attacks a cluster as another user of the host (as root; otherwise most of it is skipped)'
	@echo 'make clients      programs that speak to Slurm, unmodified, on a cluster: submitit, dask-jobqueue, parsl, psij, snakemake'
	@echo 'make check        what CI runs: format, lint, types, layers, generated files, audit, and the four kinds of tests above'
	@echo 'make fuzz         nearly right requests and frames against the doors of a live cluster, for SECONDS=$(SECONDS) (as root)'
	@echo 'make audit        dangerous calls in the sources (bandit), advisories for locked packages (pip-audit)'
	@echo 'make format       formats the code and applies safe lint fixes'
	@echo 'make lint         style and formatting only; also: types, layers'
	@echo 'make proto        generates eslurm/v1 and the command tables from proto/; proto-check only compares'
	@echo 'make docs         generates docs/states.md, docs/reference/configuration.md and metrics.md; docs-check only compares'
	@echo 'make site         the documentation as a site in build/site; a broken link ends it'
	@echo 'make packages     packages for Debian and RPM systems in dist/, for hosts with a Python of this minor version'
	@echo 'make man          manual pages of all commands and daemons in build/man: man -M build/man essubmit'
	@echo 'make bench        measurements as JSON lines (QUICK=1: within a minute; BENCH="names")'
	@echo 'make bench-relay  broadcasts over thousands of nodes, some of them dead (QUICK=1: within a minute)'
	@echo 'make bench-recovery failover, restarts, floods, chaos (QUICK=1: within a minute; RECOVERY="chaos": that part)'
	@echo 'make bench-plan   planner: operations, replans, memory, submissions meanwhile (QUICK=1; TRACES=dir: a log)'
	@echo 'make bench-federation cells that share an etcd, and that etcd: swaps, watches, cells that come and go, jobs that move, mixes of the papers (QUICK=1: within a minute)'
	@echo 'make bench-esp    ESP with real jobs on 256 virtual nodes, seven minutes, beside what the simulator says (QUICK=1: within two minutes)'
	@echo 'make bench-cooperation reports of idle cores, loans and returns: CPU of the controller, times on 1,000 virtual nodes (QUICK=1: within half a minute)'
	@echo 'make bench-estimator accuracy, underestimates and cost of estimators on public logs (QUICK=1; TRACES=dir)'
	@echo 'make curves       draws the published curves and ours from a model of the network (docs/results)'
	@echo 'make sim          the simulator: SEEDS=$(SEEDS) clusters of 4-64 nodes, SEEDS_NEW=$(SEEDS_NEW) nobody has seen, SEEDS_LARGE=$(SEEDS_LARGE) of 2,000'
	@echo 'make verify-upgrade upgrades a running cluster from revision FROM while users submit'
	@echo 'make verify-compose a cluster of 2,050 nodes in containers, and everything it must survive (a container engine)'
	@echo 'make verify-contained VM=PROGRAM  jobs at the limits of their control groups, in a machine that PROGRAM starts'
	@echo 'make secrets      draws the secrets of the cluster in containers (docker-compose.yml), unless they are there'
	@echo 'make venv         the environment in VENV=$(VENV), and nothing else'
	@echo 'make lock         resolves the dependencies anew and locks them in requirements/'
	@echo 'make clean        removes what the tools leave behind; the environment stays'

venv: $(READY)

$(READY): scripts/venv.sh requirements/run.txt requirements/dev.txt pyproject.toml
	@sh scripts/venv.sh "$(VENV)" "$(PYTHON)"

demo: $(READY)
	@$(BIN)/python -P -m escli.local.demo

test: $(READY)
	@THOROUGH="$(THOROUGH)" exec sh scripts/test.sh "$(BIN)/python" $(TESTS) $(ARGS)

# Beside nothing else: what is attacked has to answer within milliseconds, too.
fuzz: $(READY)
	@$(BIN)/python -P -m tests.security.fuzz --seconds $(SECONDS)

integration: $(READY)
	@exec sh scripts/integration.sh "$(BIN)/python" $(ARGS)

# These compute and never wait: as many processes as cores.
worlds: $(READY)
	@exec $(BIN)/python -m pytest tests/sim --numprocesses=logical --dist=worksteal -p no:cacheprovider --durations=10 --durations-min=5 $(ARGS)

security: $(READY)
	@exec sh scripts/security.sh "$(BIN)/python" $(ARGS)

clients: $(READY)
	@exec sh scripts/clients.sh "$(BIN)/python" build/clients $(ARGS)

audit: $(READY)
	@$(BIN)/python scripts/audit.py

# One recipe, so that the stages run in this order and stop at the first that fails; those that only read the sources run
# side by side.
check: $(READY)
	@$(STAGE) lint $(MAKE) lint
	@$(STAGE) layers $(MAKE) layers
	@$(STAGE) proto $(MAKE) proto-check
	@$(STAGE) docs $(MAKE) docs-check
	@$(STAGE) site $(MAKE) site
	@$(MAKE) -j3 check-types check-audit check-collect
	@$(STAGE) test $(MAKE) test
	@$(STAGE) integration $(MAKE) integration
	@$(STAGE) worlds $(MAKE) worlds
	@$(STAGE) security $(MAKE) security
	@$(STAGE) clients $(MAKE) clients

check-types: $(READY)
	@$(STAGE) types $(MAKE) types

check-audit: $(READY)
	@$(STAGE) audit $(MAKE) audit

# The processes that run the tests would each compile all of them, in a new clone.
check-collect: $(READY)
	@$(STAGE) collect $(BIN)/python -m pytest --collect-only --quiet --quiet -p no:cacheprovider tests

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(READY)
	@$(BIN)/mypy
	@$(BIN)/mypy scripts tests/conftest.py tests/support tests/compose tests/unit/tooling
	@MYPYPATH=examples/mandelbrot $(BIN)/mypy examples/mandelbrot
	@MYPYPATH=examples/spin_images $(BIN)/mypy examples/spin_images
	@MYPYPATH=examples/predictor $(BIN)/mypy examples/predictor/thermal_predictor.py

layers: $(READY)
	@PYTHONPATH=$(SOURCES) $(BIN)/lint-imports

proto: $(READY)
	@$(BIN)/python scripts/proto.py

proto-check: $(READY)
	@$(BIN)/python scripts/proto.py --check

docs: $(READY)
	@$(BIN)/python scripts/docs.py

docs-check: $(READY)
	@$(BIN)/python scripts/docs.py --check

site: $(READY)
	@exec sh scripts/site.sh "$(BIN)/python" build/docs-env

man: $(READY)
	@PYTHONPATH=$(SOURCES) $(BIN)/python scripts/manual.py build/man

packages: $(READY)
	@exec sh scripts/packages.sh "$(BIN)/python" build/packages-env

bench: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run $(BENCH)

bench-relay: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run construct relay

bench-recovery: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run recovery

bench-plan: $(READY)
	@QUICK="$(QUICK)" TRACES="$(TRACES)" $(BIN)/python -m benchmarks.run plan

bench-estimator: $(READY)
	@QUICK="$(QUICK)" TRACES="$(TRACES)" $(BIN)/python -m benchmarks.run estimator

bench-federation: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run federation

bench-cooperation: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run cooperation

bench-esp: $(READY)
	@QUICK="$(QUICK)" $(BIN)/python -m benchmarks.run esp

curves: $(READY)
	@$(BIN)/python -m benchmarks.curves

sim: $(READY)
	@$(BIN)/eslurm sim --seeds $(SEEDS) --nodes 4-64 --quiet --require-coverage 1
	@$(BIN)/eslurm sim --seeds $(SEEDS_NEW) --from new --nodes 4-64 --quiet --failed tests/sim/failed_seeds.txt
	@$(BIN)/eslurm sim --seeds $(SEEDS_LARGE) --from 100001 --nodes 2000

verify-upgrade: $(READY)
	@sh scripts/verify_upgrade.sh "$(BIN)/python" "$(FROM)"

verify-compose: $(READY)
	@$(BIN)/python -m tests.compose $(ARGS)

verify-contained:
	@sh scripts/contained.sh "$(VM)"

secrets:
	@sh scripts/secrets.sh

lock: $(READY)
	@ARGS="$(ARGS)" sh scripts/lock.sh "$(BIN)/python"

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./.git -prune -o -path "./$(VENV)" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
