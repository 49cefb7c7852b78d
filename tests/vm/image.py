"""The guest's root file system: busybox, a few Debian programs, ours, the libraries they need, kernel modules and the
scripts of tests/vm/guest, as an initramfs. Written by hand as a cpio archive, so nothing has to be root or mounted."""
import lzma
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
TOOLS = ["kmod", "ip", "rdma", "cxl", "ndctl", "daxctl", "numactl"]
MODULES = ["rdma_rxe", "ib_uverbs", "rdma_ucm", "crc32_generic", "crc32c_generic", "virtio_pci", "virtio_net", "dummy",
           "cxl_acpi", "cxl_pci", "cxl_mem", "cxl_port", "cxl_pmem", "nfit", "nd_pmem", "dax_pmem", "device_dax", "kmem"]
# Opened by name at run time, so that no program's list of libraries has them.
OPENED = ["libfabric.so.1"]
RDMA_DRIVERS = "rxe"
FOLDERS = ["dev", "proc", "sys", "tmp", "run", "root", "etc", "bin", "sbin", "usr/bin", "usr/sbin", "lib64"]


class Image:
    def __init__(self):
        self._links = {}
        self._files = {}  # path in the guest -> path here, or bytes

    def add(self, where, what):
        self._files[where.lstrip("/")] = what

    def link(self, where, to):
        self._links[where.lstrip("/")] = to

    def add_program(self, path, where):
        """A program with the shared libraries that the loader would give it."""
        self.add(where, path)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for word in listed.split():
            if word.startswith("/"):
                self.add(word, os.path.realpath(word))

    def write(self, out):
        folders = {str(parent) for name in [*self._files, *self._links] for parent in pathlib.PurePath(name).parents}
        folders = (folders | set(FOLDERS)) - {"."}
        with open(out, "wb") as archive:
            number = 1
            for name in sorted(folders, key=lambda f: (f.count("/"), f)):
                _entry(archive, number, name, stat.S_IFDIR | 0o755, b"")
                number += 1
            for name, to in sorted(self._links.items()):
                _entry(archive, number, name, stat.S_IFLNK | 0o777, to.encode())
                number += 1
            for name, what in sorted(self._files.items()):
                data = what if isinstance(what, bytes) else pathlib.Path(what).read_bytes()
                _entry(archive, number, name, stat.S_IFREG | 0o755, data)
                number += 1
            _entry(archive, 0, "TRAILER!!!", 0, b"")


def _entry(archive, number, name, mode, data):
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    for part in (head, data):
        archive.write(part + b"\0" * (-len(part) % 4))


def build(kernel, bin_dir, programs, out):
    """Writes the initramfs of every suite to `out`."""
    image = Image()
    image.add("init", HERE / "guest/init")
    for script in sorted((HERE / "guest").glob("*.sh")):
        image.add(f"suites/{script.name}", script)
    image.add("bin/busybox", shutil.which("busybox") or "/bin/busybox")
    for tool in TOOLS:
        image.add_program(_find(tool), f"usr/bin/{tool}")
    # The kernel itself calls /sbin/modprobe.
    image.link("sbin/modprobe", "/usr/bin/kmod")
    for name in OPENED:
        image.add_program(str(LIBRARIES / name), str(LIBRARIES / name))
    _add_rdma_drivers(image)
    for name in programs:
        image.add_program(str(bin_dir / name), f"usr/bin/{name}")
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        _add_modules(image, kernel, pathlib.Path(work))
    image.add("etc/hosts", b"127.0.0.1 localhost\n")
    image.add("etc/nsswitch.conf", b"hosts: files\n")
    image.write(out)


def _find(tool):
    found = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"./dev vm: {tool} is missing; run ./dev install-tools vm")
    return found


def _add_rdma_drivers(image):
    for driver in sorted(LIBRARIES.glob(f"libibverbs/lib{RDMA_DRIVERS}-*.so")):
        image.add_program(str(driver), str(driver))
    image.add(f"etc/libibverbs.d/{RDMA_DRIVERS}.driver", f"/etc/libibverbs.d/{RDMA_DRIVERS}.driver")


def _add_modules(image, kernel, work):
    """Modules are unpacked here: a guest without hardware virtualisation takes seconds over it."""
    tree = work / "lib/modules" / kernel.version
    for path in kernel.modules(MODULES):
        data = (kernel.tree / path).read_bytes()
        if path.endswith(".xz"):
            data, path = lzma.decompress(data), path.removesuffix(".xz")
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(kernel.tree / name, tree)
    subprocess.run([_find("depmod"), "-b", work, kernel.version], check=True)
    for path in tree.rglob("*"):
        if path.is_file():
            image.add(f"lib/modules/{kernel.version}/{path.relative_to(tree)}", path.read_bytes())
