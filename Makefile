# One command each; every target makes the virtual environment it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Node comes in a wheel; the browser is the system's, and none is downloaded.
WITH_NODE := PATH="$(CURDIR)/$(BIN):$$PATH" PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1

NODE_MODULES := labextension/node_modules/.installed labextension/ui-tests/node_modules/.installed

# In a container one is often root, which Jupyter serves only with --allow-root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

# Where this is set, each process that the benchmarks and the notebooks start would compile the package once more.
unexport PYTHONDONTWRITEBYTECODE

# The JAX to install, such as 0.10.2; `oldest`: the oldest that the package allows; if empty, the newest.
JAX ?=
OLDEST_JAX = $(shell sed -n 's/.*"jax>=\([0-9.]*\).*/\1/p' pyproject.toml)
JAX_VERSION := $(if $(filter oldest,$(JAX)),$(OLDEST_JAX),$(JAX))
JAX_PINS := $(if $(JAX),'jax==$(JAX_VERSION)' 'jaxlib==$(JAX_VERSION)')

# Processes that run the tests, each with an embedded cluster of its own. The tests mostly wait, so that five keep two
# cores busy. The tests of one file stay together: they share kernels and clusters.
WORKERS ?= 5

# pytest-timeout raises an error in Python code, which does not reach a test that waits in native code: after this many
# seconds its process ends, and prints all stacks.
RUN_TESTS := $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -o faulthandler_timeout=420 -o faulthandler_exit_on_timeout=true

# Tests of what touches JAX, for `make subset` with another Python and its JAX.
JAX_TESTS := tests/session tests/saved tests/colocated tests/elastic tests/local/pathways/ifrt tests/magics tests/profile \
	tests/test_connect.py tests/test_notebooks.py tests/test_script.py tests/test_adapted_process.py tests/test_recipes.py

# How long `make soak` runs, and the seed of its random choices.
ROUNDS ?= 112
SECONDS ?= 60
INTERRUPTS ?= 1000
SEED ?= $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help demo lab test test-thorough test-local subset wheel hub dist release-check ui pictures soak programs lint format bench docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## Connect a kernel to two slices of the embedded cluster, break one, and clean up
	$(BIN)/pathways-jupyter demo

lab: $(VENV)/.installed ## Open JupyterLab with the sidebar on the embedded cluster
	$(BIN)/pathways-jupyter local up --tpu tpuv6e:2x2=3 --fast-heal
	@echo "The embedded cluster ends after 30 minutes without use, or with: $(BIN)/pathways-jupyter local down"
	$(BIN)/jupyter lab --notebook-dir=examples/notebooks $(AS_ROOT)

test: $(VENV)/.test ## Run the tests that a change must pass (about 7 minutes on two cores; WORKERS=)
	$(RUN_TESTS)

test-thorough: $(VENV)/.test ## Run the other tests of the product, of four seconds and more each: deaths, silences, restarts, whole programs (about 12 minutes)
	$(RUN_TESTS) -m 'thorough and not soak'

test-local: $(VENV)/.test ## Run the tests of the embedded cluster itself, for a change of pathways_jupyter/local (about 3 minutes)
	$(RUN_TESTS) tests/local

subset: $(VENV)/.test ## Run the tests that touch JAX, with another Python: make subset VENV=.venv-newer PYTHON=python3.13
	$(RUN_TESTS) $(JAX_TESTS)
	$(RUN_TESTS) -m 'thorough and not soak' $(JAX_TESTS)

wheel: $(VENV)/.test $(NODE_MODULES) ## Install the wheel into empty and older environments, and as Binder does, and use it there (Chromium)
	$(WITH_NODE) $(BIN)/pytest -m wheel

hub: $(VENV)/.test $(BIN)/configurable-http-proxy ## Run a JupyterHub for two users, as its page of the documentation says (kubectl)
	$(BIN)/pytest -m hub tests/jupyterhub

dist: .venv-release/.installed ## Build sdist and wheel from a clone of HEAD into dist/, check them, and rehearse their upload (TAG=)
	.venv-release/bin/python tools/make_dist.py

