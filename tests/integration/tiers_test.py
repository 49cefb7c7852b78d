"""Several tiers in one node: where copies go, what every command says of it, rows from all, moves between them.

usage: tiers_test.py BIN_DIR

With two tiers the cxl tier is the memory of NUMA node 0: what is bound and looked at is real, the memory is not CXL. With
three it is a file in the place of a device, and the nvme tier lies beside the build, on a disk.
"""
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool, wait_until  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 4000, "layers": [1], "seed": 7}  # 48 shards, 26 MiB


class TiersTest(unittest.TestCase):
    def setUp(self):
        self.pool = Pool(BIN_DIR)
        self.addCleanup(self.pool.__exit__)
        self.pool.env.update(ENGRAM_SLAB_SIZE="2MiB", ENGRAM_HUGE_PAGES="off")
        self.pool.up("--nodes", 2, "--memory-per-node", "10MiB", "--cxl-per-node", "128MiB", "--cxl-numa-node", 0)
        self.spec = self.pool.synthetic(**SPEC)

    def load(self, table, *words):
        self.pool.ok("load", "table", table, "--synthetic", self.spec, "--shard-bytes", "1MiB", "--wait", *words)

    def replicas(self, table):
        return self.pool.json("get", "replicas", table)["replicas"]

    def tiers(self, table):
        return {replica["tier"] for replica in self.replicas(table)}

    def test_a_table_over_two_tiers_and_what_is_said_of_it(self):
        self.load("t@1", "--replicas", 2)
        self.assertEqual(self.tiers("t@1"), {"TIER_DRAM", "TIER_CXL"})
        places = {(replica["shard"], replica["node"]) for replica in self.replicas("t@1")}
        self.assertEqual(len(places), 2 * len({shard for shard, _ in places}), "two copies on one node")
        self.pool.ok("verify", "table", "t@1", "--sample", "20000")

        rows = self.pool.json("explain", "table", "t@1", "--tokens", "22898,19737,270")["rows"]
        self.assertEqual({path["tier"] for row in rows for path in row["readFrom"]}, {"dram", "cxl"})
        self.assertIn("node-0 cxl mapped", self.pool.ok("explain", "table", "t@1", "--tokens", "22898,19737,270"))
        in_use = r"dram [\d.]+MiB/10.0MiB, cxl [\d.]+MiB/128.0MiB"  # with the next heartbeat of each
        self.assertTrue(wait_until(lambda: len(re.findall(in_use, self.pool.ok("get", "nodes"))) == 2), self.pool.ok("get", "nodes"))
        self.assertRegex(self.pool.ok("describe", "node", "node-0"), r"Tier cxl: +[\d.]+MiB of 128.0MiB in use")
        self.assertRegex(self.pool.ok("describe", "table", "t@1"), r"node-1 +cxl +\d+")

    def test_a_restricted_table_and_a_shard_that_is_moved_to_a_tier(self):
        self.load("u@1", "--tiers", "cxl")
        self.assertEqual(self.tiers("u@1"), {"TIER_CXL"})
        self.assertRegex(self.pool.ok("describe", "table", "u@1"), r"Tiers: +cxl")
        self.pool.ok("verify", "table", "u@1", "--sample", "5000")
        first = self.replicas("u@1")[0]["node"]
        other = "node-1" if first == "node-0" else "node-0"
        refused = self.pool.run("move", "shard", "u@1/0", "--to", other, "--tier", "dram")
        self.assertIn("--tiers", refused.stderr)
        moved = self.pool.ok("move", "shard", "u@1/0", "--to", other, "--tier", "cxl")
        self.assertIn(f"from node {first}/cxl to node {other}/cxl", moved)
        self.assertTrue(wait_until(lambda: [(replica["node"], replica["tier"]) for replica in self.replicas("u@1")
                                            if replica["shard"] == 0] == [(other, "TIER_CXL")]))
        self.pool.ok("verify", "table", "u@1", "--sample", "5000")
        absent = self.pool.run("load", "table", "w@1", "--synthetic", self.spec, "--tiers", "nvme")
        self.assertNotEqual(absent.returncode, 0)
        self.assertIn("in nvme", absent.stderr)


class Verifier(threading.Thread):
    """Reads every row of a table and compares it with its source, again and again."""

    def __init__(self, pool, table):
        super().__init__(daemon=True)
        self.pool, self.table, self.rounds, self.failed, self.stop = pool, table, 0, [], threading.Event()

    def run(self):
        while not self.stop.is_set():
            done = self.pool.run("verify", "table", self.table)
            if done.returncode != 0 or "0 wrong" not in done.stdout:
                self.failed.append(done.stdout + done.stderr)
            self.rounds += 1

    def finish(self):
        self.stop.set()
        self.join(timeout=60)
        return self.rounds, self.failed


