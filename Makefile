# One virtual environment serves everything; it is made once and again only when what it rests on changes.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PINS := requirements/ci.txt
PYTEST_ARGS ?=
BENCH_ARGS ?=

# Two test processes with two OpenMP threads each share two cores: waiting threads must not spin.
TEST_ENV := OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1

.DEFAULT_GOAL := help
.PHONY: help install demo demo-train test bench bench-record lint format docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The pinned torch first: nothing after it can bring in another one.
$(VENV)/.pinned: $(PINS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c $(PINS) torch setuptools
	$(PIP) --no-deps -r $(PINS)
	@touch $@

$(STAMP): $(VENV)/.pinned pyproject.toml setup.py
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

install: $(STAMP) ## Make .venv with the pinned packages and this checkout (editable)

demo: $(STAMP) ## Embed real sentences with real weights, eager and compiled, twice: cold, then warm
	$(BIN)/python examples/embed_sentences.py
	$(BIN)/python examples/embed_sentences.py

demo-train: $(STAMP) ## Train a small GPT on real text, eager and compiled side by side
	$(BIN)/python examples/train_gpt.py

test: $(STAMP) ## Run the test suite
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

bench: $(STAMP) ## Run the benchmarks and check them against their thresholds
	$(BIN)/python -m benchmarks --check $(BENCH_ARGS)

bench-record: $(STAMP) ## Run the benchmarks, keep the record, and write the README's table from it
	$(BIN)/python -m benchmarks --json benchmarks/record.json $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.readme benchmarks/record.json

# mypy cannot follow setuptools' package-dir, so it reads a tree of links in which the stage folders lie
# below neuron_compile, as they do when installed.
lint: $(STAMP) ## Run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/typed && mkdir -p build/typed/neuron_compile
	@ln -s $(CURDIR)/neuron_compile/* $(CURDIR)/lowering $(CURDIR)/passes $(CURDIR)/neff $(CURDIR)/cache \
		build/typed/neuron_compile/
	$(BIN)/mypy build/typed/neuron_compile benchmarks examples

format: $(STAMP) ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Write the generated documents anew
	$(BIN)/python docs/generate_architecture.py

clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist *.egg-info
