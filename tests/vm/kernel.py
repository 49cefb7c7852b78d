"""The guest's kernel: Debian's package, unpacked into the cache folder and never installed."""
import pathlib
import shutil
import subprocess

PACKAGE = "linux-image-6.12-amd64"
APT = ("apt-get", "-o", "Acquire::Retries=3")


class Kernel:
    """An unpacked kernel package: `image` boots, `modules(names)` is what a guest needs to load them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.image = next((self.folder / "boot").glob("vmlinuz-*"))
        self.version = self.image.name.removeprefix("vmlinuz-")
        self.tree = self.folder / "lib/modules" / self.version

    def modules(self, names):
        """The files of `names` and of everything they need, from modules.dep itself: modprobe on the build machine
        leaves out what its own kernel has built in."""
        needs = {}
        for line in (self.tree / "modules.dep").read_text(encoding="ascii").splitlines():
            path, _, others = line.partition(":")
            name = pathlib.Path(path).name.partition(".")[0].replace("-", "_")
            needs[name] = [path, *others.split()]
        built_in = {pathlib.Path(line).stem.replace("-", "_")
                    for line in (self.tree / "modules.builtin").read_text(encoding="ascii").splitlines()}
        missing = [name for name in names if name not in needs and name not in built_in]
        if missing:
            raise SystemExit(f"./dev vm: the kernel {self.version} has no module {', '.join(missing)}")
        return sorted({path for name in names for path in needs.get(name, [])})


def fetch(cache):
    """Downloads and unpacks the kernel package, once."""
    folder = cache / "kernel"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _download(folder)
        _run("dpkg-deb", "-x", next(folder.glob("*.deb")).name, ".", cwd=folder)
        for deb in folder.glob("*.deb"):
            deb.unlink()
        (folder / "complete").touch()
    kernel = Kernel(folder)
    if not (kernel.tree / "modules.dep").exists():
        _run("depmod", "-b", folder, kernel.version)
    return kernel


def _download(folder):
    """Lists that are older than the archive name a package that is gone: then once more with new ones."""
    try:
        _run(*APT, "download", _real_package(), cwd=folder)
    except SystemExit:
        _run(*APT, "update", "-qq")
        _run(*APT, "download", _real_package(), cwd=folder)


def _real_package():
    """What PACKAGE, which names the newest, depends on. Machines for builds often have no lists of packages yet."""
    for attempt in range(2):
        listed = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            word, _, name = line.strip().partition(": ")
            if word == "Depends" and name.startswith("linux-image-"):
                return name
        if attempt == 0:
            _run(*APT, "update", "-qq")
    raise SystemExit(f"./dev vm: apt knows no {PACKAGE}; the packages are those of Debian 12, with bookworm-security among the sources")


def _run(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"./dev vm: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
