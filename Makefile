# `make run` and `make test` work on a fresh machine with Python 3.11: each sets up .venv by itself.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# The same with the tools of developers.
READY := $(VENV)/.ready

RUNS := runs/demo
REPORT := report

.PHONY: run serve test test-all smoke test-portable browser lint docs bench fuzz chaos mutation clean
.DEFAULT_GOAL := help

help:
	@echo "make run            train on the embedded dataset without and with Class Normalization, write $(REPORT)/"
	@echo "make serve          train on the embedded dataset in seconds, open a page for it on http://127.0.0.1:8000"
	@echo "make test           run the tests"
	@echo "make test-all       run the slow ones too: a browser, examples, kills; the wheel and the lowest versions"
	@echo "make test-portable  repeat the numerical tests under other instruction sets and thread counts"
	@echo "make browser        install Chromium for the tests of pages (Debian and Ubuntu, as root)"
	@echo "make lint           ruff, mypy, import-linter, duplicate code"
	@echo "make docs           build the documentation as a website, site/index.html"
	@echo "make fuzz           read CASES=10000 damaged and hostile files"
	@echo "make chaos          kill, stop and starve commands FAULTS=100 times (Linux)"
	@echo "make mutation       change the mathematics in 150 places; do the tests notice?"
	@echo "make bench          measure the speed on this machine, beside a plain PyTorch loop"

# Rebuilt only when what is installed has changed; PyTorch first, so that nothing pulls another build of it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "classnorm needs Python 3.11 or later: set PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) -c constraints.txt -e '.[serve]'
	@touch $@

$(READY): $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

# Three seeds, one validation split, small models: about a minute on 2 cores. The README's table has ten seeds.
DEMO := glyphs-light --seeds 3 --validation-splits 1
MLP := $(DEMO) --hidden 512 --epochs 25

run: $(INSTALLED)
	$(BIN)/classnorm train $(MLP) --recipe baseline --out $(RUNS)/baseline
	$(BIN)/classnorm train $(MLP) --recipe reference --out $(RUNS)/reference
	$(BIN)/classnorm train $(MLP) --recipe baseline --final-relu False --out $(RUNS)/baseline-no-relu
	$(BIN)/classnorm train $(MLP) --recipe reference --final-relu False --out $(RUNS)/reference-no-relu
	$(BIN)/classnorm train $(DEMO) --method kernel --out $(RUNS)/kernel
	$(BIN)/classnorm report $(RUNS) --out $(REPORT) --title "glyphs: baseline, Class Normalization, kernel prototypes"
	@echo "open $(REPORT)/index.html"

serve: $(INSTALLED)
	$(BIN)/classnorm serve --models runs/saved

# One worker per core (at most 4) with one thread each; the tests of a file stay together, they share what they train.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=10 --dist loadfile \
	-n $$($(BIN)/python -c "import os; print(min(4, os.cpu_count() or 1))")

test: $(READY)
	$(PYTEST) -m "not slow and not long"

test-all: test smoke
	$(PYTEST) -m "slow or long"

# The wheel without the repository, with the current and with the lowest versions of what it needs.
smoke: $(READY)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	grep '^torch==' constraints.txt >dist/torch.txt
	$(BIN)/python tools/smoke_test.py dist/*.whl --constraints constraints.txt
	$(BIN)/python tools/smoke_test.py dist/*.whl --constraints constraints-lowest.txt dist/torch.txt

# Other processors round products differently: the numerical tests, as an old and as a newer machine would run them.
NUMERICAL := tests/nn tests/metrics tests/training tests/methods tests/scoring tests/continual tests/lab/diagnoses tests/lab/rivals \
	tests/test_estimator.py
OLD := ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem \
	NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
NEWER := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell

# scikit-learn compares scores of a row in different batches in float64.
INVARIANCE := tests/test_estimator.py -k "subset_invariance or comes_with"

test-portable: $(READY)
	$(OLD) $(PYTEST) -m "not slow and not long" $(NUMERICAL)
	$(OLD) $(BIN)/python -m pytest $(INVARIANCE)
	$(NEWER) OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m "not slow and not long" $(NUMERICAL)
	$(NEWER) OMP_NUM_THREADS=2 $(BIN)/python -m pytest $(INVARIANCE)

# Without a browser the tests of pages are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium; } \
		>/dev/null 2>&1 || echo "Chromium cannot be installed with apt-get here: the tests of pages will be skipped"

# New damaged and hostile files, as many as one likes; counts in fuzz-counts.json.
CASES ?= 10000

fuzz: $(READY)
	CLASSNORM_FUZZ=$(CASES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:xdist tests/fuzz

# Commands that are killed, stopped, starved of disk and run twice; the table at the end counts what was lost.
FAULTS ?= 100
SEED ?= 0

chaos: $(READY)
	$(BIN)/python tests/chaos/faults.py --faults $(FAULTS) --seed $(SEED)

mutation: $(READY)
	$(BIN)/python tools/mutation.py --mutants 150 --seed $(SEED)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pylint src/classnorm src/classnorm_lab

# Strict: a broken link or a page that is not in the navigation is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; with the search, run $(BIN)/python -m http.server -d site and open http://localhost:8000"

bench: $(READY)
	$(BIN)/classnorm bench
	$(BIN)/python benchmarks/classes.py
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf $(RUNS) $(REPORT) site
