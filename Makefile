# Needs make and Python 3.11 or newer; everything else is installed into .venv.
PYTHON ?= python3
EXTRAS ?= dev,fit,integrations
BIN := .venv/bin
READY := .venv/.installed
DEMO := .venv/.demo
NEW_ENOUGH := 'import sys; sys.exit("directloss needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
# The tests of the losses themselves: they need no extra.
OLDEST := tests/tasks tests/metrics tests/test_contract.py tests/test_engine.py tests/test_kernels.py tests/test_bad_input.py \
  tests/test_surrogates.py tests/test_noise.py tests/test_memory.py tests/test_full_batch.py tests/test_half_precision.py

.DEFAULT_GOAL := help
.PHONY: help alone bench check clean demo dist docs format lint oldest test types

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(DEMO) ## Train with AP and with cross-entropy: clean labels, where it hardly matters, then wrong ones
	rm -rf runs/demo
	$(BIN)/directloss reproduce robustness --methods direct-ap,x-ent --noise 0 --seeds 4 --out runs/demo/shells
	$(BIN)/directloss reproduce wrong-labels --out runs/demo/digits

test: $(READY) ## Run all tests, doctests and the code in README and docs
	$(BIN)/python -m pytest -n auto --dist loadfile

check: lint types test alone ## All that CI runs: format, lint, types, tests (which build the docs), the packages

lint: $(READY) ## Check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY) ## Check types
	$(BIN)/mypy

bench: $(READY) ## Measure speed against sorting and cross-entropy
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.first_call
	$(BIN)/python -m benchmarks.uniloss_speed
	$(BIN)/python -m benchmarks.counting

docs: $(READY) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(READY) ## Build the source distribution, from it the wheel, and check both
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python .ci/dist.py dist

alone: dist ## Install the wheel into an empty environment, run the README's sample
	rm -rf build/alone
	$(PYTHON) -m venv build/alone
	build/alone/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd build/alone && bin/python ../../.ci/alone.py ../../README.md && bin/directloss doctor

oldest: $(READY) ## Test the losses with the oldest versions allowed, PyTorch's too (a download of up to 3 GB; not in CI)
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet $$($(BIN)/python .ci/oldest.py pyproject.toml)
	PYTHONPATH=$(CURDIR)/src build/oldest/bin/python -m pytest -m "not slow" $(OLDEST)

format: $(READY) ## Format the code and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything that was made
	rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src repro tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The demo needs no tool of ours, so it does not wait for them.
$(DEMO): pyproject.toml repro/pyproject.toml constraints.txt
	@$(PYTHON) -c $(NEW_ENOUGH)
	@test -e $(READY) || $(PYTHON) -m venv .venv
	@test -e $(READY) || $(BIN)/python -m pip install --quiet -c constraints.txt -e . -e repro
	@touch $@

$(READY): pyproject.toml repro/pyproject.toml constraints.txt
	@$(PYTHON) -c $(NEW_ENOUGH)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]" -e repro
	@touch $@