release-check: lint test test-thorough test-local ui docs wheel hub dist ## All that a release must pass and this machine can run: all tests also with another Python (NEWER=)
	$(if $(NEWER),$(MAKE) test test-thorough test-local VENV=.venv-newer PYTHON=$(NEWER),@echo "Not run: another Python, which NEWER=python3.13 names.")

ui: $(NODE_MODULES) ## Test the sidebar: its models, and the whole of it in a real browser (Chromium, kubectl)
	cd labextension && $(WITH_NODE) jlpm build:prod
	cd labextension/ui-tests && $(WITH_NODE) jlpm models && $(WITH_NODE) jlpm test

pictures: $(NODE_MODULES) ## Take pictures of the sidebar in all states and looks, for review
	cd labextension && $(WITH_NODE) jlpm build:prod
	cd labextension/ui-tests && $(WITH_NODE) jlpm pictures

soak: $(VENV)/.test ## Run what takes longer: slow tests, deaths at random, a training run that loses slices, suspends and resumes with deaths in between, uploads that lose their proxy, growth, Interrupts, hostile input (ROUNDS=, SECONDS=, INTERRUPTS=, SEED=)
	$(BIN)/pytest -m soak
	$(BIN)/python tests/soak leaks --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python tests/soak churn --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python tests/soak training --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python tests/soak suspends --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python tests/soak beside --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python tests/soak uploads
	$(BIN)/python tests/soak interrupts --rounds $(INTERRUPTS) --seed $(SEED)
	$(BIN)/python tests/soak fuzz --seconds $(SECONDS) --seed $(SEED)

lint: $(VENV)/.lint $(NODE_MODULES) ## Style, words, types, dependencies, dead code and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing_examples.py
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/vulture
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/hadolint docs/singleuser.Dockerfile
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/check_names.py
	cd labextension/ui-tests && $(WITH_NODE) jlpm lint

format: $(VENV)/.lint $(NODE_MODULES) ## Rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cd labextension/ui-tests && $(WITH_NODE) jlpm format

# An environment of its own: MaxText needs Python 3.12 and a JAX newer than 0.10.2.
programs: ## Run whole programs (MaxText, Flax, Optax, Diffrax, NumPyro, Orbax) here and on plain CPU devices: make programs PYTHON=python3.13
	$(MAKE) .venv-programs/.programs VENV=.venv-programs
	.venv-programs/bin/python tests/programs

bench: $(VENV)/.bench $(VENV)/.ui ## Measure ours and the peers in one run, and write docs/benchmarks.md
	$(BIN)/python -m benchmarks --output docs/benchmarks
	$(BIN)/python -m benchmarks.figures

docs: $(VENV)/.docs ## Build the documentation into build/docs: run the notebooks, generate the reference, check every link inside
	$(BIN)/python docs/run_notebooks.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html"

clean: ## Remove what the other targets made
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache

# The groups need pip 25.1; the one that a Python brings may be older.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'
	@echo "Installing JAX, JupyterLab and the sidebar, which is built: about four minutes at the first time."
	$(BIN)/python -m pip install --verbose --disable-pip-version-check --editable '.[all]' $(JAX_PINS)
	@touch $@

$(VENV)/.%: $(VENV)/.installed
	$(PIP) --group $* $(JAX_PINS)
	@touch $@

# By the hashes of a lock: one of these packages could publish anything as this project. To renew it:
# uv pip compile --universal --generate-hashes --no-annotate --python-version 3.11 --group release -o tools/release-requirements.txt
.venv-release/.installed: tools/release-requirements.txt
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement $<
	@touch $@

$(BIN)/configurable-http-proxy: | $(VENV)/.hub
	$(WITH_NODE) npm install --global --prefix $(VENV) --no-audit --no-fund configurable-http-proxy@5

# Installs again only when a lock file changes.
%/node_modules/.installed: %/package.json %/yarn.lock | $(VENV)/.ui
	cd $* && $(WITH_NODE) jlpm install --immutable
	@touch $@
