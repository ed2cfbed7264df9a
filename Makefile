# Two commands matter: `make demo` audits the bundled models and `make test` checks everything.
# Each does all of its own set-up in .venv; only Python 3.10 or newer and make are needed.

PYTHON ?= python3
VENV ?= .venv
OUT ?= out/demo
WORKERS ?= 2
PAGE_TOOLS ?= build/page-tools

BIN := $(VENV)/bin
# Older pips hand PIP_CONSTRAINT on to the isolated build, newer ones PIP_BUILD_CONSTRAINT: with both, hatchling is pinned.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1
INSTALL := $(PINNED) $(BIN)/python -m pip install --quiet --quiet

.PHONY: docs demo test test-slow test-page test-min fuzz sbom lint bench bench-real bench-peers clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/gen-audit twins samples/healthy.onnx samples/mnist --recipe samples/recipe.toml --budget 3m -o $(OUT)/twins
	$(BIN)/gen-audit report samples/healthy.onnx samples/mnist --twins $(OUT)/twins -o $(OUT)/healthy
	$(BIN)/gen-audit report samples/large-batch.onnx samples/mnist --twins $(OUT)/twins -o $(OUT)/large-batch -f html,json --baseline $(OUT)/healthy/report.json
	$(BIN)/gen-audit report samples/mislabelled.onnx samples/mnist-mislabelled -o $(OUT)/mislabelled -f html,json
	@echo "Three reports to open: $(OUT)/healthy/report.html (and .pdf), $(OUT)/large-batch/report.html, $(OUT)/mislabelled/report.html"
	@echo "The command is $(BIN)/gen-audit; to audit your own model: $(BIN)/gen-audit report MODEL DATA"

# Each worker has neighbouring tests, which share what they stand on, until one has nothing left to do.
test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

# The page in a real browser, with axe-core, and before the Nu Html Checker. Needs chromium, node with npm, and java.
test-page: $(VENV)/.installed-dev $(PAGE_TOOLS)/.installed
	GEN_AUDIT_PAGE_TOOLS=$(PAGE_TOOLS) GEN_AUDIT_PAGE_PICTURES=out/pages $(BIN)/python -m pytest tests/render/test_in_browser.py
	@echo "Pictures of every page at every width are in out/pages: look at them."

# Damaged files for every reader, by number: goes on where the last run stopped.
fuzz: $(VENV)/.installed-dev
	PYTHONPATH=tests:tests/support OMP_NUM_THREADS=1 $(BIN)/python -m fuzz $(FUZZ)

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-min: $(VENV)/.installed-dev
	$(PYTHON) -m venv build/oldest
	$(BIN)/python -m tests.support.oldest > build/oldest/requirements.txt
	build/oldest/bin/python -m pip install --quiet -r build/oldest/requirements.txt --editable . pytest hypothesis jsonschema onnxscript
	build/oldest/bin/python -m pytest -m "not slow" tests/model tests/data tests/cli tests/render

# A CycloneDX bill of materials of what users install, with licences; its tool stays out of what it lists.
sbom: $(VENV)/.installed
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet cyclonedx-bom==7.5.0
	@mkdir -p out
	build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-format JSON --output-file out/sbom.cdx.json $(BIN)/python
	@echo "out/sbom.cdx.json"

# The documentation, with a report made for it; a warning is an error, and nothing is fetched but the tools.
docs: $(VENV)/.installed-docs
	$(BIN)/gen-audit report samples/mislabelled.onnx samples/mnist-mislabelled -o build/docs-report -f html,md -q
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/docs/index.html."

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks $(BENCH)

bench-real: $(VENV)/.installed
	$(BIN)/python -m benchmarks.real $(BENCH)

# The peers on the same networks, once bench-real has made and audited them.
bench-peers: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.real.peers $(or $(BENCH),resnet18 toy-transformer)

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("gen-audit needs Python 3.10 or newer; name one, as in: make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@echo "Setting up $(VENV); the first time, this downloads a few hundred megabytes."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(PAGE_TOOLS)/.installed: Makefile
	@mkdir -p $(PAGE_TOOLS)
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(PAGE_TOOLS) axe-core@4.14.0 playwright-core@1.65.0 vnu-jar@26.9.27
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(INSTALL) --editable '.[bench]'
	@touch $@
