"""A local pool under test, driven through the real engramctl; shared by the integration tests."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time


# What engramctl waits where a test does not say it: its own 10 s are for people.
PATIENCE = {"ENGRAM_TIMEOUT": "60s"}


class Pool:
    """One data directory, one context, one pool. Use as a context manager: it always stops what it started."""

    def __init__(self, bin_dir):
        self.bin_dir = pathlib.Path(bin_dir)
        self.work = tempfile.TemporaryDirectory(prefix="engram-test-")
        self.path = pathlib.Path(self.work.name)
        self.data_dir = self.path / "pool"
        self.env = dict(os.environ, ENGRAM_CONTEXT=str(self.path / "context.yaml"), **PATIENCE)
        self.env.pop("ENGRAM_ENDPOINT", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run("local", "down", "--purge", "--data-dir", self.data_dir, "--timeout", "10s")
        self.work.cleanup()

    def run(self, *words, timeout=300, text=True):
        command = [self.bin_dir / "engramctl", *map(str, words)]
        return subprocess.run(command, env=self.env, capture_output=True, text=text, timeout=timeout)

    def ok(self, *words, **options):
        """Standard output of a command that must succeed."""
        done = self.run(*words, **options)
        assert done.returncode == 0, f"engramctl {words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words):
        return json.loads(self.ok(*words, "-o", "json"))

    def up(self, *words):
        return self.ok("local", "up", "--data-dir", self.data_dir, *words).strip()

    def processes(self):
        """{name: {"pid", "state", ...}} as `local status` sees them, whatever its exit code."""
        done = self.run("local", "status", "--data-dir", self.data_dir, "-o", "json")
        return {process["name"]: process for process in json.loads(done.stdout)["processes"]}

    def nodes(self):
        """The pids of the pool nodes."""
        return [process["pid"] for name, process in self.processes().items() if name.startswith("node-")]

    def synthetic(self, **fields):
        """Writes a synthetic spec and returns its path."""
        path = self.path / "spec.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        return path


@contextlib.contextmanager
def stopped(pids):
    """The processes stand still meanwhile, every thread of them."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            assert wait_until(lambda pid=pid: all(stat[stat.rindex(")") + 2] == "T" for stat in thread_stats(pid))), pid
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def thread_stats(pid):
    stats = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            stats.append(path.read_text(encoding="ascii"))
    return stats


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def wait_until(condition, seconds=90, every=0.05):
    """Bounds what would never come; a test that needs all of it is slow, not wrong."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(every)
    return False
