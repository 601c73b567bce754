# Ringwall: every task has one name here. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo

# Static programs, the default target of .cargo/config.toml.
TARGET := x86_64-unknown-linux-musl
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Built quickly, for development, the demo and tests; and whole programs optimised, to install and to measure.
QUICK_DIR := $(TARGET_DIR)/$(TARGET)/debug
DIST_DIR := $(TARGET_DIR)/$(TARGET)/release
PROGRAMS := ringwall ringwall-warden ringwall-launcher ringwall-probe
# The brain of agents; its package is called after it.
BRAIN := ringwall-agent
# Optimised programs are built one by one: together, the warden would get the features of the compiler,
# and every program those of the gateway, which has an async runtime and a TLS library.
WASM_PROGRAMS := ringwall-wasm-warden ringwall-wasm-compiler
GATEWAY := ringwall-gateway
DAEMON := ringwall-daemon
ALL_PROGRAMS := $(PROGRAMS) $(BRAIN) $(GATEWAY) $(DAEMON) $(WASM_PROGRAMS)

# Tests use the programs that were built here, never ones from PATH.
export RINGWALL_PROGRAMS := $(QUICK_DIR)
export RINGWALL_BIN_DIR := $(QUICK_DIR)

# Builds everything with one command and runs the tests side by side; see tests/suite.
SUITE := $(CARGO) run --quiet --locked --package ringwall-suite --

.PHONY: help setup clients test-clients test-model build programs dist dist-programs tools quick-tools tools-test demo test ci check fmt-check clippy nightly unit-test e2e-test test-agents tidy deny bench bench-tools bench-vm bench-net bench-api compare-security fuzz fuzz-quick faults soak lab-programs lab lab-all hosts-page put-files install site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing on this machine (quick when nothing is)
	@scripts/setup.sh all

clients: ## install the agents and clients of others that tests use, if they are missing
	@scripts/clients.sh

test-clients: clients build quick-tools ## Ringwall as MCP clients and agents of others use it
	$(SUITE) --only tests/mcp

test-model: build ## a real small language model does a file task through walls (300 MB; not in CI)
	@scripts/test-model.sh "$(QUICK_DIR)/ringwall"

programs: ## what a first job needs: ringwall, its warden, its launcher and the brain of agents
	$(CARGO) build --locked $(PROGRAMS:%=--package %) --package $(BRAIN)-program

build: ## all programs and tests, built quickly
	$(SUITE) --build-only

dist-programs: ## all programs, optimised as a whole: takes a quarter of an hour
	$(CARGO) build --locked --release $(PROGRAMS:%=--package %) --package $(BRAIN)-program
	$(CARGO) build --locked --release --package $(GATEWAY)-program
	$(CARGO) build --locked --release --package $(DAEMON)
	$(foreach program,$(WASM_PROGRAMS),$(CARGO) build --locked --release --package $(program) &&) true

dist: dist-programs ## an archive to install from, in target/dist
	@scripts/build-tools.sh "$(DIST_DIR)/tools"
	rm -rf "$(TARGET_DIR)/dist"
	@$(MAKE) put-files PREFIX=/usr/local DESTDIR="$(TARGET_DIR)/dist/root"
	tar -C "$(TARGET_DIR)/dist/root/usr/local" -czf "$(TARGET_DIR)/dist/ringwall-$(TARGET).tar.gz" .
	@echo "dist: $(TARGET_DIR)/dist/ringwall-$(TARGET).tar.gz; unpack it into /usr/local"

tools: ## the built-in WASM tools; the first time takes a while
	@scripts/build-tools.sh "$(QUICK_DIR)/tools"

quick-tools: ## the same, but tools that take many minutes only where they were built before
	@scripts/build-tools.sh --quick "$(QUICK_DIR)/tools"

demo: ## set up, build, and run three jobs that show what Ringwall does
	@scripts/setup.sh demo
	@$(MAKE) programs
	@scripts/demo.sh "$(QUICK_DIR)"

