# `make demo` and `make test` do all the set-up; `make bench` measures what flagperf itself costs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH_SPEC ?= $(shell sed -n '/^torch==/p' constraints.txt)
PIP     = $(BIN)/python -m pip --disable-pip-version-check install --quiet -c $(VENV)/constraints.txt

.PHONY: demo test lint bench docs golden clean

demo: $(VENV)/.run
	$(BIN)/flagperf run distilbert

test: lint
	$(BIN)/pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m bench

docs: $(VENV)/.dev  ## Write docs/cli.md anew from the commands' own help.
	$(BIN)/python tests/cli/write_cli_docs.py

golden: $(VENV)/.dev  ## Write the golden pages anew; look at the difference before you commit it.
	FLAGPERF_UPDATE_GOLDEN=1 $(BIN)/pytest tests/report

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A torch that can be imported already is kept as it is; else the one of constraints.txt is installed.
$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "flagperf needs Python 3.10 or later; PYTHON=python3.11 make ... chooses another one" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (the first time takes a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  $$($(PYTHON) -c 'import torch' 2>/dev/null && echo --system-site-packages)
	@sed '/^torch==/d' constraints.txt > $(VENV)/constraints.txt
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) '$(TORCH_SPEC)'
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' \
	  >> $(VENV)/constraints.txt
	@$(PIP) -e '.[run]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(PIP) -e '.[run,dev]'
	@touch $@
