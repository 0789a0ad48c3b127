# Penstock's front door.  Every target sets up what it needs and does nothing twice.
#
# Meson builds; this file only says in which folders and with which options:
#   build        release, the C tests, and what is installed into .venv
#   build-san    ASan and UBSan        build-clang    clang, for its warnings
#   build-tsan   TSan                  build-fuzz     clang, libFuzzer
#   build-bench  kernel benchmarks

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

DATA ?=
SECONDS_EACH ?= $(or $(SECONDS),60)
ARGS ?=

export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Everything the installed package is made of.  Folders are listed too: their
# time changes when a file is removed.
PACKAGE := pyproject.toml meson.build meson_options.txt \
	$(shell find src include cli python -not -name __pycache__ -not -name '*.pyc')
INSTALLED := .venv/installed-penstock

##@ Use it
run: setup-run $(INSTALLED) ## Train a small network and show where the time went (DATA=folder or tar: your pictures)
	@python examples/train_cnn.py $(if $(DATA),--data '$(DATA)') $(ARGS)

build: setup-build $(INSTALLED) ## Build, and install the package and the command into .venv

##@ Check it
test: setup-test $(INSTALLED) ## Run the C tests (with and without SIMD) and the Python tests (ARGS goes to pytest)
	@scripts/run-tests build $(ARGS)

san: setup-san ## Run the C tests under the address and undefined-behaviour sanitizers
	@scripts/run-sanitized build-san address,undefined

tsan: setup-san ## Run the C tests under the thread sanitizer
	@scripts/run-sanitized build-tsan thread

lint: setup-lint ## Check format, warnings of clang, room borders, names, banned calls
	@scripts/lint

format: setup-lint ## Rewrite C and Python to the project's format
	@scripts/lint --fix

fuzz: setup-fuzz ## Fuzz every parser (SECONDS=60 for each)
	@scripts/fuzz $(SECONDS_EACH)

##@ Measure it
bench: setup-build $(INSTALLED) ## Compare with other loaders: table, JSON and plot (DATA=folder; ARGS=--quick)
	@scripts/setup-bench
	@.venv-bench/main/bin/python -m bench.run $(if $(DATA),--data '$(DATA)') \
	  --json bench/results/local/bench.json --plot bench/results/local/bench.png $(ARGS)

bench-adapt: setup-test $(INSTALLED) ## Does it adapt? Policies and other loaders in changing conditions (ARGS=--quick)
	@scripts/setup-bench
	@.venv-bench/main/bin/python -m bench.adapt $(if $(DATA),--data '$(DATA)') \
	  --json bench/results/local/adapt.json --plot bench/results/local/adapt.png \
	  --report bench/results/local/adapt.md $(ARGS)
	@echo "bench-adapt: see bench/results/local/adapt.md"

bench-offload: setup-test $(INSTALLED) ## Near the storage: what offloading saves, over links of all speeds (root; ARGS=--quick)
	@scripts/setup-bench
	@.venv-bench/main/bin/python -m bench.offload $(if $(DATA),--data '$(DATA)') \
	  --json bench/results/local/offload$(if $(findstring --quick,$(ARGS)),-quick).json \
	  --plot bench/results/local/offload.png --report bench/results/local/offload.md $(ARGS)
	@echo "bench-offload: see bench/results/local/offload.md"

MODELLED := $(or $(DATA),../shared/data/imagenet ../shared/data/photos)
bench-offload-model: setup-test $(INSTALLED) ## The same computed, for larger machines and many jobs; after bench-offload
	@scripts/setup-bench
	@for data in $(MODELLED); do \
	  .venv/bin/python -m bench.offload.gauge "$$data" --out "bench/results/local/$$(basename "$$data").jsonl" || exit 1; done
	@.venv-bench/main/bin/python -m bench.offload.simulate $(patsubst %,bench/results/local/%.jsonl,$(notdir $(MODELLED))) \
	  $(if $(wildcard bench/results/local/offload.json),--runs bench/results/local/offload.json) \
	  --plot bench/results/local/offload-model.png --report bench/results/local/offload-model.md
	@echo "bench-offload-model: see bench/results/local/offload-model.md"

bench-kernels: setup-build ## Time each kernel against its scalar twin
	@[ -f build-bench/build.ninja ] || meson setup build-bench -Dbench=true -Dtests=false -Dpython=false >/dev/null
	@ninja -C build-bench --quiet
	@build-bench/bench/bench_kernels $(ARGS)

bench-forms: setup-build ## Weigh the forms in which samples cross the network (ARGS='FOLDER [EPOCHS]')
	@[ -f build-bench/build.ninja ] || meson setup build-bench -Dbench=true -Dtests=false -Dpython=false >/dev/null
	@ninja -C build-bench --quiet
	@build-bench/bench/bench_forms $(ARGS)

bench-telemetry: setup-build ## Time one reading of the machine
	@[ -f build-bench/build.ninja ] || meson setup build-bench -Dbench=true -Dtests=false -Dpython=false >/dev/null
	@ninja -C build-bench --quiet
	@build-bench/bench/bench_telemetry

##@ Keep house
clean: ## Remove what was built; .venv and .cache stay
	rm -rf build build-* dist $(INSTALLED)

distclean: clean ## Remove the environment and the generated pictures as well
	rm -rf .venv .venv-bench .cache

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' Makefile
	@echo

setup-%:
	@scripts/setup $*

# The build folder is shared with the C tests, so that nothing is compiled twice.
$(INSTALLED): $(PACKAGE) | setup-build
	@echo "build: compiling and installing into .venv"
	@scripts/install-package
	@touch $@

.PHONY: run build test san tsan lint format fuzz bench bench-adapt bench-forms bench-offload bench-offload-model bench-kernels bench-telemetry clean distclean help