class ThreeTiersTest(unittest.TestCase):
    """A node with 10 MiB of dram, 12 MiB of a device, and an nvme tier, and a table that needs all three."""

    def setUp(self):
        disabled = pathlib.Path("/proc/sys/kernel/io_uring_disabled")
        if disabled.exists() and disabled.read_text().strip() not in ("0", "1"):
            self.skipTest("io_uring is forbidden here: sysctl kernel.io_uring_disabled=0")
        self.pool = Pool(BIN_DIR)
        self.addCleanup(self.pool.__exit__)
        self.nvme = pathlib.Path(tempfile.mkdtemp(prefix="tiers-", dir=BIN_DIR.parent))
        self.addCleanup(shutil.rmtree, self.nvme, True)
        device = self.pool.path / "device"
        with open(device, "wb") as file:
            file.truncate(32 << 20)
        self.pool.env.update(ENGRAM_CXL_DEVICES=f"file:{device}", ENGRAM_DAX_DEVICES=f"file:{device}", ENGRAM_CXL_MEMORY="12MiB",
                             ENGRAM_NVME_DIR=str(self.nvme), ENGRAM_NVME="64MiB", ENGRAM_SLAB_SIZE="2MiB", ENGRAM_HUGE_PAGES="off")
        self.pool.up("--nodes", 1, "--memory-per-node", "10MiB")
        self.pool.ok("load", "table", "t@1", "--synthetic", self.pool.synthetic(**SPEC), "--shard-bytes", "2MiB", "--wait")

    def tier_of(self, shard):
        [tier] = {replica["tier"] for replica in self.pool.json("get", "replicas", "t@1")["replicas"] if replica["shard"] == shard}
        return tier[len("TIER_"):].lower()

    def shards_in(self, tier):
        return [replica["shard"] for replica in self.pool.json("get", "replicas", "t@1")["replicas"]
                if replica["tier"] == f"TIER_{tier.upper()}"]

    def test_explain_says_of_every_row_its_node_tier_and_path(self):
        ways = {"dram": "mapped", "cxl": "mapped", "nvme": "stream"}
        self.assertTrue(all(self.shards_in(tier) for tier in ways), self.pool.ok("get", "replicas", "t@1"))
        tokens = "22898,19737,270"
        text = self.pool.ok("explain", "table", "t@1", "--tokens", tokens)
        print(text, file=sys.stderr)
        rows = self.pool.json("explain", "table", "t@1", "--tokens", tokens)["rows"]
        self.assertEqual({row["readFrom"][0]["tier"] for row in rows}, set(ways))
        for row in rows:
            first = row["readFrom"][0]
            self.assertEqual((first["node"], first["tier"]), ("node-0", self.tier_of(row["shard"])))
            self.assertEqual(first["fabric"], ways[first["tier"]])
        for tier, fabric in ways.items():
            self.assertIn(f"node-0 {tier} {fabric}", text)
        node = self.pool.ok("describe", "node", "node-0")
        self.assertEqual(len(re.findall(r"Tier (?:dram|cxl|nvme): .*[KMG]iB/s of rows", node)), 3, node)

    def move(self, shard, tier):
        """Once there is room: what a copy has left is free when its readers have let go of it."""
        move = ("move", "shard", f"t@1/{shard}", "--to", "node-0", "--tier", tier)
        self.assertTrue(wait_until(lambda: self.pool.run(*move).returncode == 0), self.pool.run(*move).stderr)
        done = wait_until(lambda: self.tier_of(shard) == tier and not self.pool.json("get", "plans").get("moves"))
        self.assertTrue(done, self.pool.ok("get", "plans"))

    def test_a_copy_moves_to_another_tier_and_back_while_every_row_is_verified(self):
        verifier = Verifier(self.pool, "t@1")
        verifier.start()
        for tier in ("dram", "cxl"):
            shard = self.shards_in(tier)[0]
            self.move(shard, "nvme")
            self.move(shard, tier)
        rounds, failed = verifier.finish()
        self.assertEqual(failed, [])
        self.assertGreater(rounds, 0)
        again = self.pool.run("move", "shard", f"t@1/{shard}", "--to", "node-0", "--tier", tier)
        self.assertIn("already", again.stderr)


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