test: ## set up, then format, lints, and every unit, end-to-end and repository test
	@scripts/setup.sh test
	@$(MAKE) fmt-check clippy quick-tools
	$(SUITE)
	@echo "make test: all passed"
	@echo "make test leaves these out:"
	@echo "  make tools-test     the built-in tools' own tests (make ci runs them)"
	@echo "  make lab            other kernels and hosts, emulated (make ci runs the small set)"
	@echo "  make lab-all        the same with every machine"
	@echo "  make fuzz           fuzzing at length (make ci runs each target for a few seconds)"
	@echo "  make faults         full disks and killed helpers, at length"
	@echo "  make soak           hostile jobs at full load, for an hour"
	@echo "  make test-clients   agents and clients of others"
	@echo "  make deny           advisories about dependencies, which need a database from the internet"
	@echo "  make nightly        all of these that CI has no time for"

# Everything that must hold before a change lands. CI calls it.
ci: test tools-test site fuzz-quick lab

# What an hour of CI has no time for, one after the other. All of them run, and one that fails fails the night.
NIGHT := tools test lab-all fuzz faults soak deny test-clients

nightly: ## what CI leaves out: every machine, fuzzing, faults, soak, advisories, clients; takes hours
	@failed=''; for target in $(NIGHT); do $(MAKE) $$target || failed="$$failed $$target"; done; \
	if [ -n "$$failed" ]; then echo "make nightly: failed:$$failed"; exit 1; fi; echo "make nightly: all passed"

check: fmt-check clippy unit-test ## the quick loop: format, lints, unit tests

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

unit-test:
	$(SUITE) --without tests/

e2e-test: quick-tools
	$(SUITE) --only tests/

test-agents: quick-tools ## agents, with fifty of them at once
	RINGWALL_MANY_AGENTS=50 $(SUITE) --only tests/agent

# The tools' own logic, for the host as it is; what they do behind the wall is e2e's.
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
IN_TOOLS := cd tools && CARGO_TARGET_DIR="$(TARGET_DIR)/tools" CARGO_BUILD_TARGET=$(HOST) CARGO_PROFILE_DEV_DEBUG=false

tools-test: ## format, lints and tests of the built-in tools
	cd tools && $(CARGO) fmt --all --check
	$(IN_TOOLS) $(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	CARGO_TARGET_DIR="$(TARGET_DIR)" $(CARGO) build --quiet --locked --package ringwall-suite
	CARGO_TARGET_DIR="$(TARGET_DIR)/tools" CARGO_BUILD_TARGET=$(HOST) CARGO_PROFILE_DEV_DEBUG=false \
		"$(QUICK_DIR)/ringwall-suite" --tree tools
	$(IN_TOOLS) $(CARGO) test --locked --workspace --doc
	cd tools/eval-python && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest

tidy: ## the repository's own rules: layering, sizes, headers, licences, what may be named
	$(SUITE) --only tests/tidy
# Its own workspace, so its own lock: found out now and not when all tests have run.
	@$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null

# `make tidy` checks licences, banned crates and sources. Advisories need cargo-deny and its database.
deny: ## advisories about dependencies: needs cargo-deny and access to its database
	cargo deny --locked check

# The benches measure optimised programs.
WITH_DIST := RINGWALL_PROGRAMS="$(DIST_DIR)" RINGWALL_BIN_DIR="$(DIST_DIR)"

bench: ## start time, throughput and memory, beside bubblewrap, crun, runc, docker and podman
	@scripts/setup.sh bench
	@$(MAKE) dist-programs
	$(CARGO) build --locked --release --package ringwall-bench
	$(WITH_DIST) "$(DIST_DIR)/ringwall-bench" $(BENCH_ARGS)

bench-tools: ## calls of WASM tools, beside processes, containers and other WASM hosts
	@scripts/setup.sh bench
	@benches/rivals/setup.sh || echo "bench-tools: goes on without those rivals"
	@$(MAKE) dist-programs
	$(CARGO) build --locked --release --package ringwall-bench
	$(WITH_DIST) "$(DIST_DIR)/ringwall-bench" tools $(BENCH_ARGS)

bench-vm: ## microVMs cold, from templates, pools and forks, beside QEMU with a stock kernel
	@scripts/setup.sh bench
	@$(MAKE) dist-programs
	$(CARGO) build --locked --release --package ringwall-bench
	$(WITH_DIST) "$(DIST_DIR)/ringwall-bench" vm $(BENCH_ARGS)

bench-api: dist-programs ## what the daemon adds to commands and calls of tools
	@scripts/build-tools.sh --quick "$(DIST_DIR)/tools"
	$(WITH_DIST) $(CARGO) run --locked --release --package ringwall-api --example api_bench -- $(BENCH_ARGS)

bench-net: ## what the gateway costs, beside no proxy, squid and tinyproxy
	@scripts/setup.sh bench
	$(CARGO) bench --locked --package $(GATEWAY)-program

compare-security: dist-programs ## the attacks of `ringwall verify` behind other sandboxes, side by side with ours
	@$(WITH_DIST) scripts/compare-security.sh "$(DIST_DIR)"

site: ## the documents as a site with search, in target/site/book, with every link checked
	@scripts/site.sh "$(TARGET_DIR)/site"

# Each target for so many seconds.
SECONDS_EACH := $(or $(SECONDS),60)

fuzz: ## fuzz every parser of untrusted bytes; SECONDS=60 for each target
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(SECONDS_EACH)

# What CI does: the kept inputs and a few seconds of new ones.
fuzz-quick:
	@scripts/fuzz.sh 5

faults: ## full disks, exhausted limits, broken files, killed helpers, at length
	RINGWALL_FAULTS=60 $(SUITE) --only tests/faults
	RINGWALL_CRASHES=40 $(SUITE) --only tests/api -- crash

soak: build ## hostile jobs at full load, and the adversary; SECONDS=3600 for each
	RINGWALL_SOAK_SECONDS=$(or $(SECONDS),3600) $(CARGO) test --locked --package ringwall-soak -- hostile adversary --nocapture

LAB := RINGWALL_PROGRAMS=$(QUICK_DIR) "$(QUICK_DIR)/ringwall-lab"

lab-programs: build
	@scripts/setup.sh lab

lab: lab-programs ## boot other kernels under QEMU and run Ringwall there: the small set
	$(LAB) bad-input
	$(LAB) run

lab-all: lab-programs ## the same with every machine of tests/lab/machines
	$(LAB) bad-input
	$(LAB) run --all

hosts-page: build ## make docs/reference/hosts.md from the results of the last `make lab` or `make lab-all`
	$(LAB) page

install: dist-programs ## optimised programs and all tools, into PREFIX (/usr/local)
	@scripts/build-tools.sh "$(DIST_DIR)/tools"
	@$(MAKE) put-files
# Compiled now, for whoever installs: else the first call of each tool would do it. A package that is
# only being put together (DESTDIR) has nowhere to keep the code.
	@if [ -z "$(DESTDIR)" ]; then \
		echo "compiling the built-in tools"; \
		"$(PREFIX)/bin/ringwall" tool ls >/dev/null || echo "install: the tools will be compiled at their first call"; \
	fi

put-files:
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/ringwall/tools/runtimes"
	install -m 755 $(ALL_PROGRAMS:%="$(DIST_DIR)/%") "$(DESTDIR)$(PREFIX)/bin"
	install -m 644 "$(DIST_DIR)"/tools/*.wasm "$(DESTDIR)$(PREFIX)/lib/ringwall/tools"
# The runtimes of those tools that were built: `make quick-tools` leaves some of them out.
	@for runtime in "$(DIST_DIR)"/tools/runtimes/*.wasm; do \
		if [ -e "$$runtime" ]; then install -m 644 "$$runtime" "$(DESTDIR)$(PREFIX)/lib/ringwall/tools/runtimes"; fi; \
	done

clean: ## remove what was built
	$(CARGO) clean
	rm -rf benches/out
