"""Pool nodes with memory whose table lies in the nvme tier: rows from the device, damaged blocks, a node killed in the middle of a load.

usage: nvme_test.py BIN_DIR
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from failover_test import free_ports  # noqa: E402
from pool import PATIENCE, stopped, wait_until  # noqa: E402
from security_test import Program  # noqa: E402

BIN_DIR = pathlib.Path()
BLOCK = 4096


def spec(vocab):
    return {"model": "deepseek-v4.1", "engram_vocab_size": vocab, "layers": [1], "seed": 7}


class NvmePool:
    """A controller and nodes that serve over every fabric; their directories lie beside the build, on a disk."""

    def __init__(self, nodes):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="nvme-pool-", dir=BIN_DIR.parent))
        self.metrics = dict(zip(nodes, free_ports(len(nodes))))
        self.programs, self.endpoint = {}, f"127.0.0.1:{free_ports(1)[0]}"
        self.start("placement", BIN_DIR / "engram-placement", "--listen", self.endpoint, "--metrics-listen", "",
                   "--state-file", self.work / "state.db")
        for node in nodes:
            (self.work / node).mkdir()
            self.start_node(node)
        if not wait_until(lambda: all("joined the pool" in self.programs[node].text() for node in nodes)):
            logs = self.logs()
            self.__exit__()
            raise AssertionError(logs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs.values():
            program.stop()
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, name, *command):
        self.programs[name] = Program(self.work / f"{name}.log", *command)

    def start_node(self, name):
        self.start(name, BIN_DIR / "engram-poolserver", "--node-id", name, "--controller", self.endpoint, "--memory", "64MiB",
                   "--nvme-dir", self.work / name, "--nvme", "512MiB", "--nvme-cache", "4MiB",
                   "--scrub-rate", "0", "--metrics-listen", f"127.0.0.1:{self.metrics[name]}")

    def logs(self):
        return "\n".join(f"== {name}\n{program.text()[-2000:]}" for name, program in self.programs.items())

    def run(self, *words, timeout=300):
        env = dict(os.environ, ENGRAM_ENDPOINT=self.endpoint, ENGRAM_CONTEXT=str(self.work / "none"), **PATIENCE)
        return subprocess.run([BIN_DIR / "engramctl", *map(str, words)], env=env, capture_output=True, text=True, timeout=timeout)

    def ok(self, *words):
        done = self.run(*words)
        assert done.returncode == 0, f"engramctl {words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def load(self, table, vocab, *words):
        path = self.work / "spec.json"
        path.write_text(json.dumps(spec(vocab)), encoding="utf-8")
        return self.ok("load", "table", table, "--synthetic", path, "--tiers", "nvme", "--shard-bytes", "1MiB", *words)

    def metric(self, node, name):
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[node]}/metrics", timeout=30).read().decode()
        return float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.M).group(1))

    def damage(self, node):
        for file in self.files(node, ".rows"):
            with open(file, "r+b") as rows:
                for block in range(1, 20):
                    rows.seek(block * BLOCK + 100)
                    rows.write(os.urandom(8))

    def files(self, node, ending):
        return sorted((self.work / node).glob(f"*{ending}"))


class NvmeTest(unittest.TestCase):
    def setUp(self):
        disabled = pathlib.Path("/proc/sys/kernel/io_uring_disabled")
        if disabled.exists() and disabled.read_text().strip() not in ("0", "1"):
            self.skipTest("io_uring is forbidden here: sysctl kernel.io_uring_disabled=0")

    def test_rows_come_from_the_device_and_a_damaged_block_from_another_replica(self):
        with NvmePool(["n1", "n2"]) as pool:
            pool.load("t@1", 2000, "--replicas", "2", "--wait", "--timeout", "240s")
            self.assertIn("nvme", pool.ok("get", "replicas", "-o", "wide"))
            self.assertEqual(len(pool.files("n1", ".rows")), len(pool.files("n2", ".rows")))
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "2000"))
            pool.damage("n1")
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "8000"))
            self.assertGreater(pool.metric("n1", "engram_nvme_block_errors_total"), 0, "no damaged block was read")
            self.assertEqual(pool.metric("n2", "engram_nvme_block_errors_total"), 0)
            self.assertGreater(pool.metric("n2", "engram_nvme_rows_total"), 0)

    def test_a_damaged_block_of_the_only_replica_is_a_failure_that_names_node_and_row(self):
        with NvmePool(["n1"]) as pool:
            pool.load("t@1", 2000, "--wait", "--timeout", "240s")
            pool.damage("n1")
            done = pool.run("verify", "table", "t@1", "--sample", "8000")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertNotIn("wrong", done.stdout + done.stderr, "a row was read")
            self.assertRegex(done.stderr, r"(?s)row \d+.*n1|n1.*row \d+")

    def test_a_node_killed_in_the_middle_of_a_load_leaves_nothing_that_serves(self):
        with NvmePool(["n1"]) as pool:
            pool.load("t@1", 12000)
            node = pool.programs["n1"].process

            def killed_in_the_middle():
                # It stands still while it is looked at, so that the load cannot end before the kill.
                with stopped([node.pid]):
                    middle = pool.files("n1", ".rows") and pool.files("n1", ".partial")
                    if middle:
                        node.kill()
                    return middle
            self.assertTrue(wait_until(killed_in_the_middle, every=0.001), pool.logs())
            node.wait()
            whole = pool.files("n1", ".rows")
            pool.start_node("n1")
            pool.ok("wait", "table", "t@1", "--for", "ready", "--timeout", "240s")
            self.assertIn("half-written files", pool.programs["n1"].text())
            self.assertIn(f"kept {len(whole)} shards", pool.programs["n1"].text())
            self.assertFalse(pool.files("n1", ".partial"))
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "3000"))

    def test_what_the_machine_cannot_do_is_refused_at_the_start(self):
        for flags, says in ((("--nvme", "1GiB"), "--nvme-dir"), (("--nvme-dir", "/nowhere"), "give --nvme"),
                            (("--nvme-dir", "/nowhere", "--nvme", "1GiB"), "make the directory")):
            done = subprocess.run([BIN_DIR / "engram-poolserver", "--memory", "0", *flags], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
