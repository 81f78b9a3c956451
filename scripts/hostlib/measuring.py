# SPDX-License-Identifier: GPL-2.0-only
"""The commands that measure what samples cost."""

import dataclasses
from typing import Dict

from . import bench, gate
from .arch import X86
from .build import CONFIGS, Build
from .hosts import accel_of, built, linux, results_dir, with_and_without
from .options import Options


def bench_peers(options: Options) -> Dict[str, Build]:
    """Build and return the kernels for the benchmark without guest callchains, by name."""
    patched, unpatched = with_and_without(options)
    patched.all()
    without = Build(patched.folder, linux(options), CONFIGS / "no-callchain.config",
                    jobs=options.jobs, arch=patched.arch)
    for build in (unpatched, without):
        build.root = patched.root
        build.host_and_bench(patched.selftests)
    return {"unpatched": unpatched, "option off": without, "option on": patched}


def cmd_bench(options: Options) -> int:
    from . import benchreport

    using = accel_of(options)
    x86 = options.arch == X86.name
    build = built(dataclasses.replace(options, baseline="v3") if x86 else options)
    folder = results_dir("bench" if x86 else f"bench-{options.arch}")
    whole_host = x86 and not options.quick
    results = bench.measure(build, using, folder,
                            bench.plan(build.arch, options.quick, using == "kvm"), options.kargs,
                            bench.WHOLE_HOST if whole_host else "",
                            benchreport.whole_commands(options.quick))
    bench.write(results, folder / "bench.json")
    if not options.quick:
        if whole_host:
            results.whole_hosts = bench.whole_hosts(
                (folder / "counted" / "whole-host.txt").read_text())
        results.peers = bench.measure_peers(bench_peers(options), using, folder, options.kargs)
        bench.write(results, folder / "bench.json")
    benchreport.write(results, folder)
    return 0


def cmd_gate(options: Options) -> int:
    using = accel_of(options)
    build = built(options)
    folder = results_dir("gate" if options.arch == "x86" else f"gate-{options.arch}")
    results = bench.measure(build, using, folder, bench.gate_plan(build.arch), options.kargs)
    bench.write(results, folder / "gate.json")
    return 0 if gate.judge(results, folder, build.tree.path) else 1
