# Two commands set everything up on a fresh machine: `make run` and `make test`.
# A stamp file in .venv records what is installed, so a second call starts immediately.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Without compiled modules every process that the tests start would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Most installed modules are never imported here; the others are compiled on first import.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
INSTALLED := .venv/.installed
INSTALLED_TEST := .venv/.installed-test
INSTALLED_DOCS := .venv/.installed-docs
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# A process that crashes ends the run: xdist waits for ever for the files of its replacement.
BOTH_CORES := -q -n 2 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
NOT_SLOW := $(BOTH_CORES) -m "not slow"
FAST := $(BOTH_CORES) --hypothesis-profile=fast -m "not slow and not long and not browser and not processes"

.PHONY: help run docs notebooks pictures test test-fast test-slow coverage format bench bench-scripts models-matrix package clean
.PHONY: system-packages checks format-check lint types page-types

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A first translation with its alignment, then the explorer with all bundled models until Ctrl-C.
run: $(INSTALLED)  ## Set up if needed, translate a first sentence, then open the explorer
	@if [ -e regard/zoo/en-de/config.json ]; then \
	    $(BIN)/regard show en-de "The dog is sleeping on the sofa." || true; \
	elif [ -e regard/zoo/dates/config.json ]; then \
	    $(BIN)/regard show dates "Tuesday, 12 August 2021" || true; \
	else $(BIN)/regard work || true; fi; \
	echo; exec $(BIN)/regard serve --open

# Each step keeps both cores of a small machine busy. The tests of a file run in one process, so
# that fixtures are built once.
test:  ## Set up if needed, then check format, lint and types and run all tests
	@$(MAKE) -j2 $(INSTALLED_TEST) system-packages
	@$(MAKE) -j2 --output-sync=target checks
	$(PYTEST) $(NOT_SLOW)

test-fast: $(INSTALLED_TEST)  ## Run the short tests, which need no browser and start no processes
	$(PYTEST) $(FAST)

# Recording branches makes the tests 1.5 times as slow, so it is a separate command.
coverage: $(INSTALLED_TEST) system-packages  ## Run the tests of `make test` and list the branches that none of them covers
	$(PYTEST) $(NOT_SLOW) --cov --cov-report=term

checks: types format-check lint page-types

format-check: $(INSTALLED_TEST)
	$(BIN)/ruff format --check .

lint: $(INSTALLED_TEST)
	$(BIN)/ruff check .

types: $(INSTALLED_TEST)
	$(BIN)/pyright

COUNT ?= 9000
MINUTES ?= 10
fuzz: $(INSTALLED_TEST)  ## Try damaged input of every kind: make fuzz COUNT=100000 MINUTES=60
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count $(COUNT) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

faults: $(INSTALLED_TEST)  ## Kill, interrupt and starve commands, and check what is left: about 15 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

SECONDS ?= 120
load: $(INSTALLED_TEST)  ## Ask a server with 64 clients at once, and compare every answer: make load SECONDS=120
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.load --seconds $(SECONDS)

soak: $(INSTALLED_TEST)  ## Serve, translate and train together, and watch memory: make soak MINUTES=30
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.load.soak --minutes $(MINUTES)

sbom: $(INSTALLED)  ## List all dependencies with versions and licenses in sbom.json (CycloneDX)
	@$(BIN)/regard doctor --sbom > sbom.json && echo "sbom.json has $$(grep -c '"purl"' sbom.json) packages"

constraints: $(INSTALLED_TEST)  ## Write constraints.hashes.txt from constraints.txt and pypi.org
	$(BIN)/python -m tests.supply.hashes

test-slow: $(INSTALLED_TEST)  ## Run the tests that take a minute each: killed workers, resharded runs
	$(PYTEST) -q -m slow

format: $(INSTALLED_TEST)  ## Format the code and apply the linter's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED_TEST)  ## Measure speed compared with other libraries
	@for kind in attention complexity translate train; do \
	    echo "regard bench $$kind"; $(BIN)/regard bench $$kind; done

