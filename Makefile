# Ringwall: every task has one name here. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo

MUSL_TARGET := x86_64-unknown-linux-musl
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
BIN_DIR := $(TARGET_DIR)/$(MUSL_TARGET)/release
PROGRAMS := ringwall ringwall-warden ringwall-launcher ringwall-probe
# The brain of agents; its package is called after it.
BRAIN := ringwall-agent
# Built one by one: together, the warden would get the features of the compiler.
WASM_PROGRAMS := ringwall-wasm-warden ringwall-wasm-compiler
# Alone, too: it has an async runtime and a TLS library, whose features belong in no other program.
GATEWAY := ringwall-gateway
# Apart, so that the demo need not wait for its database and its web server.
DAEMON := ringwall-daemon
TOOLS_DIR := $(BIN_DIR)/tools

# Tests and the bench use the programs that `make build` made, never ones from PATH.
export RINGWALL_PROGRAMS := $(BIN_DIR)
export RINGWALL_BIN_DIR := $(BIN_DIR)

# nextest runs test programs side by side; plain cargo does where it is absent.
RUN_TESTS := $(if $(shell command -v cargo-nextest),nextest run --no-fail-fast,test --no-fail-fast)
# These test the built programs; the last one only reads the repository.
WHOLE := ringwall-e2e ringwall-escape ringwall-net-e2e ringwall-soak ringwall-wasm-e2e ringwall-vm-e2e ringwall-weakened ringwall-faults ringwall-api-e2e ringwall-mcp-e2e ringwall-agent-e2e
NOT_UNIT := $(WHOLE:%=--exclude %) --exclude ringwall-tidy

.PHONY: help setup clients test-clients test-model build programs gateway daemon wasm-programs tools quick-tools tools-test demo test check fmt-check clippy unit-test e2e-test test-agents tidy deny bench bench-tools bench-vm bench-net bench-api compare-security fuzz fuzz-quick faults soak lab-programs lab lab-all hosts-page install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing on this machine (quick when nothing is)
	@scripts/setup.sh all

clients: ## install the agents and clients of others that tests use, if they are missing
	@scripts/clients.sh

test-clients: clients build quick-tools ## Ringwall as MCP clients and agents of others use it
	$(CARGO) $(RUN_TESTS) --locked --package ringwall-mcp-e2e

test-model: build ## a real small language model does a file task through walls (300 MB; not in CI)
	@scripts/test-model.sh "$(BIN_DIR)/ringwall"

build: programs gateway daemon wasm-programs ## all programs, optimised

programs: ## ringwall, its warden, its launcher and the brain of agents
	$(CARGO) build --locked --release --target $(MUSL_TARGET) $(PROGRAMS:%=--package %) --package $(BRAIN)-program

gateway: ## the process through which sandboxes reach the network
	$(CARGO) build --locked --release --target $(MUSL_TARGET) --package $(GATEWAY)-program

daemon: ## what `ringwall serve` starts
	$(CARGO) build --locked --release --target $(MUSL_TARGET) --package $(DAEMON)

wasm-programs: ## what runs WASM tools, and what compiles them
	$(foreach program,$(WASM_PROGRAMS),$(CARGO) build --locked --release --target $(MUSL_TARGET) --package $(program) &&) true

tools: ## the built-in WASM tools; the first time takes a while
	@scripts/build-tools.sh "$(TOOLS_DIR)"

quick-tools: ## the same, but tools that take many minutes only where they were built before
	@scripts/build-tools.sh --quick "$(TOOLS_DIR)"

demo: ## set up, build, and run three jobs that show what Ringwall does
	@scripts/setup.sh demo
	@$(MAKE) programs
	@scripts/demo.sh "$(BIN_DIR)"

test: ## set up, then everything: format, lints, unit, end-to-end and tidy tests
	@scripts/setup.sh test
	@$(MAKE) fmt-check clippy deny tidy build quick-tools unit-test e2e-test
	@echo "make test: all passed"

check: fmt-check clippy unit-test ## the quick loop: format, lints, unit tests

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

unit-test:
	$(CARGO) $(RUN_TESTS) --locked --workspace $(NOT_UNIT)

e2e-test: build quick-tools
	$(CARGO) $(RUN_TESTS) --locked $(WHOLE:%=--package %)

test-agents: build quick-tools ## agents, with fifty of them at once
	RINGWALL_MANY_AGENTS=50 $(CARGO) $(RUN_TESTS) --locked --package ringwall-agent-e2e

