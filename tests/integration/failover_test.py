"""Three controllers on a real etcd: the leader is killed and, later, stopped and woken; readers never notice.
One controller on an etcd with TLS, whose certificates are renewed.

usage: failover_test.py BIN_DIR
"""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from moves_test import Reader  # noqa: E402
from pool import PATIENCE, wait_until  # noqa: E402
from security_test import Certificates, Program  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 4000, "layers": [1], "seed": 7}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: ./dev install-tools")
class FailoverTest(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="engram-failover-"))
        self.processes = {}
        self.addCleanup(self.tear_down)
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self.start("etcd", "etcd", "--name", "one", "--data-dir", self.work / "etcd", "--listen-client-urls", client,
                   "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", f"one={peer}", "--logger", "zap", "--log-level", "error")
        ports = free_ports(6)
        self.controllers = {f"c{i}": ports[i] for i in range(3)}
        self.metrics = {f"c{i}": ports[i + 3] for i in range(3)}
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.controllers.values())
        for name, port in self.controllers.items():
            self.start(name, BIN_DIR / "engram-placement", "--store", "etcd", "--etcd-endpoints", client, "--leader-lease", "5s",
                       "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{self.metrics[name]}")
        for name in ("n1", "n2"):
            self.start(name, BIN_DIR / "engram-poolserver", "--node-id", name, "--failure-domain", name,
                       "--controller", self.endpoints, "--listen", "127.0.0.1:0", "--stream-listen", "127.0.0.1:0",
                       "--metrics-listen", "127.0.0.1:0", "--runtime-dir", self.work / "run" / name, "--memory", "192MiB")
        self.assertTrue(wait_until(lambda: self.nodes_alive() == 2), self.logs())

    def tear_down(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, name, *command):
        if name.startswith("n"):
            (self.work / "run" / name).mkdir(parents=True, mode=0o700)
        with open(self.work / f"{name}.log", "w", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def log(self, name):
        return (self.work / f"{name}.log").read_text(encoding="utf-8")

    def logs(self):
        return "\n".join(f"== {name}\n{self.log(name)[-1500:]}" for name in self.processes)

    def ctl(self, *words, check=True):
        env = dict(os.environ, ENGRAM_ENDPOINT=self.endpoints, ENGRAM_CONTEXT=str(self.work / "none"), **PATIENCE)
        done = subprocess.run([BIN_DIR / "engramctl", *map(str, words)], env=env, capture_output=True, text=True, timeout=300)
        if check and done.returncode != 0:
            raise AssertionError(f"engramctl {words} ended with {done.returncode}: {done.stderr}\n{self.logs()}")
        return done

    def nodes_alive(self):
        done = self.ctl("get", "nodes", "-o", "json", check=False)
        return sum(node.get("alive", False) for node in json.loads(done.stdout)["nodes"]) if done.returncode == 0 else 0

    def load(self, name):
        spec = self.work / "spec.json"
        spec.write_text(json.dumps(SPEC), encoding="utf-8")
        self.ctl("load", "table", name, "--synthetic", spec, "--shard-bytes", "4MiB", "--replicas", "2", "--wait", "--timeout", "240s")

    def leaders(self):
        """Those that say that they lead; a process that is stopped says nothing."""
        found = []
        for name, port in self.metrics.items():
            try:
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).read().decode()
            except OSError:
                continue
            if re.search(r"^engram_placement_leader 1", page, re.M):
                found.append(name)
        return found

    def await_leader(self, other_than=None):
        found = []

        def one():
            found[:] = self.leaders()
            return len(found) == 1 and found[0] != other_than
        self.assertTrue(wait_until(one), f"lead: {found}\n{self.logs()}")
        return found[0]

    def test_reads_go_on_when_the_leader_is_killed_and_when_it_is_stopped_and_woken(self):
        self.load("t@1")
        lib = ctypes.CDLL(str(BIN_DIR.parent / "lib" / "libengram.so"))
        lib.engram_last_error.restype = ctypes.c_void_p
        first = self.await_leader()
        # Who knows a single follower is told by it who leads.
        follower = next(f"127.0.0.1:{port}" for name, port in self.controllers.items() if name != first)
        self.assertIn("t@1", self.ctl("get", "tables", "--endpoint", follower).stdout)
        readers = [Reader(lib, self.endpoints, "mapped", 0), Reader(lib, follower, "stream", 1)]
        for reader in readers:
            reader.start()

        self.processes[first].kill()
        self.processes[first].wait()
        second = self.await_leader(other_than=first)
        self.assertTrue(wait_until(lambda: self.nodes_alive() == 2), self.logs())
        self.load("after-the-kill@1")

        # Two that believe they lead: the old one wakes after the other has taken over.
        self.processes[second].send_signal(signal.SIGSTOP)
        self.processes.pop(first)
        third = self.await_leader(other_than=second)
        # Nodes hold on to the stopped one until keep-alive gives it up, and may be dead to the new one meanwhile.
        self.assertTrue(wait_until(lambda: all(f"node {node} joined" in self.log(third) for node in ("n1", "n2"))), self.logs())
        self.load("after-the-stop@1")
        self.processes[second].send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: "acts as leader no more" in self.log(second)), self.logs())
        self.await_leader(other_than=second)
        self.load("after-the-waking@1")
        self.assertEqual(self.nodes_alive(), 2, self.logs())
        self.ctl("delete", "table", "after-the-stop@1", "--yes")

        steps = [reader.steps for reader in readers]
        self.assertTrue(wait_until(lambda: all(reader.steps > before + 20 for reader, before in zip(readers, steps))))
        for reader in readers:
            reader.finish()
        for reader in readers:
            self.assertEqual(reader.wrong, 0)
            self.assertEqual(reader.failed, [])


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: ./dev install-tools")
class EtcdTlsTest(unittest.TestCase):
    """One controller on an etcd that shows and demands certificates, all of which are renewed."""

    def setUp(self):
        work = tempfile.TemporaryDirectory(prefix="engram-etcd-tls-")
        self.addCleanup(work.cleanup)
        self.path = pathlib.Path(work.name)
        self.made = Certificates(self.path)
        self.client, self.peer, self.port = free_ports(3)
        self.budget = 1000
        self.issue()
        self.etcd = self.start_etcd()
        self.controller = Program(self.path / "controller.log", BIN_DIR / "engram-placement", "--store", "etcd",
                                  "--etcd-endpoints", f"https://127.0.0.1:{self.client}", "--etcd-ca", self.path / "ca.pem",
                                  "--etcd-cert", self.path / "controller.pem", "--etcd-key", self.path / "controller.key",
                                  "--leader-lease", "5s", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", "")
        self.addCleanup(self.controller.stop)

    def issue(self):
        for name in ("etcd", "controller"):
            self.made.make(name, f"{name},IP:127.0.0.1")

    def start_etcd(self):
        client, peer = f"https://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        etcd = Program(self.path / "etcd.log", "etcd", "--name", "one", "--data-dir", self.path / "data",
                       "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                       "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--logger", "zap",
                       "--log-level", "error", "--client-cert-auth", "--trusted-ca-file", self.path / "ca.pem",
                       "--cert-file", self.path / "etcd.pem", "--key-file", self.path / "etcd.key")
        self.addCleanup(etcd.stop)
        return etcd

    def changes(self):
        """Whether the state can be changed; another value each time, what stands already is not written again."""
        self.budget += 1
        done = subprocess.run([BIN_DIR / "engramctl", "budget", "tenant", "t", str(self.budget), "--endpoint",
                               f"127.0.0.1:{self.port}", "--timeout", "5s"], capture_output=True, text=True, timeout=30)
        return done.returncode == 0

    def test_the_controller_goes_on_when_authority_and_certificates_are_renewed(self):
        self.assertTrue(wait_until(self.changes), self.controller.text())
        self.made.authority("ca")
        self.issue()
        self.etcd.stop()
        self.assertFalse(self.changes())
        self.etcd = self.start_etcd()
        self.assertTrue(wait_until(self.changes), self.controller.text())


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
