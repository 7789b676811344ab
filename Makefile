# Every target needs only Python 3.11+ on PATH; the rest is set up in .venv and .cache.
SHELL := /bin/sh
.DEFAULT_GOAL := help
# pip must not run twice at a time in one environment: not in one make, nor in two.
.NOTPARALLEL:
LOCKED := tools/locked.py sh -ec
# By another make, for which this one has waited.
IS_DONE = [ $@ -nt pyproject.toml ] && [ $@ -nt requirements/run.txt ]
.PHONY: help run demo cluster test test-unit test-full lint bench wheel changelog audit pins protobuf clean test-setup

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check
# What comes from a package index is pinned with its hashes; our own tree is built with what was installed so.
PINNED := $(PIP) --require-hashes -r requirements/run.txt
OURSELVES := $(PIP) --no-deps --no-build-isolation -e .
PINS := pyproject.toml requirements/run.txt

# Of `make run`, which takes other free ports when these are taken; SERVE_ARGS are flags of `dragoman serve`.
PORT ?= 9092
ADMIN_PORT ?= 9644
DATA ?= data
# Of `make cluster`: the files of its etcd and S3.
CLUSTER ?= data-cluster
SERVE_ARGS ?=
# Where `make demo` finds the gateway; when `make run` had to take another port: BOOTSTRAP=127.0.0.1:PORT
BOOTSTRAP ?= 127.0.0.1:$(PORT)
TAKEN := "for Kafka clients" "make demo BOOTSTRAP=127.0.0.1:{port}"
PYTEST_ARGS ?=
BENCH_ARGS ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# Ctrl-C is how it is meant to end: make has nothing to complain of.
run: $(VENV)/.stamp-run ## start a gateway on 127.0.0.1:9092 in the foreground (PORT=, ADMIN_PORT=, DATA=, SERVE_ARGS= for others)
	@trap : INT; \
	listen=$$($(PY) tools/free_port.py "$(PORT)" $(TAKEN)) && \
	admin=$$($(PY) tools/free_port.py "$(ADMIN_PORT)" "for the admin pages") && \
	$(VENV)/bin/dragoman serve --listen "PLAINTEXT://127.0.0.1:$$listen" --admin "127.0.0.1:$$admin" \
	  --data-dir "$(DATA)" $(SERVE_ARGS); code=$$?; \
	if [ $$code -eq 5 ]; then echo "A second gateway needs a directory of its own: make run DATA=other" >&2; fi; \
	[ $$code -eq 130 ] || exit $$code

demo: $(VENV)/.stamp-run ## produce and consume through the gateway that `make run` started (PORT=, BOOTSTRAP=)
	@$(PY) -m gateway.cli.demo $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP))

cluster: $(VENV)/.stamp-test ## the same over etcd and S3 (SeaweedFS), started beside it (PORT=, ADMIN_PORT=, CLUSTER= for its files)
	@listen=$$($(PY) tools/free_port.py "$(PORT)" $(TAKEN)) && \
	admin=$$($(PY) tools/free_port.py "$(ADMIN_PORT)" "for the admin pages") && \
	exec $(PY) -m tools.cluster --directory "$(CLUSTER)" --port "$$listen" --admin-port "$$admin"

test: test-setup ## run all tests, end with a table of suites and skips
	@$(PY) -m tests.support.run_suites $(PYTEST_ARGS)

test-unit: $(VENV)/.stamp-test ## the unit tests, or those of PYTEST_ARGS, without setting up Kafka, Spark and Go
	@$(PY) -m tests.support.run_suites --unit $(PYTEST_ARGS)

test-full: test-setup ## the same, with the tests marked `full` (long runs)
	@DRAGOMAN_TEST_FULL=1 PYTEST_TIMEOUT=1800 $(PY) -m tests.support.run_suites $(PYTEST_ARGS)

lint: $(VENV)/.stamp-lint $(VENV)/.stamp-test ## ruff, mypy --strict, the import contracts, sizes, printed pages
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	sh tools/lint_extra.sh

bench: test-setup $(VENV)/.stamp-bench ## measure Apache Kafka and Dragoman side by side, write docs/performance.md
	@$(PY) -m bench.run $(BENCH_ARGS)

wheel: $(VENV)/.stamp-release ## build dist/*.tar.gz and dist/*.whl, install the wheel and serve with it
	@$(PY) tools/check_wheel.py

changelog: $(VENV)/.stamp-release ## print what changelog.d has for the next release
	@$(VENV)/bin/towncrier build --draft --version Unreleased

audit: $(VENV)/.stamp-audit $(VENV)/.stamp-run ## known vulnerabilities of the pinned packages, dist/sbom.json (needs a network)
	@mkdir -p dist
	@$(PY) -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --of JSON -o dist/sbom.json requirements/run.txt
	$(VENV)/bin/pip-audit --strict --disable-pip --progress-spinner off $(addprefix -r ,$(wildcard requirements/*.txt))

pins: $(VENV)/.stamp-audit ## write requirements/ from constraints.txt (needs a network)
	@$(PY) tools/pin_requirements.py

protobuf: $(VENV)/.stamp-protobuf ## write adapters/rpc/generated from adapters/rpc/*.proto
	@$(PY) tools/generate_protobuf.py

clean: ## remove the environment, caches and build output (not ./data)
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

test-setup: $(VENV)/.stamp-test $(VENV)/.stamp-spark
	@[ -d .cache ] || echo "Fetching and building what the tests use, once: some minutes" >&2
	@$(PY) -m tests.support.kafka
	@$(PY) -m tests.support.etcd
	@$(PY) -m tests.support.prometheus
	@$(PY) -m tests.support.spark
	@$(PY) -m tests.support.environments
	@$(PY) -m tests.e2e.client_go
	@$(PY) -m tests.support.go_tools

$(PY):
	@python=$$(for p in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	    $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done); \
	if [ -z "$$python" ]; then \
	  echo "Dragoman needs Python 3.11 or newer with venv and pip on PATH (make PYTHON=/path/to/python)." >&2; exit 1; fi; \
	$$python $(LOCKED) "[ -x $(PY) ] && exit; \
	  echo 'Setting up $(VENV) with $$($$python --version)' >&2; \
	  $$python -m venv --clear $(VENV); $(PIP) --require-hashes -r requirements/pip.txt"

# One stamp an extra, so that `make run` installs only what a gateway needs.
$(VENV)/.stamp-run: $(PINS) | $(PY)
	@$(PY) $(LOCKED) '$(IS_DONE) && exit; echo "Installing Dragoman" >&2; \
	  $(PINNED); $(OURSELVES); touch $@'

$(VENV)/.stamp-%: requirements/%.txt $(PINS) | $(PY)
	@$(PY) $(LOCKED) '$(IS_DONE) && [ $@ -nt requirements/$*.txt ] && exit; \
	  echo "Installing Dragoman and what \"$*\" needs" >&2; \
	  $(PINNED) -r requirements/$*.txt; $(OURSELVES); touch $@ $(VENV)/.stamp-run'