# The tools' own logic, natively; what they do behind the wall is e2e's.
tools-test: tools ## format, lints and tests of the built-in tools
	cd tools && $(CARGO) fmt --all --check
	cd tools && CARGO_TARGET_DIR="$(TARGET_DIR)/tools" $(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	cd tools && CARGO_TARGET_DIR="$(TARGET_DIR)/tools" $(CARGO) test --locked --workspace --no-fail-fast

tidy: ## the repository's own rules: layering, sizes, headers, what may be named
	$(CARGO) $(RUN_TESTS) --locked --package ringwall-tidy
# Its own workspace, so its own lock: found out now and not when all tests have run.
	@$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null

# Needs an advisory database, so only where the tool has been installed.
deny: ## licences, advisories and sources of dependencies, where cargo-deny is present
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check; \
	else echo "deny: cargo-deny is not installed, dependencies not checked"; fi

bench: ## start time, throughput and memory, beside bubblewrap, crun, runc, docker and podman
	@scripts/setup.sh bench
	@$(MAKE) build
	$(CARGO) build --locked --release --target $(MUSL_TARGET) --package ringwall-bench
	"$(BIN_DIR)/ringwall-bench" $(BENCH_ARGS)

bench-tools: ## calls of WASM tools, beside processes, containers and other WASM hosts
	@scripts/setup.sh bench
	@benches/rivals/setup.sh || echo "bench-tools: goes on without those rivals"
	@$(MAKE) build
	$(CARGO) build --locked --release --target $(MUSL_TARGET) --package ringwall-bench
	"$(BIN_DIR)/ringwall-bench" tools $(BENCH_ARGS)

bench-vm: ## microVMs cold, from templates, pools and forks, beside QEMU with a stock kernel
	@scripts/setup.sh bench
	@$(MAKE) build
	$(CARGO) build --locked --release --target $(MUSL_TARGET) --package ringwall-bench
	"$(BIN_DIR)/ringwall-bench" vm $(BENCH_ARGS)

bench-api: programs daemon wasm-programs quick-tools ## what the daemon adds to commands and calls of tools
	$(CARGO) run --locked --release --target $(MUSL_TARGET) --package ringwall-api --example api_bench -- $(BENCH_ARGS)

bench-net: ## what the gateway costs, beside no proxy, squid and tinyproxy
	@scripts/setup.sh bench
	$(CARGO) bench --locked --package $(GATEWAY)-program

compare-security: build ## the attacks of `ringwall verify` behind other sandboxes, side by side with ours
	@scripts/compare-security.sh "$(BIN_DIR)"

# Each target for so many seconds.
SECONDS_EACH := $(or $(SECONDS),60)

fuzz: ## fuzz every parser of untrusted bytes; SECONDS=60 for each target
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(SECONDS_EACH)

# What CI does: the kept inputs and a few seconds of new ones.
fuzz-quick:
	@scripts/fuzz.sh 5

faults: build ## full disks, exhausted limits, broken files, killed helpers, at length
	RINGWALL_FAULTS=60 $(CARGO) $(RUN_TESTS) --locked --package ringwall-faults
	RINGWALL_CRASHES=40 $(CARGO) $(RUN_TESTS) --locked --package ringwall-api-e2e crash

soak: build ## hostile jobs of all kinds at full load; SECONDS=3600
	RINGWALL_SOAK_SECONDS=$(or $(SECONDS),3600) $(CARGO) test --locked --package ringwall-soak hostile -- --nocapture

# In the quick profile: machines are emulated, so how programs were optimised does not show.
LAB_DIR := $(TARGET_DIR)/$(MUSL_TARGET)/debug
LAB := RINGWALL_PROGRAMS=$(LAB_DIR) "$(LAB_DIR)/ringwall-lab"

lab-programs:
	@scripts/setup.sh lab
	$(CARGO) build --locked --target $(MUSL_TARGET) $(PROGRAMS:%=--package %) --package ringwall-lab

lab: lab-programs ## boot other kernels under QEMU and run Ringwall there: the small set
	$(LAB) bad-input
	$(LAB) run

lab-all: lab-programs ## the same with every machine of tests/lab/machines
	$(LAB) bad-input
	$(LAB) run --all

hosts-page: ## make docs/hosts.md from the results of the last `make lab` or `make lab-all`
	$(CARGO) build --locked --target $(MUSL_TARGET) --package ringwall-lab
	$(LAB) page

install: build tools ## into PREFIX (/usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 $(PROGRAMS:%="$(BIN_DIR)/%") "$(BIN_DIR)/$(BRAIN)" "$(BIN_DIR)/$(GATEWAY)" "$(BIN_DIR)/$(DAEMON)" $(WASM_PROGRAMS:%="$(BIN_DIR)/%") "$(DESTDIR)$(PREFIX)/bin"
	install -d "$(DESTDIR)$(PREFIX)/lib/ringwall/tools"
	install -m 644 "$(TOOLS_DIR)"/*.wasm "$(DESTDIR)$(PREFIX)/lib/ringwall/tools"
	install -d "$(DESTDIR)$(PREFIX)/lib/ringwall/tools/runtimes"
	install -m 644 "$(TOOLS_DIR)/runtimes/js.wasm" "$(DESTDIR)$(PREFIX)/lib/ringwall/tools/runtimes"
# Compiled now, for whoever installs: else the first call of each tool would do it. A package that is
# only being put together (DESTDIR) has nowhere to keep the code.
	@if [ -z "$(DESTDIR)" ]; then \
		echo "compiling the built-in tools"; \
		"$(PREFIX)/bin/ringwall" tool ls >/dev/null || echo "install: the tools will be compiled at their first call"; \
	fi

clean: ## remove what was built
	$(CARGO) clean
	rm -rf benches/out
