"""The suites: which guests each one is made of. What runs in them is tests/vm/guest/SUITE.sh."""
import socket

from guest import Machine


def rdma(_work):
    return [Machine(suite="rdma")]


def rdma2(_work):
    """Two guests whose network cards are the two ends of one socket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def one(role, end, mac):
        card = f"virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:00:00:0{mac}"
        return Machine(suite="rdma2", role=role, cpus=1, memory="1536M",
                       arguments=("-netdev", f"socket,id=wire,{end}=127.0.0.1:{port}", "-device", card))

    return [one("server", "listen", 1), one("client", "connect", 2)]


def cxl(work):
    """A CXL type-3 device of 256 MiB. QEMU 7.2 has persistent ones only. Two root ports: behind a single one some kernels
    commit a region that loses what is written. hypervisor=off: the kernel makes no region where it cannot flush caches.
    pcie_ports=compat: this QEMU has no event log interrupts, which the kernel would insist on."""
    files = []
    for name in ("memory", "labels"):
        path = work / f"cxl-{name}"
        with open(path, "wb") as file:
            file.truncate(256 << 20)
        files += ["-object", f"memory-backend-file,id={name},share=on,mem-path={path},size=256M"]
    return [Machine(
        suite="cxl", machine="q35,cxl=on", cpu="max,hypervisor=off", memory="2G,maxmem=8G,slots=8",
        kernel_words="pcie_ports=compat",
        arguments=("-nic", "none", *files, "-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1",
                   "-device", "cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2",
                   "-device", "cxl-rp,port=1,bus=cxl.1,id=rp1,chassis=0,slot=3",
                   "-device", "cxl-type3,bus=rp0,memdev=memory,lsa=labels,id=cxl-pmem0",
                   "-M", "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G"))]


SUITES = {"rdma": rdma, "rdma2": rdma2, "cxl": cxl}
DEFAULT = ["rdma", "cxl"]
