"""The suites: which guests each one is made of. What runs in them is tests/vm/guest/SUITE.sh."""
import dataclasses
import socket

from guest import Machine


def rdma(_work):
    return [Machine(suite="rdma")]


def _wire():
    """Of two guests whose network cards are the two ends of one socket: role, QEMU's arguments, the port it listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [(role, ("-netdev", f"socket,id=wire,{end}=127.0.0.1:{port}",
                    "-device", f"virtio-net-pci,bus=pcie.0,netdev=wire,romfile=,mac=52:54:00:00:00:0{number}"),
             port if end == "listen" else 0)
            for number, (role, end) in enumerate((("server", "listen"), ("client", "connect")), 1)]


def rdma2(_work):
    return [Machine(suite="rdma2", role=role, cpus=1, memory="1536M", arguments=card, listens_on=port)
            for role, card, port in _wire()]


def _file(path, megabytes):
    with open(path, "wb") as file:
        file.truncate(megabytes << 20)
    return path


def _cxl_device(memory, labels):
    """A CXL type-3 device of 256 MiB on the file `memory`. QEMU 7.2 has persistent ones only. Two root ports: behind a
    single one some kernels commit a region that loses what is written. hypervisor=off: the kernel makes no region where it
    cannot flush caches. pcie_ports=compat: this QEMU has no event log interrupts, which the kernel would insist on."""
    def backend(name, path):
        return "-object", f"memory-backend-file,id={name},share=on,mem-path={path},size=256M"

    return {
        "machine": "q35,cxl=on", "cpu": "max,hypervisor=off", "kernel_words": "pcie_ports=compat",
        "arguments": (*backend("memory", memory), *backend("labels", labels), "-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1",
                      "-device", "cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2",
                      "-device", "cxl-rp,port=1,bus=cxl.1,id=rp1,chassis=0,slot=3",
                      "-device", "cxl-type3,bus=rp0,memdev=memory,lsa=labels,id=cxl-pmem0",
                      "-M", "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G")}


def cxl(work, suite="cxl"):
    device = _cxl_device(_file(work / "cxl-memory", 256), _file(work / "cxl-labels", 256))
    device["arguments"] += ("-nic", "none")
    return [Machine(suite=suite, memory="2G,maxmem=8G,slots=8", **device)]


def gate(work):
    """The short form of rdma and cxl, in one boot: a minute and a half on an idle machine."""
    [machine] = cxl(work, "gate")
    return [dataclasses.replace(machine, limit_seconds=1800)]


def cxl2(work):
    """One file is the memory of both guests' devices; each has labels of its own."""
    shared = _file(work / "cxl-memory", 256)
    guests = []
    for role, card, port in _wire():
        device = _cxl_device(shared, _file(work / f"cxl-labels-{role}", 256))
        device["arguments"] += card
        guests.append(Machine(suite="cxl2", role=role, cpus=1, memory="1536M,maxmem=8G,slots=8", listens_on=port, **device))
    return guests


def nvdimm(work):
    memory = _file(work / "nvdimm", 256)
    return [Machine(
        suite="nvdimm", machine="q35,nvdimm=on", memory="2G,maxmem=6G,slots=4",
        arguments=("-nic", "none", "-object", f"memory-backend-file,id=memory,share=on,mem-path={memory},size=256M",
                   "-device", "nvdimm,memdev=memory"))]


SUITES = {"rdma": rdma, "rdma2": rdma2, "cxl": cxl, "cxl2": cxl2, "nvdimm": nvdimm, "gate": gate}
DEFAULT = ["rdma", "cxl"]
ALL = ["rdma", "rdma2", "cxl", "cxl2", "nvdimm"]  # gate is made of their cases
