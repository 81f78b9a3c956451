# SPDX-License-Identifier: GPL-2.0-only
# Guest callchains for Linux KVM.  "make" alone prints what there is.

# Debian's Python, which the python3-* packages belong to.
PYTHON := /usr/bin/python3

# What an emulated Intel host takes, beyond what bootstrap.sh installs anyway.
BOCHS := bochs bochs-term bochsbios isolinux syslinux-common vgabios xorriso

# What Debian's kernels are compressed by.
UNPACK := lz4 zstd

export BUILD KERNEL_SRC KCONFIG ACCEL VENDOR GUEST KARGS TESTS ALL BASELINE QUICK FUZZ_SECONDS FUZZ_CASES SEED MUTANTS TODAY

.PHONY: help demo test test-debug test-intel test-stock test-unikernel host-table test-baseline mutants records selftests fuzz bench gate build shell series clean packages
.DEFAULT_GOAL := help

help: ## print this help
	@echo "Entry points:"
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22
	@echo "  make -C tools/testing/selftests TARGETS=kvm run_tests"
	@echo "                      run the KVM selftests as kernel developers do"
	@echo "Variables:"
	@echo "  ACCEL=auto|tcg|kvm  how QEMU runs the host; auto takes KVM if it can nest"
	@echo "  KERNEL_SRC=DIR      use this Linux source, and leave it as it is"
	@echo "  KCONFIG=FILE        merge a fragment into the kernel's configuration"
	@echo "  VENDOR=amd|intel    whose CPU the host of selftests, demo and shell has; Bochs emulates Intel's"
	@echo "  GUEST=debian|own    what the demo's guest runs: Debian's kernel, or the one built here"
	@echo "  KARGS=ARGS          boot the host with them, e.g. kvm_amd.npt=0"
	@echo "  TESTS=NAMES         run just these selftests, e.g. guest_callchain_test"
	@echo "  ALL=1               compare all of Linux's KVM selftests with an unpatched kernel"
	@echo "  BASELINE=v3         build a host that can walk as the series of 2023 did"
	@echo "  QUICK=1             bench: measure less, in three minutes; test-intel: run fewer tests"
	@echo "  FUZZ_SECONDS=N      fuzz for so long, builds aside; 60"
	@echo "  FUZZ_CASES=N        sample N guests instead, and fuzz user space 50 N times"
	@echo "  SEED=N              fuzz other cases than those of seed 1"
	@echo "  MUTANTS=NAMES       try just these, as their files in patches/mutants are called"
	@echo "  TODAY=N             try N mutants, on each day others; one of test-debug's two passes"
	@echo "  BUILD=DIR           build there, not in ./build"

demo: ## profile a Linux guest from its host, and draw its flame graph
	@sh scripts/bootstrap.sh $(UNPACK) $(if $(filter intel,$(VENDOR)),$(BOCHS))
	@$(PYTHON) scripts/host.py demo

test: ## run all tests; ends with "N passed, N failed, N skipped"
	@sh scripts/bootstrap.sh $(UNPACK)
	@$(PYTHON) scripts/host.py test

test-debug: packages ## run the KVM selftests on a host with lockdep and KASAN, twice
	@$(PYTHON) scripts/host.py test-debug

test-intel: ## run the KVM selftests on an emulated Intel host, with EPT and without
	@sh scripts/bootstrap.sh $(BOCHS)
	@$(PYTHON) scripts/host.py test-intel

test-stock: ## sample Debian's own kernels as guests, and unwind them by their ORC tables
	@sh scripts/bootstrap.sh $(UNPACK)
	@$(PYTHON) scripts/host.py test-stock

test-unikernel: packages ## sample a guest that is no Linux, whose call paths are known
	@$(PYTHON) scripts/host.py test-unikernel

host-table: packages ## write results/hosts.md: which tests passed on which host, of the last runs
	@$(PYTHON) scripts/host.py host-table

test-baseline: packages ## test the tests: the walk of 2023 must fail some
	@$(PYTHON) scripts/host.py test-baseline

mutants: ## test the tests: break the kernel here and there, each must be noticed
	@sh scripts/bootstrap.sh $(BOCHS)
	@$(PYTHON) scripts/host.py mutants

records: packages ## compare what perf records with our patches and without
	@$(PYTHON) scripts/host.py records

selftests: packages ## run the KVM selftests on the patched host, print KTAP
	@$(PYTHON) scripts/host.py selftests

fuzz: ## compare the walk of random guests' stacks with what it must find
	@sh scripts/bootstrap.sh clang libclang-rt-dev
	@$(PYTHON) scripts/host.py fuzz

bench: ## measure what samples cost, beside what they are compared with
	@sh scripts/bootstrap.sh hyperfine python3-jsonschema
	@$(PYTHON) scripts/host.py bench

gate: ## fail if samples cost more than the committed reference says
	@sh scripts/bootstrap.sh python3-jsonschema
	@$(PYTHON) scripts/host.py gate

build: packages ## fetch, assemble and build the patched host, no more
	@$(PYTHON) scripts/host.py build

shell: packages ## a shell on the running patched host, with perf and the tests
	@$(PYTHON) scripts/host.py shell

series: packages ## write the patches for a kernel's mailing list, for git am
	@$(PYTHON) scripts/host.py series

clean: ## remove what was built and measured; downloads are kept
	@$(PYTHON) scripts/host.py clean

packages:
	@sh scripts/bootstrap.sh $(if $(filter intel,$(VENDOR)),$(BOCHS))
