# `make serve` and `make test` need only python3 (3.11 or newer, with venv) and make.
PY ?= python3
VENV ?= .venv
ARGS ?=
# twice the cores: many tests wait for a process of their own, or for a timeout
WORKERS ?= 4
# the tests' files: in memory where 4 GB of it are free, which spares their databases the disk
TESTFILES ?= $(or $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }'),$(TMPDIR),/tmp)
BIN = $(VENV)/bin
LOCKS = requirements.txt requirements-dev.txt
PIP_LOCK = requirements-pip.txt
SUM := $(shell cat $(PIP_LOCK) $(LOCKS) pyproject.toml | cksum | cut -d' ' -f1)
EMPTY = $(VENV)/.empty-$(SUM)
STAMP = $(VENV)/.stamp-$(SUM)
# modules are compiled when they are first imported: most never are
# what is compiled is stored, also where the environment forbids it, as in many containers: a program starts twice as fast
unexport PYTHONDONTWRITEBYTECODE
PIP = $(BIN)/python -m pip -q --disable-pip-version-check
INSTALL = install --no-compile --no-deps
LOCKED = $(INSTALL) --require-hashes --only-binary :all: --no-binary oncalendar
MCP1 = $(VENV)/mcp1
MCP1_LOCK = tests/clients/requirements-mcp1.txt
MCP1_STAMP = $(MCP1)/.stamp-$(shell cksum < $(MCP1_LOCK) | cut -d' ' -f1)

SITE = $(VENV)/site
SITE_LOCK = requirements-docs.txt
SITE_STAMP = $(SITE)/.stamp-$(shell cksum < $(SITE_LOCK) | cut -d' ' -f1)

.PHONY: serve test lint types tests docs reference faults laws soak bench conformance pictures walks compat release venv lock help
serve: $(STAMP)           ## serve this campus; ARGS="--port 9000" and the like are passed on
	exec $(BIN)/campus serve $(ARGS)

test:                     ## everything that must hold before a change lands; ARGS=tests/keys runs those tests alone
	@$(MAKE) --no-print-directory -j 2 $(STAMP) $(MCP1_STAMP)
ifeq ($(strip $(ARGS)),)
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory -j 2 types tests  # mypy works on one core, and most tests wait
else
	$(MAKE) --no-print-directory tests
endif

lint: $(STAMP)            ## style, and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

types: $(STAMP)           ## mypy --strict
	$(BIN)/mypy

tests: $(STAMP) $(MCP1_STAMP)   ## all tests, with branch coverage; with ARGS, what pytest makes of them, without it
	$(BIN)/python -m compileall -q -j 0 twins campus buildings  # once: not in each worker, and in each process that a test starts
	@folder=$$(mktemp -d $(TESTFILES)/campus-tests-XXXXXX) && trap 'rm -rf "$$folder"' EXIT && trap 'exit 130' INT TERM && \
	TMPDIR=$$folder BRANCH_COVERAGE=$(if $(strip $(ARGS)),,1) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q $(ARGS)

bench: $(STAMP)           ## the figures that matter, as ratios from one run
	$(BIN)/python -m benchmarks $(ARGS)

faults: $(STAMP)          ## kill -9, outages, full disks, hostile callers: every row of docs/faults.md, whose table it writes; 40 minutes
	PYTHONPATH=tests $(BIN)/python -m pytest -p lab.faults.table -m faults -o python_files='test_*.py tests/lab/faults/*.py' -q $(ARGS)

laws: $(STAMP)            ## ten times the examples of each law
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m hypothesis -n $(WORKERS) --dist worksteal -q $(ARGS)

MINUTES ?= 60
soak: $(STAMP)            ## half of the peak load for MINUTES, and whether memory stays flat
	$(BIN)/python -m pytest -q tests/lab/soak.py
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) $(ARGS)

conformance: $(STAMP) $(MCP1_STAMP)   ## pages that are followed, servers of every kind as they are bare, the protocol's suite and Inspector, stock clients that connect and pay, crawlers, generated clients, Schemathesis in full, accessibility, docs/operate.md by a systemd; needs npm and chromium, and root for the last
	$(if $(strip $(ARGS)),,$(BIN)/python -m pytest -q tests/lab/pages.py tests/lab/private_names.py)
	PYTHONPATH=tests $(BIN)/python -m lab.conformance $(ARGS)

