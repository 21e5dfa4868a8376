# Two commands are all that a fresh clone needs: `make bench` and `make test`.
PYTHON ?= python3
# What the methods that have landed need, their rivals, and the tools. A test holds this against the registry.
EXTRAS := torch,tabular,games,graph,llm,federated,ray,lightning,vision,reasoning,bench,dev
BIN := .venv/bin

# Further real data, for tests and evidence rows that skip without it.
ifneq ($(wildcard ../shared/data),)
export THRIFTY_DATA ?= $(abspath ../shared/data)
endif

.PHONY: bench test check clean

bench: .venv/made  ## measure every method, and write report/index.html
	-$(BIN)/python -m thrifty.bench.carried  # what cannot be had costs its claims only
	$(BIN)/thrifty bench

test: .venv/made  ## run what is not slow, and one slow test a method
	$(BIN)/python -m pytest -m "not gpu and (not slow or ci)"

check: .venv/made  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove everything that was made here
	rm -rf .venv report dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)]"
	touch $@
