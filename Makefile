# `make demo` and `make test` do all the set-up. `make dist` builds the wheels. `make bench` measures the overhead.
VENV    := .venv
BIN     := $(VENV)/bin
# The Python of the active virtual environment, unless that is our own .venv; otherwise python3 on PATH.
ACTIVE  := $(if $(VIRTUAL_ENV),$(filter-out $(abspath $(BIN))/python,$(wildcard $(VIRTUAL_ENV)/bin/python)))
PYTHON  ?= $(or $(ACTIVE),python3)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
SOURCES := $(wildcard $(PLUGINS:%=%/src))
TORCH_SPEC ?= $(shell sed -n '/^torch==/p' constraints.txt)
PIP     = $(BIN)/python -m pip --disable-pip-version-check install --quiet -c $(VENV)/constraints.txt
space   := $(subst ,, )

.PHONY: demo test lint bench docs golden dist clean ANEW

demo: $(VENV)/.run
	$(BIN)/flagperf run distilbert

test: lint
	$(BIN)/python -m pytest -n 2 --durations=15

lint: $(VENV)/.dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	MYPYPATH=$(subst $(space),:,$(SOURCES)) $(BIN)/python -m mypy $(if $(SOURCES),core cases bench $(SOURCES))

bench: $(VENV)/.dev
	$(BIN)/python -m bench

docs: $(VENV)/.dev  ## Write what is made from the source: half of docs/cli.md, the index of docs/metrics.md, docs/api.md.
	$(BIN)/python tests/cli/write_cli_docs.py
	$(BIN)/python tests/metrics/write_metrics_docs.py
	$(BIN)/python tests/docs/write_api_docs.py

golden: $(VENV)/.dev  ## Rewrite the golden pages; review the diff before you commit it.
	FLAGPERF_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/report

dist: $(VENV)/.dev  ## Build the wheels of flagperf and of every adapter in plugins/.
	rm -rf dist
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir dist \
	  . $(PLUGINS:%=./%)
	@ls dist

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- set-up ---------------------------------------------------------------------------------------------------------
# .unfinished exists while something is being installed: an interrupted set-up starts over. A torch that $(PYTHON) can
# import is reused, not reinstalled; otherwise the version in constraints.txt is installed.

HAS_TORCH = -c 'import torch' 2>/dev/null
SITE_FOLDER = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
SEE_THROUGH = 'import sys; [print(f"import site; site.addsitedir({path!r})") for path in sys.path if path.endswith("-packages")]'

$(VENV)/.run: pyproject.toml constraints.txt $(PLUGINS:%=%/pyproject.toml) $(if $(wildcard $(VENV)/.unfinished),ANEW)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "flagperf needs Python 3.10 or later; choose another one with PYTHON=python3.11 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (the first time takes a minute or two)"
	@if test -e $(VENV)/.unfinished || ! $(BIN)/python -c '' 2>/dev/null; then \
	  rm -rf $(VENV) && mkdir $(VENV) && touch $(VENV)/.unfinished && \
	  $(PYTHON) -m venv $(VENV) $$($(PYTHON) $(HAS_TORCH) && echo --system-site-packages); fi
	@touch $(VENV)/.unfinished
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@sed '/^torch==/d' constraints.txt > $(VENV)/constraints.txt
	@if ! $(BIN)/python $(HAS_TORCH) && $(PYTHON) $(HAS_TORCH); then \
	  $(PYTHON) -c $(SEE_THROUGH) > "$(SITE_FOLDER)/see_through.pth"; \
	  $(BIN)/python $(HAS_TORCH) || rm "$(SITE_FOLDER)/see_through.pth"; fi
	@$(BIN)/python $(HAS_TORCH) || $(PIP) '$(TORCH_SPEC)'
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' \
	  >> $(VENV)/constraints.txt
	@$(PIP) 'hatchling>=1.18' editables
	@$(PIP) --no-build-isolation -e '.[run]' $(PLUGINS:%=-e %)
	@rm $(VENV)/.unfinished
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@touch $(VENV)/.unfinished
	@$(PIP) --no-build-isolation -e '.[run,dev]'
	@rm $(VENV)/.unfinished
	@touch $@
