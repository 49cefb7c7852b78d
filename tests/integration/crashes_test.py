"""Pool nodes killed at random points of running loads: nothing half loaded serves, no memory is lost.

usage: crashes_test.py BIN_DIR

A failure names its seed; ENGRAM_CRASH_SEEDS="4 5 6" runs others than the usual ones.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool, alive, stopped, wait_until  # noqa: E402

BIN_DIR = None
VOCAB = 12000  # 163 MiB of rows: some tenths of a second of loading, and more than one node holds
NODES = ("node-0", "node-1")
SEEDS = [int(seed) for seed in os.environ.get("ENGRAM_CRASH_SEEDS", "1 2 3").split()]


class CrashTest(unittest.TestCase):
    """One pool, one table a seed, two kills while it loads."""

    def run_seeds(self, source):
        for seed in SEEDS:
            with self.subTest(seed=seed), Pool(BIN_DIR) as pool:
                pool.up("--nodes", "2", "--memory-per-node", "128MiB", "--port", "0")
                self.crash(pool, "t@1", source(pool), random.Random(seed))

    def crash(self, pool, table, words, rng):
        victim, other = rng.sample(NODES, 2)
        # The other node stands still meanwhile: the first kill meets a running load however fast the machine is.
        with stopped([pool.processes()[other]["pid"]]):
            # Many shards, so that there are many points between the first and the last.
            pool.ok("load", "table", table, *words, "--shard-bytes", "1MiB")
            self.kill(pool, victim, rng)
            self.assertEqual(self.state(pool, table), "LOADING")
        self.nothing_wrong_is_read(pool, table)
        pool.up()
        victim = rng.choice(NODES)
        self.kill(pool, victim, rng)
        self.nothing_wrong_is_read(pool, table)
        pool.up()
        pool.ok("wait", "table", table, "--for", "ready", "--timeout", "90s")
        self.assertIn("0 wrong", pool.ok("verify", "table", table, "--sample", "2000"))
        # What the dead processes held does not stay on the account. Nodes report once a second.
        self.assertTrue(wait_until(lambda: 150 << 20 < self.allocated(pool) < 200 << 20), f"{self.allocated(pool)} bytes are held")
        pool.ok("delete", "table", table, "--yes", "--force")
        pool.ok("wait", "table", table, "--for", "deleted", "--timeout", "60s")
        self.assertTrue(wait_until(lambda: self.allocated(pool) == 0), f"{self.allocated(pool)} bytes are lost")

    def nothing_wrong_is_read(self, pool, table):
        """With a node gone, a read ends in an error that names the table, or in right rows."""
        before = self.state(pool, table)
        done = pool.run("verify", "table", table, "--sample", "50", "--timeout", "1s")
        if done.returncode == 0:
            self.assertIn("0 wrong", done.stdout)
            self.assertIn("READY", {before, self.state(pool, table)}, "a table that is not ready serves")
        else:
            self.assertRegex(done.stderr, re.escape(table))
            self.assertNotRegex(done.stdout + done.stderr, r"[1-9]\d* wrong")

    def kill(self, pool, victim, rng):
        time.sleep(rng.random() * 0.8)
        pid = pool.processes()[victim]["pid"]
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not alive(pid)))

    @staticmethod
    def state(pool, table):
        for one in pool.json("get", "tables")["tables"]:
            if f"{one['table']['name']}@{one['table']['version']}" == table:
                return one["table"]["state"].removeprefix("TABLE_STATE_")
        return "GONE"

    @staticmethod
    def allocated(pool):
        return sum(int(tier.get("allocatedBytes", 0)) for node in pool.json("get", "nodes")["nodes"] for tier in node["tiers"])

    def test_a_synthetic_table(self):
        spec = {"model": "deepseek-v4.1", "engram_vocab_size": VOCAB, "layers": [1, 14], "seed": 7}
        self.run_seeds(lambda pool: ("--synthetic", pool.synthetic(**spec)))

    def test_a_checkpoint(self):
        bench = BIN_DIR / "engram-bench"
        if not bench.exists():
            self.skipTest("engram-bench, which writes checkpoints, is not built under the sanitizers")

        def written(pool):
            folder = pool.path / "checkpoint"
            subprocess.run([bench, "checkpoint", "--out", folder, "--engram-vocab-size", str(VOCAB)], check=True,
                           capture_output=True, timeout=120)
            return "--checkpoint", folder
        self.run_seeds(written)


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
