# Everything runs from a .venv inside the checkout, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRITON36 := .triton36
REHEARSAL := build/rehearsal
OVER_SSH := build/rehearsal-ssh
# One more than the two cores that the project promises to be content with: tests of faults and of
# SSH wait for leases and for processes.  A worker whose queue is empty takes over half of another's,
# and tests of one file stay together as long as they can, since they share processes.
WORKERS ?= 3
PYTEST := -m pytest -n $(WORKERS) --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# pip builds this package in an isolated environment; its tools are pinned like everything else.
# The name is relative: pip splits these at blanks, and the path of a checkout may hold some.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
# Tests start thousands of processes; each would compile what the one before it had compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: rehearse rehearse-ssh slurm test lint test-triton36 wheel clean

rehearse: $(STAMP)
	rm -rf $(REHEARSAL)
	mkdir -p $(dir $(REHEARSAL))
	$(BIN)/python -m pp4 pair-qualify --dry-run --out $(REHEARSAL)
	$(BIN)/python -m pp4 verify-receipt --kind rehearsal $(REHEARSAL)/*.json

# The same over SSH: a server on this machine (openssh-server), a HOLD on it, no GPU touched.
rehearse-ssh: $(STAMP)
	rm -rf $(OVER_SSH)
	$(BIN)/python -m tests.ssh.loopback $(OVER_SSH)
	$(BIN)/python -m pp4 verify-receipt --kind rehearsal $(OVER_SSH)/rehearsal-????????????????.json

# A fleet of rehearsals through a real Slurm on this machine (slurm-wlm, munge), some minutes long.
slurm: $(STAMP)
	$(BIN)/python -m tests.slurm.run

# Mypy has one core.  On the other one the tests are collected once, so that Python keeps what it
# compiled of them, and the workers need not all do that at once.
test: $(STAMP)
	@mkdir -p build
	@$(BIN)/python -m pytest --collect-only -qq >build/collected.log 2>&1 & collecting=$$!; \
	    linted=0; $(MAKE) --no-print-directory lint || linted=$$?; \
	    wait $$collecting || { tail -n 40 build/collected.log; exit 1; }; \
	    exit $$linted
	$(BIN)/python $(PYTEST)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The kernels promise Triton 3.6 as well; it is laid in front of the pinned one, not over it.  What
# is torch alone need not run again.
test-triton36: $(STAMP) $(TRITON36)/.installed
	PYTHONPATH="$(CURDIR)/$(TRITON36)" $(BIN)/python -c \
	    "import triton; v = triton.__version__; raise SystemExit(not v.startswith('3.6.') and v)"
	PYTHONPATH="$(CURDIR)/$(TRITON36)" $(BIN)/python $(PYTEST) \
	    --ignore-glob='*/test_vectorised*' tests/kernels

wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf $(VENV) $(VENV)-light $(TRITON36) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pp4 needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[gpu,mini,dev]'
	touch $@

# The pins name another Triton, so this one install goes without them.
$(TRITON36)/.installed: $(STAMP)
	rm -rf $(TRITON36)
	env -u PIP_CONSTRAINT $(BIN)/python -m pip install -q --no-deps --target $(TRITON36) triton==3.6.0
	touch $@
