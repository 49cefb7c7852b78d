"""Two tiers in one node: where copies go, what every command says of it, rows from both.

usage: tiers_test.py BIN_DIR

The cxl tier is the memory of NUMA node 0 here: what is bound and looked at is real, the memory is not CXL.
"""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool, wait_until  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 4000, "layers": [1], "seed": 7}  # 48 shards, 26 MiB


class TiersTest(unittest.TestCase):
    def setUp(self):
        self.pool = Pool(BIN_DIR)
        self.addCleanup(self.pool.__exit__)
        self.pool.env.update(ENGRAM_CXL_MEMORY="128MiB", ENGRAM_CXL_NUMA_NODE="0", ENGRAM_SLAB_SIZE="2MiB", ENGRAM_HUGE_PAGES="off")
        self.pool.up("--nodes", 2, "--memory-per-node", "10MiB")
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


if __name__ == "__main__":
    BIN_DIR = sys.argv.pop(1)
    unittest.main(verbosity=2)
