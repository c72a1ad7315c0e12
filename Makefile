# Every target sets itself up: all that is needed is Python 3.11 or newer. `make` lists the targets.
#
#   PYTHON=python3.12 make test     with another Python
#   VENV=/tmp/venv make test        in another environment

PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help install demo test test-gpu lint clean same-python
.DELETE_ON_ERROR:

help:
	@echo "make demo      install and run the demonstration"
	@echo "make test      install and run the tests"
	@echo "make test-gpu  compare the fast implementation with the plain one on a GPU of NVIDIA's"
	@echo "make lint      install and check style, types and the direction of imports"
	@echo "make install   install the actsafe command into $(VENV)"
	@echo "make clean     delete $(VENV) and everything else that was built"

install: $(VENV)/.installed-runtime

demo: $(VENV)/.installed-runtime
	$(VENV)/bin/actsafe demo

test: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

# The tests' dependencies, and JAX for CUDA.
test-gpu: $(VENV)/.installed-test,cuda
	ACTSAFE_TEST_PLATFORM=cuda $(VENV)/bin/python -m pytest -m parity tests/contract/test_plain_and_fast.py

lint: $(VENV)/.installed-lint
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/lint-imports

# Without bytecode the installation takes about half as long; Python writes what it needs on first use.
$(VENV)/.installed-runtime: pyproject.toml $(VENV)/.created | same-python
	@echo "Installing actsafe into $(VENV), once; this takes about half a minute ..."
	@$(PIP) install --no-compile --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml $(VENV)/.created | same-python
	@echo "Installing actsafe[$*] into $(VENV), once; this takes about a minute ..."
	@$(PIP) install --editable '.[$*]'
	@touch $@ $(VENV)/.installed-runtime

# The checks are written so that any Python, even 2, can read them.
$(VENV)/.created:
	@command -v $(PYTHON) > /dev/null || { \
	    echo "error: found no '$(PYTHON)'; actsafe needs Python 3.11 or newer." >&2; \
	    echo "Install one, or name one that you have: PYTHON=/path/to/python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	    "error: $(PYTHON) is Python %d.%d; actsafe needs 3.11 or newer.\n" % sys.version_info[:2] + \
	    "Install one, or name one that you have: PYTHON=python3.12 make ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	    echo "error: $(PYTHON) came without the modules venv and ensurepip, which make the environment $(VENV)." >&2; \
	    echo "Install them (on Debian and Ubuntu: sudo apt install python3-venv), then run make again." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# A PYTHON that was asked for by name must be the one that the environment has.
same-python: $(VENV)/.created
ifneq ($(origin PYTHON),file)
	@have=$$($(VENV)/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	want=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	test "$$have" = "$$want" || { \
	    echo "error: $(VENV) was made with Python $$have, but PYTHON=$(PYTHON) is $$want." >&2; \
	    echo "Run make clean first, or use another environment: VENV=.venv-$$want PYTHON=$(PYTHON) make ..." >&2; \
	    exit 1; }
endif

clean:
	@if test -f $(VENV)/pyvenv.cfg; then rm -rf $(VENV); fi
	rm -rf build dist src/*.egg-info .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
