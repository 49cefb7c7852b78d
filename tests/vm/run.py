"""Builds guests, runs the suites in them, prints one table. `./dev vm --help` says how it is used."""
import argparse
import os
import pathlib
import shutil
import signal
import sys
import time

import image
import kernel
import suites
from guest import Guest

SPARE_MEMORY = 512 << 20  # of QEMU itself, and of the files that are devices
SPARE_DISK = 1 << 30
ALONE_SECONDS = 300  # that a guest may take to notice that the other one is gone
PROGRAMS = ["engram-placement", "engram-poolserver", "engramctl", "engram_conformance_test", "engram_vm_reader"]


def arguments():
    parser = argparse.ArgumentParser(prog="./dev vm", description="Runs RDMA and CXL for real: soft-RoCE and emulated "
                                     "CXL devices in QEMU guests without hardware virtualisation.")
    parser.add_argument("suite", nargs="*", help=f"of {', '.join(suites.SUITES)} (default: {' '.join(suites.DEFAULT)})")
    parser.add_argument("--all", action="store_true", help="every suite")
    parser.add_argument("--gate", action="store_true", help="the suite gate alone: RDMA and CXL in one short boot")
    parser.add_argument("--keep", action="store_true", help="keep consoles, disks and command lines in build/vm/SUITE")
    parser.add_argument("--skip", default="", metavar="WORD,...", help="leave out the cases whose names have one of these words")
    parser.add_argument("--shell", action="store_true", help="a shell on the console when the (one) suite is over")
    wanted = parser.parse_args()
    unknown = [name for name in wanted.suite if name not in suites.SUITES]
    if unknown:
        parser.error(f"there is no suite {', '.join(unknown)}; there are {', '.join(suites.SUITES)}")
    if wanted.all:
        wanted.suite = suites.ALL
    if wanted.gate:
        wanted.suite = ["gate"]
    wanted.suite = wanted.suite or suites.DEFAULT
    if wanted.shell and wanted.suite not in (["rdma"], ["cxl"], ["nvdimm"], ["gate"]):
        parser.error("--shell wants one suite of one guest")
    return wanted


def check_host(machines, cache):
    """Ends with the reason where the guests cannot run: later it would be a guest that never boots."""
    if shutil.which("qemu-system-x86_64") is None:
        raise SystemExit("./dev vm: qemu-system-x86_64 is missing; run ./dev install-tools vm")
    wanted = sum(machine.memory_bytes() for machine in machines) + SPARE_MEMORY
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    there = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    if there < wanted:
        raise SystemExit(f"./dev vm: the guests of this suite need {wanted >> 20} MiB of memory, {there >> 20} MiB are available")
    free = shutil.disk_usage(cache).free
    if free < SPARE_DISK:
        raise SystemExit(f"./dev vm: {cache} has {free >> 20} MiB free, the guests need {SPARE_DISK >> 20} MiB")


def run_suite(name, work, the_kernel, initramfs, wanted, cases):
    """Starts the suite's guests one after the other, waits for them, adds their cases, also when it is stopped."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    guests = []
    machines = suites.SUITES[name](work)
    check_host(machines, work)
    try:
        for machine in machines:
            folder = work / (machine.role or "guest")
            guests.append(Guest(machine, the_kernel, initramfs, folder, wanted.shell, wanted.skip).start(wanted.shell))
            guests[-1].wait_for_port()
        shown, alone_since = 0, None
        while any(running := [guest.running() for guest in guests]):
            time.sleep(0.2)
            shown = show(guests, shown)
            alone_since = alone_since or (None if all(running) else time.monotonic())
            if alone_since and time.monotonic() - alone_since > ALONE_SECONDS:
                break
        show(guests, shown)
    finally:
        for guest in guests:
            guest.end()
        cases += [case for guest in guests for case in guest.cases()]


def show(guests, shown):
    """Tells a person at a terminal which case runs."""
    cases = [case for guest in guests for case in guest.cases()]
    if sys.stderr.isatty() and len(cases) > shown:
        print(f"\r\033[K{cases[-1].suite}: {cases[-1].name}", end="", file=sys.stderr, flush=True)
    return len(cases)


def print_table(cases):
    if not cases:
        return
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    suite = max(len(case.suite) for case in cases)
    name = max(len(case.name) for case in cases)
    print(f"{'SUITE':{suite}}  {'CASE':{name}}  RESULT  SECONDS  DETAIL")
    for case in cases:
        print(f"{case.suite:{suite}}  {case.name:{name}}  {case.outcome:6}  {case.seconds:7.1f}  {case.detail}")
    failed = [case for case in cases if case.outcome == "FAIL"]
    for case in failed:
        print(f"\n{case.suite}: {case.name}")
        print("\n".join("  " + line for line in case.log))
    if failed:
        print("\nthis machine: load %.1f %.1f %.1f" % os.getloadavg(), f"on {os.cpu_count()} processors")


def main():
    wanted = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as by Ctrl-C: guests end with this program
    build = pathlib.Path("build").resolve()
    cache = build / "vm"
    cache.mkdir(parents=True, exist_ok=True)
    the_kernel = kernel.fetch(cache)
    initramfs = cache / "initramfs"
    image.build(the_kernel, build / "bin", PROGRAMS, initramfs)
    cases = []
    try:
        for name in wanted.suite:
            started = time.monotonic()
            before = len(cases)
            run_suite(name, cache / name, the_kernel, initramfs, wanted, cases)
            failed = any(case.outcome == "FAIL" for case in cases[before:])
            if failed:
                print(f"{name}: consoles are in {(cache / name).relative_to(build.parent)}", file=sys.stderr)
            elif not wanted.keep:
                shutil.rmtree(cache / name)
            print(f"{name}: {time.monotonic() - started:.0f} s in all", file=sys.stderr)
    finally:
        if not wanted.keep:
            initramfs.unlink(missing_ok=True)
        print_table(cases)
    return 1 if any(case.outcome == "FAIL" for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
