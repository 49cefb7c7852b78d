"""The pool on several hosts: controller, two nodes and a client, each in network and mount namespaces of its own.

usage: hosts_test.py BIN_DIR

Each host has its own /tmp, /run and address on a bridge, so nothing but the network connects them: `stream` must be chosen and
`mapped` must not, a node must say that it cannot see a checkpoint, and the addresses that nodes advertise must be reachable.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import PATIENCE, wait_until  # noqa: E402

BIN = pathlib.Path()
PREFIX = f"eg{os.getpid() % 100000}"
HOSTS = {"ctrl": "10.213.77.1", "n1": "10.213.77.2", "n2": "10.213.77.3", "client": "10.213.77.4"}
CONTROLLER = f"{HOSTS['ctrl']}:7700"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=300, **options)


class Hosts:
    """Network namespaces joined by a bridge; every command on a host also gets private /tmp, /run and /dev/shm."""

    def __init__(self):
        self.processes = []
        run("ip", "link", "add", f"{PREFIX}br", "type", "bridge")
        run("ip", "link", "set", f"{PREFIX}br", "up")
        for name, address in HOSTS.items():
            space, outside, inside = f"{PREFIX}{name}", f"{PREFIX}{name}"[:15], "eth0"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space)
            run("ip", "link", "set", outside, "master", f"{PREFIX}br", "up")
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", inside)
            run("ip", "-n", space, "link", "set", inside, "up")
            run("ip", "-n", space, "link", "set", "lo", "up")

    @staticmethod
    def command(host, *command):
        # The programs stay in sight where the checkout lies under one of the folders that are hidden.
        private = "mount --bind \"$1\" /mnt && shift && mount -t tmpfs none /tmp && mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && exec \"$@\""
        return ["ip", "netns", "exec", f"{PREFIX}{host}", "unshare", "-m", "sh", "-c", private, "sh", str(BIN), *map(str, command)]

    def start(self, host, log, *command):
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(self.command(host, *command), stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def ctl(self, *arguments, check=True):
        done = subprocess.run(self.command("client", "/mnt/engramctl", *arguments, "--endpoint", CONTROLLER),
                              capture_output=True, text=True, timeout=300, env=dict(os.environ, **PATIENCE))
        if check and done.returncode != 0:
            raise AssertionError(f"engramctl {arguments} exited {done.returncode}: {done.stderr}")
        return done

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", f"{PREFIX}{name}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{PREFIX}br"], capture_output=True)


@unittest.skipIf(os.geteuid() != 0 or not shutil.which("ip"), "network namespaces need root and iproute2")
class SeveralHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="engram-hosts-", dir=os.environ.get("HOME", "/root")))
        cls.hosts = Hosts()
        try:
            cls.hosts.start("ctrl", cls.dir / "ctrl.log", "/mnt/engram-placement", "--listen", CONTROLLER, "--insecure-listen",
                            "--state-file", cls.dir / "state.db")
            for node in ("n1", "n2"):
                cls.hosts.start(node, cls.dir / f"{node}.log", "/mnt/engram-poolserver", "--node-id", node, "--controller", CONTROLLER,
                                "--listen", f"{HOSTS[node]}:7701", "--stream-listen", f"{HOSTS[node]}:7702", "--insecure-listen",
                                "--memory", "128MiB", "--runtime-dir", "/run/engram",
                                "--metrics-listen", "127.0.0.1:9100")
            cls.wait_for_nodes()
            spec = cls.dir / "spec.json"
            spec.write_text(json.dumps({"model": "deepseek-v4.1", "engram_vocab_size": 12000, "layers": [1, 14], "seed": 7}))
            cls.hosts.ctl("load", "table", "t@1", "--synthetic", spec, "--shard-bytes", "1MiB", "--wait", "--timeout", "240s")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.hosts.close()
        shutil.rmtree(cls.dir, ignore_errors=True)

    @classmethod
    def wait_for_nodes(cls):
        said = []

        def both():
            done = cls.hosts.ctl("get", "nodes", "-o", "json", check=False)
            said[:] = [done.stderr]
            return done.returncode == 0 and sum(n.get("alive", False) for n in json.loads(done.stdout)["nodes"]) == 2
        if wait_until(both):
            return
        logs = "\n".join(f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(cls.dir.glob("*.log")))
        raise AssertionError(f"the nodes did not join\n{said[0]}\n{logs}")

    def test_advertised_addresses_are_those_of_the_hosts(self):
        nodes = json.loads(self.hosts.ctl("get", "nodes", "-o", "json").stdout)["nodes"]
        self.assertEqual({n["node"]: n["endpoint"] for n in nodes}, {n: f"{HOSTS[n]}:7701" for n in ("n1", "n2")})

    def test_every_row_is_right_and_comes_over_stream(self):
        verified = self.hosts.ctl("verify", "table", "t@1", "--sample", "2000")
        self.assertIn("2,000 rows compared", verified.stdout)
        self.assertIn("0 wrong", verified.stdout)
        # The gather of the stream fabric counts what it served, and mapped reads pass it by.
        self.assertGreaterEqual(sum(self.rows_gathered(node) for node in ("n1", "n2")), 1900)

    def rows_gathered(self, node):
        page = run("ip", "netns", "exec", f"{PREFIX}{node}", sys.executable, "-c",
                   "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9100/metrics', timeout=5).read().decode())").stdout
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("engram_gather_rows_total{"))

    def test_forcing_mapped_is_refused_with_the_reason(self):
        done = self.hosts.ctl("read", "table", "t@1", "--rows", "0", "--fabric", "mapped", "--timeout", "10s", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("mapped", done.stderr)
        self.assertIn("No such file", done.stderr)

    def test_a_checkpoint_that_the_nodes_cannot_see_is_named(self):
        # It is there on the client's host, whose /tmp is its own.
        load = 'mkdir /tmp/mine && echo "{}" >/tmp/mine/config.json && exec "$@"'
        done = subprocess.run(self.hosts.command("client", "sh", "-c", load, "sh", "/mnt/engramctl", "load", "table", "hidden@1", "--checkpoint",
                                                 "/tmp/mine", "--wait", "--endpoint", CONTROLLER), capture_output=True, text=True, timeout=300)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"node \"?n[12]\"?.*/tmp/mine.*(No such file|does not exist)")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    # Stopped from outside, it still takes its network apart.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)
