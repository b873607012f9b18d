# make demo   a venv, the package, and a report on a sample job
# make test   what the tests need, then the tests
# make lint   style, types (against an installed copy), direction of imports
# make docs   the pages of docs/ as a site, in site/
# make bench  ratios against peers on a generated trace

VENV    ?= .venv
PY      := $(VENV)/bin/python
PIP     := $(PY) -m pip --disable-pip-version-check --quiet
# What pip does for a copied package: where PYTHONDONTWRITEBYTECODE is set, every start would compile anew.
COMPILE := $(PY) -m compileall -q tracekit parsers rules
SAMPLE  := sample_traces/gpu-tp2-pp2-dp2
SOURCES := $(shell find tracekit parsers rules -name '*.py' -o -name '*.toml') pyproject.toml
CORE    := $(wildcard parsers/*.c parsers/*.h)

.PHONY: demo test lint docs bench clean

$(PY):
	@found=; for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	  if command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$p; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "tracekit needs Python 3.11 or newer; none was found on PATH" >&2; exit 1; fi; \
	$$found -m venv $(VENV)

$(VENV)/.run: $(PY) pyproject.toml $(CORE)
	@$(PIP) install -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(PY) pyproject.toml $(CORE)
	@$(PIP) install -e '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.run

# The type checker sees what users get: an installed copy, not the source tree.
$(VENV)/.lint: $(VENV)/.dev $(SOURCES)
	@rm -rf $(VENV)/wheel $(VENV)/typed
	@$(PIP) wheel --no-deps --wheel-dir $(VENV)/wheel .
	@$(PIP) install --no-deps --target $(VENV)/typed $(VENV)/wheel/*.whl
	@rm -rf build
	@touch $@

demo: $(VENV)/.run
	$(VENV)/bin/tracekit analyze $(SAMPLE) -o demo-out -f --steps
	@echo; echo "the dataset:"; ls demo-out

test: $(VENV)/.dev
	$(PY) -m pytest -n 2 --dist loadfile

lint: $(VENV)/.lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	cd $(VENV)/typed && ../bin/mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p tracekit
	$(PY) -m pytest -q tests/architecture

docs: $(VENV)/.dev
	$(PY) -m sphinx -q -W --keep-going -d $(VENV)/doctrees docs site
	@echo "the site: site/index.html"

bench: $(VENV)/.dev
	$(PY) benchmarks/run.py

clean:
	rm -rf $(VENV) build demo-out site .mypy_cache .ruff_cache .pytest_cache