bench-scripts: $(INSTALLED_TEST)  ## Run the scripts of benchmarks/, which need a browser or data
	@for name in traces html_size serve page scaling shakespeare; do \
	    echo "benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py; done

models-matrix: $(INSTALLED_TEST)  ## Watch many architectures and write docs/models.md
	PYTHONPATH=. $(BIN)/python benchmarks/models_matrix.py

# The wheel is built from the source archive, so both are complete if it runs in an empty environment.
# The wheel is built twice: the same source gives the same bytes.
package: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
package: $(INSTALLED)  ## Build wheel and source archive, and try them in a fresh environment
	rm -rf build dist && mkdir -p dist
	$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	@for folder in dist build/again; do \
	    $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $$folder dist/regard-*.tar.gz; done
	cmp dist/regard-*.whl build/again/regard-*.whl
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(BIN)/python -m venv "$$fresh/venv"; pip="$$fresh/venv/bin/python -m pip install --quiet --disable-pip-version-check"; \
	echo "Installing the wheel into an empty environment"; \
	$$pip --constraint constraints.txt torch==2.13.0; $$pip --constraint constraints.txt dist/regard-*.whl; \
	cp tests/smoke.sh "$$fresh"; cd "$$fresh"; PATH="$$fresh/venv/bin:$$PATH" bash smoke.sh
	@ls -l dist

# Warnings are errors; neither building nor reading needs a network. (The variable silences a note of
# Material on its successor Zensical, of which a part was not on the registry when we tried it.)
docs: $(INSTALLED_DOCS)  ## Build the documentation in English and Korean into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html in a browser."

notebooks: $(INSTALLED_TEST)  ## Write examples/notebooks from the pages of Learn and three how-tos, and run them
	OMP_NUM_THREADS=1 $(BIN)/python docs/hooks/notebooks.py $(if $(TEXTS),--texts)

pictures: $(INSTALLED_TEST) system-packages  ## Redraw the explorer's pictures in docs/pictures
	$(BIN)/python docs/pictures/make.py

clean:  ## Remove the environment and everything that tools leave behind
	rm -rf .venv build dist site *.egg-info .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An interpreter is searched for only when there is no environment yet.
$(BIN)/python:
	@python=""; \
	for name in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$name"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "regard needs Python 3.11 or newer, and no such python3 was found: install one, or name it with make PYTHON=/path/to/python3." >&2; \
	    exit 1; \
	fi; \
	echo "Making .venv with $$("$$python" --version)"; \
	if ! "$$python" -c 'import ensurepip' 2>/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -qq -y python3-venv; \
	fi; \
	"$$python" -m venv .venv || { rm -rf .venv; exit 1; }

# torch is installed first and alone, so that the build the machine's pip prefers is kept.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing regard (torch is large: the first time takes minutes)"
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	@touch $@

$(INSTALLED_TEST): $(INSTALLED)
	@echo "Installing what the tests need"
	$(PIP) --editable '.[test]'
	@touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(PIP) --editable '.[docs]'
	@touch $@

# The page's modules have JSDoc types. Only this check needs npm, and the network only the first
# time; without them it prints a note and the other tests run.
TSC := .venv/node/node_modules/.bin/tsc
page-types: $(INSTALLED_TEST)
	@if [ ! -x $(TSC) ] && command -v npm >/dev/null; then \
	    npm install --silent --no-fund --no-audit --prefix .venv/node typescript@7.0.2 2>/dev/null || true; \
	fi; \
	if [ -x $(TSC) ]; then echo "$(TSC) --project jsconfig.json"; $(TSC) --project jsconfig.json; \
	else echo "The types of the page's modules were not checked because npm or its registry is not available."; fi

# The browser tests need Chromium, and pictures with Korean words need a font that has them.
system-packages: | $(BIN)/python
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	{ command -v fc-list >/dev/null && fc-list :lang=ko family | grep -q .; } || missing="$$missing fonts-noto-cjk fontconfig"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	    echo "Installing$$missing with apt-get"; \
	    apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; \
	else \
	    echo "Please install these system packages (names as on Debian), or tests that need them will fail:$$missing" >&2; \
	fi
