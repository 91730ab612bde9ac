# `make demo` and `make test` do all the set-up. `make dist` builds what is released. `make docs-site` builds the
# documentation. `make bench` measures the overhead.
VENV    := .venv
BIN     := $(VENV)/bin
DIST    := .venv-dist
DOCS    := .venv-docs
# The Python of the active virtual environment, unless that is our own .venv; otherwise python3 on PATH.
ACTIVE  := $(if $(VIRTUAL_ENV),$(filter-out $(abspath $(BIN))/python,$(wildcard $(VIRTUAL_ENV)/bin/python)))
PYTHON  ?= $(or $(ACTIVE),python3)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
SOURCES := $(wildcard $(PLUGINS:%=%/src))
TORCH_SPEC ?= $(shell sed -n '/^torch==/p' constraints.txt)
PIP     = $(BIN)/python -m pip --disable-pip-version-check install --quiet -c $(VENV)/constraints.txt
space   := $(subst ,, )

.PHONY: demo environments test test-all test-light lint audit audit-lists bench docs docs-site pictures golden dist clean ANEW

# The light part: it needs no torch and starts few processes. What simulates statistics says nothing about a Python.
LIGHT_TESTS := $(wildcard tests/test_*.py) \
  $(addprefix tests/,api bundle bundles compare events fleet kit messages metrics plan plausibility schemas spec)
ifneq (,$(filter test-light,$(MAKECMDGOALS)))
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
LIGHT   := $(VENV)-light-$(VERSION)$(if $(OLDEST),-oldest)
endif

demo: $(VENV)/.run
	$(BIN)/flagperf run distilbert

# All that `make test-all` needs, also `make -j2 environments`.
environments: $(VENV)/.dev $(DIST)/.ready $(DOCS)/.ready $(VENV)/.mlflow

test: lint  ## What a contributor can break, in ten minutes.
	$(BIN)/python -m pytest -n 2 --durations=15 -m 'not full'

test-all: test environments  ## And what is slow or rarely touched: other Pythons, clusters, browsers, models of their true size.
	$(BIN)/python -m pytest -n 2 --durations=15 -m full

test-light: $(LIGHT)/.ready  ## The light part on another Python: PYTHON=python3.12; OLDEST=1 with the oldest dependencies.
	$(LIGHT)/bin/python -m pytest -m 'not run and not full' --hypothesis-profile=light $(LIGHT_TESTS)

lint: $(VENV)/.dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/zizmor --offline --quiet .github
	MYPYPATH=$(subst $(space),:,$(SOURCES)) $(BIN)/python -m mypy $(if $(SOURCES),core cases bench $(SOURCES))

audit: audit-lists  ## Known vulnerabilities of what is installed or pinned; what cannot be looked up is a failure.
	@$(PYTHON) -m venv --clear $(VENV)-audit/env
	@$(VENV)-audit/env/bin/python -m pip --disable-pip-version-check install --quiet pip-audit
	@failed=0; for list in $(VENV)-audit/*.txt; do echo "$$list"; \
	  $(VENV)-audit/env/bin/pip-audit --strict --no-deps --disable-pip -r $$list || failed=1; done; exit $$failed

# A list for each environment, and one of the pins that none of them has (of another Python, or of a torch that is
# reused). In one list, two versions of a distribution would contradict each other.
audit-lists: $(VENV)/.dev $(DIST)/.ready $(DOCS)/.ready
	@rm -rf $(VENV)-audit && mkdir $(VENV)-audit
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' > $(VENV)-audit/venv.txt
	@$(DIST)/bin/python -m pip freeze | sed 's/+.*//' > $(VENV)-audit/dist.txt
	@$(DOCS)/bin/python -m pip freeze | sed 's/+.*//' > $(VENV)-audit/docs.txt
	@cat $(VENV)-audit/*.txt > $(VENV)-audit/all
	@sed -n 's/ *;.*//; /==/p' constraints.txt | grep -vixF -f $(VENV)-audit/all > $(VENV)-audit/pinned.txt || true

bench: $(VENV)/.dev
	$(BIN)/python -m bench

docs: $(VENV)/.dev  ## Write what is made from the source: parts of docs/, and the data in the cases' READMEs.
	$(BIN)/python tests/cli/write_cli_docs.py
	$(BIN)/python tests/metrics/write_metrics_docs.py
	$(BIN)/python tests/docs/write_api_docs.py
	$(BIN)/python tests/docs/write_licences.py
	$(BIN)/python tests/cases/write_data_docs.py
	$(BIN)/python tests/plausibility/write_plausibility_docs.py

docs-site: $(DOCS)/.ready  ## Build the documentation into site/; a warning or a broken link is a failure.
	$(DOCS)/bin/python docs/site/build.py site

pictures: $(VENV)/.dev  ## Make docs/pictures anew; needs a browser on PATH. Look at them before you commit them.
	$(BIN)/python tests/docs/write_pictures.py

golden: $(VENV)/.dev  ## Rewrite the golden pages; review the diff before you commit it.
	FLAGPERF_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/report

dist: $(DIST)/.ready  ## Build what is released: an sdist and, from it, a wheel, of flagperf and every adapter.
	rm -rf dist
	@for folder in . $(PLUGINS); do \
	  $(DIST)/bin/python -m build --quiet --no-isolation --outdir dist $$folder || exit 1; done
	$(DIST)/bin/python -m twine check --strict dist/*
	@ls dist

clean:
	rm -rf $(VENV) $(VENV)-* dist site build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- set-up ---------------------------------------------------------------------------------------------------------
# .unfinished exists while something is being installed: an interrupted set-up starts over. A torch that $(PYTHON) can
# import is reused, not reinstalled; otherwise the version in constraints.txt is installed.

define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
  { echo "flagperf needs Python 3.10 or later; choose another one with PYTHON=python3.11 make ..." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
  { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
endef

HAS_TORCH = -c 'import torch' 2>/dev/null
SITE_FOLDER = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
SEE_THROUGH = 'import sys; [print(f"import site; site.addsitedir({path!r})") for path in sys.path if path.endswith("-packages")]'

$(VENV)/.run: pyproject.toml VERSION constraints.txt $(PLUGINS:%=%/pyproject.toml) $(if $(wildcard $(VENV)/.unfinished),ANEW)
	$(CHECK_PYTHON)
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
	@$(PIP) 'hatchling>=1.27' editables
	@$(PIP) --no-build-isolation -e '.[run]' $(PLUGINS:%=-e %)
	@rm $(VENV)/.unfinished
	@touch $@

# A server to export to. It has an environment of its own: workers would import what it brings (scikit-learn, pandas).
$(VENV)/.mlflow: | $(VENV)/.dev
	@echo "setting up an MLflow server for the tests (850 MB, a minute or two)"
	@rm -rf $(VENV)/mlflow && $(BIN)/python -m venv $(VENV)/mlflow
	@$(VENV)/mlflow/bin/python -m pip --disable-pip-version-check install --quiet 'mlflow>=3'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@touch $(VENV)/.unfinished
	@$(PIP) --no-build-isolation -e '.[run,dev]'
	@rm $(VENV)/.unfinished
	@touch $@

# What builds the distributions: no torch, no linters.
$(DIST)/.ready: pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	@rm -rf $(DIST) && $(PYTHON) -m venv $(DIST)
	@$(DIST)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt build hatchling twine
	@touch $@

# What builds the documentation: jieba finds the words of Chinese pages for the search.
$(DOCS)/.ready: constraints.txt
	$(CHECK_PYTHON)
	@rm -rf $(DOCS) && $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt \
	  furo jieba myst-parser sphinx
	@touch $@

# For the light part. Dependencies are the oldest that pyproject.toml allows, or those of constraints.txt.
$(LIGHT)/.ready: pyproject.toml VERSION constraints.txt constraints-oldest.txt $(PLUGINS:%=%/pyproject.toml)
	$(CHECK_PYTHON)
	@rm -rf $(LIGHT) && $(PYTHON) -m venv $(LIGHT)
	@$(LIGHT)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints$(if $(OLDEST),-oldest).txt \
	  -e '.[light]' $(PLUGINS:%=-e ./%)
	@touch $@
