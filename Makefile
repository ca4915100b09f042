# Two commands matter to a newcomer: `make run` and `make test`. Everything here can be run again; the second time is quick.

PYTHON ?= $(shell tools/find-python)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TSTAMP := $(VENV)/.installed-test
MSTAMP := $(VENV)/.fetched

.PHONY: help setup setup-test peers run demo test test-slow test-clean check bench clean lock

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## ?/\t/' | expand -t 14

setup: $(STAMP)  ## system packages, environment, model packs
	@$(BIN)/wren models fetch --quick

setup-test: $(TSTAMP) setup

peers: setup-test ## the real peers that tests talk to: a sound server, a browser, a broker, NVIDIA's builder
	@tools/packages tools/test-packages.txt
	@tools/tensorrt-check $(VENV) requirements/tensorrt-check.txt

run: $(MSTAMP)   ## start Wren
	@$(BIN)/wren run

demo: $(MSTAMP)  ## speak a command through the whole loop and print the timeline
	@$(BIN)/wren demo

test: setup-test ## the tests
	@$(BIN)/pytest

test-slow: peers ## the slow tests: real sound servers, hours of sound
	@$(BIN)/pytest -m slow -rR --durations=12

test-clean:      ## the README's two commands in a bare Debian root (needs root)
	@tests/clean_machine.sh || { code=$$?; [ $$code = 77 ] && echo "test-clean: skipped, see above"; }

check: $(TSTAMP) ## lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

BASELINE ?= ../shared/peers/baseline
bench: setup-test ## measure beside the baseline, write docs/bench; tables of docs/benchmarks.md to standard output
	@$(BIN)/wren bench --write docs/bench $(if $(wildcard $(BASELINE)/run.sh),--baseline $(BASELINE))
	@$(BIN)/python benchmarks/models_bench.py
	@$(BIN)/python benchmarks/loop_bench.py

clean:           ## remove the environment and caches; model packs stay (wren models remove)
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

lock:            ## pin every dependency anew, with hashes (needs network)
	@tools/lock "$(PYTHON)"

$(STAMP): requirements/run.txt pyproject.toml tools/setup tools/packages tools/packages.txt
	@tools/setup "$(PYTHON)" $(VENV) requirements/run.txt
	@touch $@

# Once, in a process of its own: converting takes memory that Wren would keep. What is missing later, Wren fetches itself.
$(MSTAMP): $(STAMP) models/catalogue.toml $(wildcard models/convert/*.py)
	@$(BIN)/wren models fetch --quick
	@touch $@

$(TSTAMP): $(STAMP) requirements/test.txt
	@tools/setup "$(PYTHON)" $(VENV) requirements/test.txt
	@touch $@
