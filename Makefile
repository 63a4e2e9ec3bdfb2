# `make serve` and `make test` need only python3 (3.11 or newer, with venv) and make.
PY ?= python3
VENV ?= .venv
ARGS ?=
BIN = $(VENV)/bin
LOCKS = requirements.txt requirements-dev.txt
STAMP = $(VENV)/.stamp-$(shell cat $(LOCKS) pyproject.toml | cksum | cut -d' ' -f1)
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
SOURCES = twins campus buildings

.PHONY: serve test lint types tests bench conformance venv lock help
serve: $(STAMP)           ## serve this campus; ARGS="--port 9000" and the like are passed on
	exec $(BIN)/campus serve $(ARGS)

test: lint types tests    ## everything that must hold before a change lands

lint: $(STAMP)            ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)           ## mypy --strict
	$(BIN)/mypy

tests: $(STAMP)           ## all tests, with branch coverage
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term -q $(ARGS)

bench: $(STAMP)           ## the figures of the README, as ratios from one run
	$(BIN)/python -m benchmarks $(ARGS)

conformance: $(STAMP)     ## the protocol's conformance suite and Schemathesis in full; needs node
	$(BIN)/python -m tests.conformance $(ARGS)

venv: $(STAMP)            ## prepare .venv and stop
$(STAMP): $(LOCKS) pyproject.toml
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PY) -m venv --clear $(VENV)
	$(PIP) --require-hashes --only-binary :all: --no-deps $(foreach lock,$(LOCKS),-r $(lock))
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

COMPILE = uv pip compile -q --upgrade --universal --only-binary :all: --generate-hashes --no-header --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-emit-build-options
lock:                     ## write both locks anew, the second on the versions of the first; needs uv
	$(COMPILE) pyproject.toml --group dev -o requirements-dev.txt
	$(COMPILE) pyproject.toml -c requirements-dev.txt -o requirements.txt

help:                     ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile
