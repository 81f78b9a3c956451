# SPDX-License-Identifier: GPL-2.0-only
# Guest callchains for Linux KVM.  "make" alone lists the commands.

# This folder: "make -f" may be called from another one.
TOP := $(dir $(firstword $(MAKEFILE_LIST)))
# Prefer Debian's Python to the one on the PATH: only Debian's finds Debian's Python modules.
PYTHON := $(firstword $(wildcard /usr/bin/python3) python3)
OTHER_HOST = $(filter intel,$(VENDOR)) $(filter arm64,$(ARCH))
# host.py asks deps.sh for all that the command needs, but can't if there is no Python.
HOST = @sh $(TOP)scripts/deps.sh python $@ $(OTHER_HOST) && $(PYTHON) $(TOP)scripts/host.py $@

# host.py takes these variables as its options.
export BUILD KERNEL_SRC KERNEL_TARBALL MIRROR JOBS
export ACCEL ARCH VENDOR GUEST KARGS KCONFIG BASELINE TESTS ALL QUICK TODAY
export FUZZ_SECONDS FUZZ_CASES SEED MUTANTS CONFIG LOCALMOD SUITE JUNIT JSON
EXPORTED := $(shell sed -n 's/^export //p' $(firstword $(MAKEFILE_LIST)))
# deps.sh, the doctor, this file and tools/testing/selftests take the others.
KNOWN := $(EXPORTED) YES CI FOR PID PERF PYTHON TARGETS

# Refuse what nobody heeds, such as GUSET=own, and name the variable that is most like it.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
NEAREST = $(shell $(PYTHON) -c 'import difflib, sys; \
	print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))' $(UNKNOWN) $(KNOWN) 2>&-)
ifneq ($(UNKNOWN),)
$(error $(UNKNOWN)= is not known; $(patsubst %,did you mean %=? ,$(NEAREST))"make" lists \
	all variables)
endif

COMMANDS := demo test test-bare test-debug test-intel test-stock test-workflow test-unikernel \
	test-distro test-packages test-abi test-baseline mutants selftests fuzz bench gate \
	check docs build shell deb perf-deb branch import series clean
.PHONY: help deps doctor $(COMMANDS)
.DEFAULT_GOAL := help

help: ## print this help
	@echo "Entry points:"
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22
	@echo "  make -C tools/testing/selftests TARGETS=kvm run_tests"
	@echo "                      run the KVM selftests as kernel developers do"
	@echo "  scripts/host.py COMMAND --help"
	@echo "                      list which of these a command uses; they are also its options:"
	@echo "  ACCEL=auto|tcg|kvm  how QEMU runs the host; auto takes KVM if it can nest"
	@echo "  KERNEL_SRC=DIR      use this Linux source, and leave it as it is"
	@echo "  KERNEL_TARBALL=FILE use the source in this linux-7.3.x.tar.xz"
	@echo "  MIRROR=URL          fetch Debian's packages from there, not from apt's mirror"
	@echo "  KCONFIG=FILE        merge a fragment into the kernel's configuration"
	@echo "  ARCH=x86|arm64      architecture of the host, for bench, build, demo, gate, mutants,"
	@echo "                      selftests, shell, test and test-debug; deps: install what such"
	@echo "                      a host needs, too; series has the patches of both"
	@echo "  VENDOR=amd|intel    CPU of the host, for selftests; Bochs emulates Intel's"
	@echo "  GUEST=debian|own    kernel of the demo's guest: Debian's, or the one built here"
	@echo "  KARGS=ARGS          boot the host with these, e.g. kvm_amd.npt=0"
	@echo "  TESTS=NAMES         run just these selftests, e.g. guest_callchain_test"
	@echo "  YES=1               install what is missing without a question; for root, CI=true too"
	@echo "  FOR=COMMANDS        deps: install what these need, e.g. FOR=\"demo deb\""
	@echo "  ALL=1               selftests: compare all of Linux's with an unpatched kernel;"
	@echo "                      deps: install what all commands need together;"
	@echo "                      check: compile each patch, and boot the result of git am"
	@echo "  BASELINE=v3         build a host that can walk as the series of 2023 did"
	@echo "  QUICK=1             bench: measure less, in three minutes; test-intel: run fewer tests"
	@echo "  FUZZ_SECONDS=N      fuzz for N seconds, not counting builds; default 60"
	@echo "  FUZZ_CASES=N        sample N guests instead, and fuzz user space 50 N times"
	@echo "  SEED=N              fuzz with another seed than 1"
	@echo "  MUTANTS=NAMES       try just these, by the names of their files in patches/mutants"
	@echo "  TODAY=N             mutants, test-debug: try N of them, others each day"
	@echo "  PID=PID PERF=FILE   doctor: look at this VMM's guest, with this perf"
	@echo "  CONFIG=FILE         deb: configure the kernel by this file, not as the running one"
	@echo "  SUITE=trixie|bookworm  test-bare: try it on this release of Debian"
	@echo "  LOCALMOD=1          deb: leave out modules that are not loaded on this machine"
	@echo "  JUNIT=FILE          test, selftests: write the results to it, as JUnit's XML"
	@echo "  JSON=FILE           test, selftests: write them as KernelCI's JSON"
	@echo "  BUILD=DIR           build there, not in ./build"
	@echo "  JOBS=N              build with N jobs, not one for each CPU"

deps: ## install what demo and test need; FOR="deb gate": what these need; ALL=1: all
	@sh $(TOP)scripts/deps.sh install $(if $(ALL),all,$(or $(FOR),demo test) $(OTHER_HOST))

doctor: ## say what works on this machine as it is; PID=: for that VMM's guest, too
	@sh $(TOP)scripts/deps.sh python $@ && \
		$(PYTHON) $(TOP)scripts/doctor $(if $(PERF),--perf "$(PERF)") $(PID)

demo: ## profile a Linux guest from its host, and draw its flame graph
	$(HOST)

test: ## run all tests; ends with "N passed, N failed, N skipped"
	$(HOST)

test-bare: ## type what README has to try it, in a bare Debian
	$(HOST)

test-debug: ## run the KVM selftests on a host with lockdep and KASAN, twice
	$(HOST)

test-intel: ## run the KVM selftests on an emulated Intel host, with EPT and without
	$(HOST)

test-stock: ## sample Debian's own kernels as guests, and unwind them by their ORC tables
	$(HOST)

test-workflow: ## use perf kvm on two guests as an operator would: record, report, diff, top
	$(HOST)

test-distro: ## sample whole distributions as guests, name and unwind their programs
	$(HOST)

test-unikernel: ## sample a guest that is not Linux, and whose call paths are known
	$(HOST)

test-packages: ## install deb's packages in a fresh Debian, boot it, sample a guest there
	$(HOST)

test-baseline: ## test the tests: the walk of 2023 must fail some of them
	$(HOST)

mutants: ## test the tests: break the kernel in many places, each must be noticed
	$(HOST)

test-abi: ## compare perf's records with and without our patches
	$(HOST)

selftests: ## run the KVM selftests on the patched host, print KTAP
	$(HOST)

fuzz: ## compare walks of random guests' stacks with the expected results
	$(HOST)

bench: ## measure the cost of samples, beside other ways to take them
	$(HOST)

gate: ## fail if samples cost more than the committed reference says
	$(HOST)

check: ## check Python, shell, C and patches with the usual tools
	$(HOST)

docs: ## build the documentation as HTML; fails if Sphinx warns about our lines
	$(HOST)

build: ## fetch, assemble and build the patched host, no more
	$(HOST)

shell: ## a shell on the running patched host, with perf and the tests
	$(HOST)

perf-deb: ## build a Debian package of perf alone, to try it on the kernel that runs
	$(HOST)

deb: ## build Debian packages of the patched kernel and perf, for your own machines
	$(HOST)

branch: ## write the patches to a git branch in build/branch, to work on
	$(HOST)

import: ## read that branch back into patches/ and the new files
	$(HOST)

series: ## write the patches for a kernel's mailing list, for git am
	$(HOST)

clean: ## remove what was built and measured; downloads are kept
	$(HOST)
