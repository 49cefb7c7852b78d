"""One QEMU guest without hardware virtualisation: started, watched through its second serial line, always ended."""
import dataclasses
import pathlib
import shlex
import subprocess
import time


SPARE_SECONDS = 300  # beyond its limit, for the guest to boot and to say where it stands


@dataclasses.dataclass
class Case:
    suite: str
    name: str
    outcome: str = "FAIL"  # until the guest says otherwise
    seconds: float = 0
    detail: str = "the guest ended in the middle of it"
    log: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Machine:
    """What differs between guests."""
    suite: str
    role: str = ""
    cpus: int = 2
    memory: str = "2G"
    machine: str = "q35"
    cpu: str = "max"
    kernel_words: str = ""
    arguments: tuple = ("-nic", "none")
    limit_seconds: int = 3600  # of the suite; no suite takes a tenth of it on an idle machine
    listens_on: int = 0  # a port of this host, for the other guest

    def memory_bytes(self):
        """What QEMU takes for it: "2G,maxmem=8G" is 2 GiB."""
        amount = self.memory.partition(",")[0]
        return int(amount[:-1]) << {"G": 30, "M": 20}[amount[-1]]


class Guest:
    def __init__(self, machine, kernel, initramfs, work, shell=False, skip=""):
        self.machine = machine
        self.work = pathlib.Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.report = self.work / "report"
        self.report.write_bytes(b"")
        words = f"console=ttyS0 quiet panic=-1 transparent_hugepage=madvise suite={machine.suite} limit={machine.limit_seconds}"
        words += f" {machine.kernel_words}"
        if machine.role:
            words += f" role={machine.role}"
        if shell:
            words += " shell=1"
        if skip:
            words += f" skip={skip}"
        console = ["-serial", "mon:stdio"] if shell else ["-serial", f"file:{self.work / 'console'}"]
        # Never KVM: what /dev/kvm is on such machines differs, and a guest that hangs says nothing.
        self.command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", machine.machine, "-cpu", machine.cpu,
            "-smp", str(machine.cpus), "-m", machine.memory, "-display", "none", "-no-reboot", "-no-user-config",
            *console, "-serial", f"file:{self.report}",
            "-kernel", str(kernel.image), "-initrd", str(initramfs), "-append", words, *machine.arguments]
        self.started = time.monotonic()
        self.process = None
        self._ends = 0.0

    def start(self, shell=False):
        (self.work / "command").write_text(shlex.join(self.command) + "\n", encoding="utf-8")
        where = None if shell else open(self.work / "qemu", "wb")
        self.process = subprocess.Popen(self.command, stdin=None if shell else subprocess.DEVNULL,
                                        stdout=where, stderr=subprocess.STDOUT if where else None)
        if where:
            where.close()
        return self

    def running(self):
        if self.process.poll() is not None:
            return False
        if time.monotonic() - self.started < self.machine.limit_seconds + SPARE_SECONDS:
            return True
        self.end()
        return False

    def wait_for_port(self):
        """Until QEMU listens for the other guest, if it does, or has ended."""
        while self.machine.listens_on and self.running() and not _listens(self.machine.listens_on):
            time.sleep(0.1)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def lines(self):
        return self.report.read_text(encoding="utf-8", errors="replace").replace("\r", "").splitlines()

    def last_words(self):
        """What the guest's console and QEMU said last, for a guest that does not end by itself."""
        out = []
        for name in ("qemu", "console"):
            path = self.work / name
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r", "") if path.exists() else ""
            if text.strip():
                out += [f"--- {path}", *text.splitlines()[-20:]]
        return out

    def cases(self):
        """What the guest has reported so far."""
        name = self.machine.suite if not self.machine.role else f"{self.machine.suite}/{self.machine.role}"
        boot = Case(name, "boot", detail="the kernel did not reach the suite")
        found, finished = [boot], False
        for line in self.lines():
            word, _, rest = line.partition(" ")
            seconds, _, text = rest.partition(" ")
            if word == "booted":
                boot.outcome, boot.seconds, boot.detail = "pass", float(seconds), f"Linux {text}"
            elif word == "case":
                found.append(Case(name, text, seconds=-float(seconds)))
            elif word == "log":
                found[-1].log.append(rest)
            elif word == "end":
                found[-1].outcome, _, found[-1].detail = text.partition(" ")
                found[-1].seconds += float(seconds)
            elif word == "done":
                finished = True
        if found[-1].seconds < 0:
            found[-1].seconds = 0
        if not finished and self.process.poll() is not None:
            if found[-1].outcome != "FAIL":
                found.append(Case(name, "power off", detail="the guest ended before its suite did"))
            found[-1].log += self.last_words()
        return found


def _listens(port):
    """As the kernel says: who connects to see it would be taken for the other guest."""
    for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        if state == "0A" and address.endswith(f":{port:04X}"):
            return True
    return False
