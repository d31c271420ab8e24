# Everything from a fresh checkout; each target sets up .venv itself. Python 3.11 or newer and make are
# all that must be there. PYTHON=... chooses the interpreter, ARGS=... adds arguments.

VENV ?= .venv
PYTHON ?=
ARGS ?=
BIN := $(VENV)/bin
DEMO := $(VENV)/.stamp-demo
DEV := $(VENV)/.stamp-dev
NOT_DEFAULT := slow or docker or model or net or compat

.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean

help:
	@echo "make demo    one episode on real MCP servers, then what each variant costs (out/demo)"
	@echo "make test    the default tests"
	@echo "make check   formatting, types, floors, documents"
	@echo "make bench   every number that the README states (benchmarks/results)"
	@echo "make clean   remove .venv, out and caches of tools"

$(DEMO): pyproject.toml .ci/setup .ci/constraints.txt
	@PYTHON="$(PYTHON)" sh .ci/setup "$(VENV)" monty,viewer
	@touch $@

$(DEV): pyproject.toml .ci/setup .ci/constraints.txt
	@PYTHON="$(PYTHON)" sh .ci/setup "$(VENV)" dev
	@touch $(DEMO) $@

demo: $(DEMO)
	@$(BIN)/atlas-gym demo $(ARGS)

test: $(DEV)
	@$(BIN)/atlas-gym servers install --all || echo "Tests of servers that are missing are skipped."
	@$(BIN)/python -m pytest -m "not ($(NOT_DEFAULT))" $(ARGS)

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q $(wildcard tests/test_contracts.py tests/test_readme.py tests/docs) $(ARGS)

bench: $(DEV)
	$(BIN)/python -m benchmarks.step_overhead
	$(BIN)/python -m benchmarks.context
	$(BIN)/python -m benchmarks.reset
	$(BIN)/python -m benchmarks.capacity
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.chaos

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
