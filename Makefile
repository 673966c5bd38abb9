# Every target creates .venv and installs what it needs; a machine needs only Python 3.11+, pip and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
export INNERLOOP_TEST_DATA ?= $(wildcard ../shared/data)

.PHONY: help demo test test-slow test-oldest browser test-trackers kills pairs soak lint format docs bench results wheel-check dist clean

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# torch first, by this exact version: any other spelling may pull gigabytes of CUDA packages. Byte code is made afterwards,
# on all cores, for those who run tests; pip would make it one file after the other.
$(STAMP)/base: pyproject.toml studies/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMP)
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -e . -e ./studies
	touch $@

$(STAMP)/dev: $(STAMP)/base
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -e ".[dev,peers,tensorboard,pretrained]"
	-$(BIN)/python -m compileall -q -j 0 -x '/(tests|networkx|pip|mypy|mypyc|tensorboard|setuptools|docutils)/|/torch/(ao|testing|onnx)/' $(VENV)/lib >/dev/null 2>&1
	touch $@

$(STAMP)/docs: $(STAMP)/base
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -e ".[docs]"
	touch $@

demo: $(STAMP)/base      ## train, evaluate and write a page on embedded tasks (under 3 minutes)
	$(BIN)/innerloop demo

test: $(STAMP)/dev       ## lint, tests, doctests, and the wheel in an empty environment
	$(MAKE) --no-print-directory -j2 -Otarget lint wheel-check   # each of them keeps one core busy
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=40

test-slow: $(STAMP)/dev  ## the long tests too
	$(BIN)/python -m pytest -n 2 --durations=10

test-oldest:             ## the tests on torch 2.6, in a Debian 13 that this makes (root; 3 GB)
	bash scripts/test_oldest.sh

browser:                 ## Debian's Chromium, for the tests that look at pages (root)
	bash scripts/browser.sh

test-trackers: $(STAMP)/dev  ## a run tracked by trackio and by Weights & Biases, in an environment of their own
	bash scripts/test_trackers.sh $(BIN)/python

# What CI has no time for; results also go to a file of JSON. Figures of one run are in docs/reliability.md.
kills: $(STAMP)/dev      ## 100 random kill -9 of every kind of work, resumed and compared (20 minutes)
	PYTHONPATH=tests $(BIN)/python -m endurance --out kills.json kills

pairs: $(STAMP)/dev      ## two commands at once on one run or data set, 100 times each (5 minutes)
	PYTHONPATH=tests $(BIN)/python -m endurance --out pairs.json pairs

soak: $(STAMP)/dev       ## 20,000 steps and 10,000 episodes with flat memory (10 minutes)
	PYTHONPATH=tests $(BIN)/python -m endurance --out soak.json soak

lint: $(STAMP)/dev       ## ruff, mypy, the layer contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)/dev     ## let ruff format and sort
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)/docs      ## the documentation site, in site/
	$(BIN)/python docs/hooks/build_site.py

bench: $(STAMP)/dev      ## the benchmarks behind the numbers in docs/performance.md
	$(BIN)/innerloop bench maml-sine
	$(BIN)/innerloop bench maml-conv
	$(BIN)/innerloop bench memory

# One file of results/ for each command whose numbers the pages print. After an interruption the same command goes on;
# ONLY='landscape-fig* heads' runs a few. Benchmarks need a machine that does nothing else.
results: $(STAMP)/dev    ## run what results/ lacks or has of another version (hours), and write it into the pages
	$(BIN)/python -m innerloop_studies.recorded run $(ONLY); code=$$?; \
	$(BIN)/python -m innerloop_studies.recorded write && exit $$code

wheel-check: $(STAMP)/dev
	bash scripts/check_wheel.sh $(BIN)/python

dist: $(STAMP)/dev       ## source archive and wheel in dist/, built and checked as in CI (docs/releasing.md)
	bash scripts/check_wheel.sh $(BIN)/python dist

clean:                   ## remove what make made
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache
