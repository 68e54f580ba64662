# Needs make and Python 3.11 or newer; everything else is installed into .venv.
PYTHON ?= python3
EXTRAS ?= dev,fit,integrations
BIN := .venv/bin
READY := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help alone bench check clean demo docs format lint test types

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(READY) ## Train with AP and with cross-entropy on wrong labels, where that helps and where it does not
	rm -rf runs/demo
	$(BIN)/directloss reproduce wrong-labels --out runs/demo/digits
	$(BIN)/directloss reproduce robustness --methods direct-ap,x-ent --noise 0,0.2 --seeds 4 --out runs/demo/shells

test: $(READY) ## Run all tests, doctests and the code in README and docs
	$(BIN)/python -m pytest -n auto --dist loadfile

check: lint types test docs alone ## All that CI runs: format, lint, types, tests, docs, the wheel

lint: $(READY) ## Check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY) ## Check types
	$(BIN)/mypy

bench: $(READY) ## Measure speed against sorting and cross-entropy
	$(BIN)/python -m benchmarks.speed

docs: $(READY) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

alone: $(READY) ## Build the wheel, install it into an empty environment, run the README's sample
	rm -rf build/alone
	$(BIN)/python -m pip wheel --quiet --no-deps -w build/alone .
	$(PYTHON) -m venv build/alone/venv
	build/alone/venv/bin/python -m pip install --quiet -c constraints.txt build/alone/*.whl
	cd build/alone && venv/bin/python ../../.ci/alone.py ../../README.md

format: $(READY) ## Format the code and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything that was made
	rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src repro tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml repro/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("directloss needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]" -e repro
	@touch $@
