# `make serve` and `make test` need only python3 (3.11 or newer, with venv) and make.
PY ?= python3
VENV ?= .venv
LOCKS = requirements.txt requirements-dev.txt
STAMP = $(VENV)/.stamp-$(shell cat $(LOCKS) pyproject.toml | cksum | cut -d' ' -f1)
PIP = $(VENV)/bin/python -m pip install -q --disable-pip-version-check

$(STAMP): $(LOCKS) pyproject.toml
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PY) -m venv --clear $(VENV)
	$(PIP) --require-hashes --only-binary :all: --no-deps $(foreach lock,$(LOCKS),-r $(lock))
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

.PHONY: venv
venv: $(STAMP)
