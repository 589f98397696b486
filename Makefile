# make demo   sets up .venv, trains a translator on the built-in corpus, scores it and draws what it looked at
# make test   sets up .venv with everything the tests need and runs all of them
# make check  the fast loop: format, lint, types, fast tests
# make docs   builds the documentation into site/
# make bench  the measurements, one JSON line each

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA := $(wildcard ../shared/data)
ifneq ($(DATA),)
export REGARD_DATA ?= $(abspath $(DATA))
endif
# the browser that pages are tested in: the one that is here, or Debian's where we may install it
BROWSER := for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null

.PHONY: demo test check docs bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[serve]"
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@($(BROWSER)) || echo "no chromium could be installed: the tests of the pages in a browser will be skipped"
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/regard demo

test: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --quiet
	$(BIN)/pytest -n 2

check: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m 'not slow' -x

docs: $(VENV)/.test
	$(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