walks: $(STAMP)           ## walks through the shop in a browser, by card, wallet, keyboard, without scripts and with a server that is killed: clicks and seconds
	$(BIN)/python -m pytest -q -s tests/lab/walks.py $(ARGS)

INTO ?= $(shell echo $${TMPDIR:-/tmp})/campus-pictures
pictures: $(STAMP)        ## every page in every state, phone and desktop, light and dark, as a sheet to look at, in INTO; needs chromium
	PYTHONPATH=tests $(BIN)/python -m lab.pictures --into $(INTO) $(ARGS)

docs: reference $(SITE_STAMP)   ## the documentation as a site, in dist/docs; a warning, such as a dead link, is an error
	$(SITE)/bin/zensical build --strict --clean

reference: $(STAMP)       ## write the pages of docs/ that follow from the code
	PYTHONPATH=tests $(BIN)/python -m reference

# the oldest without pyproject.toml's override, which would bring FastMCP's newest code: there each fastmcp-tasks has its own FastMCP
COMPAT = -e '.[payments,cards,chain,postgres,s3,tasks]'
compat: $(MCP1_STAMP)     ## all tests on the oldest Python and versions, and on the newest versions, each in an environment of its own; needs uv
	set -e; for versions in lowest-direct highest; do \
		case $$versions in lowest*) python=3.11; uv="uv --no-config" ;; *) python=$(BIN)/python; uv=uv ;; esac; \
		uv venv -q --clear --python $$python $(VENV)/$$versions; \
		$$uv pip install -q --python $(VENV)/$$versions --resolution $$versions $(COMPAT); \
		$$uv pip install -q --python $(VENV)/$$versions $(COMPAT) --group dev; \
		$(VENV)/$$versions/bin/python -m pytest -n $(WORKERS) --dist worksteal -q $(ARGS); \
	done

release: $(STAMP)         ## build and check what would be uploaded, and its CycloneDX SBOM, into dist/; uploads nothing; needs uv
	rm -rf dist
	$(BIN)/python -m hatchling build
	uvx -q twine@7.0.0 check --strict dist/*
	uvx -q check-wheel-contents@0.6.3 dist/*.whl
	uvx -q --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json requirements.txt
	cd dist && sha256sum * > SHA256SUMS
	@echo 'Nothing is uploaded: go on with "Release" in CONTRIBUTING.md.'

venv: $(STAMP)            ## prepare .venv and stop
# pip is renewed first: that of Python 3.11 takes three times as long to find the packages
$(EMPTY): $(PIP_LOCK) $(LOCKS) pyproject.toml
	@echo "Preparing $(VENV): the locked packages are downloaded, checked and installed. Nothing is shown for a minute or two; this happens once."
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PY) -m venv --clear $(VENV)
	$(PIP) $(LOCKED) -r $(PIP_LOCK)
	touch $@

$(STAMP): $(EMPTY)
	$(PIP) $(LOCKED) $(foreach lock,$(LOCKS),-r $(lock))
	$(PIP) $(INSTALL) --no-build-isolation -e .
	touch $@

# A client of the protocol's first generation, for the tests, in a virtual environment of its own
$(MCP1_STAMP): $(MCP1_LOCK) $(EMPTY)
	$(PY) -m venv --clear --without-pip $(MCP1)
	$(PIP) --python $(MCP1)/bin/python $(LOCKED) -r $(MCP1_LOCK)
	touch $@

# What builds the documentation, in a virtual environment of its own
$(SITE_STAMP): $(SITE_LOCK) $(EMPTY)
	$(PY) -m venv --clear --without-pip $(SITE)
	$(PIP) --python $(SITE)/bin/python $(LOCKED) -r $(SITE_LOCK)
	touch $@

COMPILE = uv pip compile -q --upgrade --universal --only-binary :all: --no-binary oncalendar --generate-hashes --no-header --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-emit-build-options
lock:                     ## write the locks anew, the second on the versions of the first; needs uv
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements-dev.txt
	$(COMPILE) pyproject.toml --extra payments --extra cards --extra postgres --extra apprise -c requirements-dev.txt -o requirements.txt
	echo pip | $(COMPILE) - -o $(PIP_LOCK)
	echo "zensical>=0.0.73,<0.1" | $(COMPILE) - -o $(SITE_LOCK)

help:                     ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile
