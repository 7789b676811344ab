# Every target needs only Python 3.11+ on PATH; the rest is set up in .venv and .cache.
SHELL := /bin/sh
.DEFAULT_GOAL := help
# pip must not run twice at a time in one environment.
.NOTPARALLEL:
.PHONY: help run demo test test-unit test-full lint bench clean test-setup

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt
PINS := pyproject.toml constraints.txt

# Of `make run`, which takes other free ports when these are taken; SERVE_ARGS are flags of `dragoman serve`.
PORT ?= 9092
ADMIN_PORT ?= 9644
DATA ?= data
SERVE_ARGS ?=
# Where `make demo` finds the gateway when `make run` had to take another port: BOOTSTRAP=127.0.0.1:PORT
BOOTSTRAP ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# Ctrl-C is how it is meant to end: make has nothing to complain of.
run: $(VENV)/.stamp-run ## start a gateway on 127.0.0.1:9092 in the foreground (PORT=, DATA=, SERVE_ARGS= for others)
	@trap : INT; \
	listen=$$($(PY) tools/free_port.py $(PORT) "for Kafka clients") && \
	admin=$$($(PY) tools/free_port.py $(ADMIN_PORT) "for the admin pages") && \
	$(VENV)/bin/dragoman serve --listen "PLAINTEXT://127.0.0.1:$$listen" --admin "127.0.0.1:$$admin" \
	  --data-dir "$(DATA)" $(SERVE_ARGS); code=$$?; \
	if [ $$code -eq 5 ]; then echo "A second gateway needs a directory of its own: make run DATA=other" >&2; fi; \
	[ $$code -eq 130 ] || exit $$code

demo: $(VENV)/.stamp-run ## produce and consume through the gateway that `make run` started
	@$(PY) -m gateway.cli.demo $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP))

test: test-setup ## run all tests, end with a table of suites and skips
	@$(PY) -m pytest $(PYTEST_ARGS)

test-unit: $(VENV)/.stamp-test ## the unit tests, or those of PYTEST_ARGS, without setting up Kafka, Spark and Go
	@$(PY) -m pytest $(if $(PYTEST_ARGS),$(PYTEST_ARGS),tests/unit)

test-full: test-setup ## the same, with the tests marked `full` (long runs)
	@DRAGOMAN_TEST_FULL=1 $(PY) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.stamp-lint $(VENV)/.stamp-test ## ruff, mypy --strict and the import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests/support tests/e2e tests/differential tests/hostile tools bench
	$(VENV)/bin/lint-imports --no-logo

bench: test-setup $(VENV)/.stamp-bench ## measure Apache Kafka and Dragoman side by side, write docs/performance.md
	@$(PY) -m bench.run $(BENCH_ARGS)

clean: ## remove the environment, caches and build output (not ./data)
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

test-setup: $(VENV)/.stamp-test $(VENV)/.stamp-spark
	@$(PY) -m tests.support.kafka
	@$(PY) -m tests.support.spark
	@$(PY) -m tests.support.environments
	@$(PY) -m tests.e2e.client_go

$(PY):
	@python=$$(for p in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	    $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done); \
	if [ -z "$$python" ]; then \
	  echo "Dragoman needs Python 3.11 or newer with venv and pip on PATH (make PYTHON=/path/to/python)." >&2; exit 1; fi; \
	echo "Setting up $(VENV) with $$($$python --version)" >&2; \
	$$python -m venv --clear $(VENV) && $(PY) -m pip install -qq --disable-pip-version-check "pip>=24"

# One stamp an extra, so that `make run` installs only what a gateway needs.
$(VENV)/.stamp-run: $(PINS) | $(PY)
	@echo "Installing Dragoman" >&2
	@$(PIP) -e .
	@touch $@

$(VENV)/.stamp-%: $(PINS) | $(PY)
	@echo "Installing Dragoman and what '$*' needs" >&2
	@$(PIP) -e '.[$*]'
	@touch $@ $(VENV)/.stamp-run
