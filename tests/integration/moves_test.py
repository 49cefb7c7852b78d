"""Shards move, a node is drained, controller and target are killed in between: readers of real processes never notice.

usage: moves_test.py BIN_DIR
"""
import ctypes
import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool, alive, wait_until  # noqa: E402

BIN_DIR = None
TABLE = "t@1"
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 4000, "layers": [1], "seed": 7}  # 48 shards, 26 MiB
ROWS_A_STEP = 256
READ_NS = 20_000_000_000
OPEN_NS = 90_000_000_000


class RowsOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("ids", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("id_type", ctypes.c_uint32), ("layer_index", ctypes.c_int32)]


class PoolOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("endpoints", ctypes.c_char_p), ("client_name", ctypes.c_char_p),
                ("tenant", ctypes.c_char_p), ("fabric", ctypes.c_char_p), ("connect_timeout_ns", ctypes.c_uint64),
                ("spin_ns", ctypes.c_uint64)]


class TableOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("spec", ctypes.c_char_p), ("content", ctypes.c_char_p), ("open_timeout_ns", ctypes.c_uint64)]


class TableInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("version", ctypes.c_char_p),
                ("table_uid", ctypes.c_char_p), ("spec_digest", ctypes.c_char_p), ("content_digest", ctypes.c_char_p),
                ("rows", ctypes.c_uint64), ("layers", ctypes.c_uint32), ("columns_per_layer", ctypes.c_uint32),
                ("row_bytes", ctypes.c_uint32), ("planes", ctypes.c_uint32), ("lookback", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


class Reader(threading.Thread):
    """A client of libengram that reads the same rows again and again and compares them with the first answer."""

    def __init__(self, lib, endpoint, fabric, seed, table=TABLE):
        super().__init__(daemon=True)
        self.lib, self.failed, self.wrong, self.steps = lib, [], 0, 0
        self.stop = threading.Event()
        options = PoolOptions()
        lib.engram_pool_options_init(ctypes.byref(options))
        options.endpoints, options.fabric = endpoint.encode(), fabric.encode()
        options.connect_timeout_ns = OPEN_NS
        self.pool, self.table = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self.open(options, table, seed)
        except AssertionError:
            self.close()
            raise

    def open(self, options, table, seed):
        lib = self.lib
        how = TableOptions(struct_size=ctypes.sizeof(TableOptions), open_timeout_ns=OPEN_NS)
        self.check(self.open_pool(options))
        self.check(lib.engram_table_open(self.pool, table.encode(), ctypes.byref(how), ctypes.byref(self.table)))
        info = TableInfo(struct_size=ctypes.sizeof(TableInfo))
        self.check(lib.engram_table_get_info(self.table, ctypes.byref(info)))
        rng = random.Random(seed)
        self.ids = (ctypes.c_int64 * ROWS_A_STEP)(*(rng.randrange(info.rows) for _ in range(ROWS_A_STEP)))
        self.rows = RowsOptions(ctypes.sizeof(RowsOptions), ctypes.addressof(self.ids), ROWS_A_STEP, 1, -1)
        self.out = ctypes.create_string_buffer(ROWS_A_STEP * info.row_bytes)
        self.check(self.read())
        self.first = self.out.raw

    def open_pool(self, options):
        return self.lib.engram_pool_open(ctypes.byref(options), ctypes.byref(self.pool))

    def check(self, status):
        assert status == 0, ctypes.string_at(self.lib.engram_last_error()).decode()

    def read(self, within_ns=READ_NS):
        ctypes.memset(self.out, 0xee, len(self.out))
        return self.lib.engram_table_read_rows(self.table, ctypes.byref(self.rows), self.out, len(self.out), None,
                                               ctypes.c_uint64(within_ns))

    def run(self):
        while not self.stop.is_set():
            if self.read() != 0:
                self.failed.append(ctypes.string_at(self.lib.engram_last_error()).decode())
            elif self.out.raw != self.first:
                self.wrong += 1
            self.steps += 1
            time.sleep(0.002)

    def finish(self):
        self.stop.set()
        if self.is_alive():
            self.join(timeout=30)
        self.close()

    def close(self):
        if self.table:
            self.lib.engram_table_close(self.table)
        if self.pool:
            self.lib.engram_pool_close(self.pool)


class MovesTest(unittest.TestCase):
    def setUp(self):
        self.pool = Pool(BIN_DIR)
        self.addCleanup(self.pool.__exit__, None, None, None)
        # A drain is long enough to be met in the middle, however fast the machine.
        self.pool.env.update(ENGRAM_MOVE_RATE="4MiB")
        self.endpoint = self.pool.up("--nodes", "3", "--memory-per-node", "192MiB", "--port", "0").split()[-1]
        self.lib = ctypes.CDLL(str(BIN_DIR.parent / "lib" / "libengram.so"))
        self.lib.engram_last_error.restype = ctypes.c_void_p
        self.readers = []

    def load(self, *words):
        self.pool.ok("load", "table", TABLE, "--synthetic", self.pool.synthetic(**SPEC), "--shard-bytes", "1MiB", *words, "--wait", "--timeout", "240s")

    def start_readers(self, fabrics=("mapped", "stream")):
        self.readers = [Reader(self.lib, self.endpoint, fabric, seed) for seed, fabric in enumerate(fabrics)]
        for reader in self.readers:
            reader.start()

    def finish_readers(self):
        # They still read, whatever happened before.
        steps = [reader.steps for reader in self.readers]
        self.assertTrue(wait_until(lambda: all(reader.steps > before + 20 for reader, before in zip(self.readers, steps))))
        for reader in self.readers:
            reader.finish()
        for reader in self.readers:
            self.assertEqual(reader.wrong, 0)
            self.assertEqual(reader.failed, [])

    def node(self, name):
        return next(node for node in self.pool.json("get", "nodes")["nodes"] if node["node"] == name)

    def holders(self, shard):
        shards = self.pool.json("get", "shards", TABLE)["shards"]
        return sorted(one["node"] for one in shards[shard]["replicas"] if one["state"] == "REPLICA_STATE_SERVING")

    def moves(self):
        return self.pool.json("get", "plans").get("moves", [])

    def kill(self, name):
        pid = self.pool.processes()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not alive(pid)))

    def test_a_shard_moves_and_a_node_is_drained_under_readers(self):
        self.load()
        self.start_readers()
        source = self.holders(0)[0]
        target = next(f"node-{i}" for i in range(3) if f"node-{i}" != source)
        self.assertIn("would move", self.pool.run("move", "shard", f"{TABLE}/0", "--to", target, "--dry-run").stderr)
        self.pool.ok("move", "shard", f"{TABLE}/0", "--to", target)
        self.assertTrue(wait_until(lambda: self.holders(0) == [target] and not self.moves()), self.holders(0))
        self.pool.ok("drain", "node", target, "--wait", "--timeout", "240s")
        empty = self.node(target)
        self.assertEqual(int(empty["replicasServing"]), 0)
        self.assertTrue(wait_until(lambda: int(self.node(target)["tiers"][0]["allocatedBytes"]) == 0))
        self.pool.ok("uncordon", "node", target)
        self.finish_readers()
        self.assertIn("0 wrong", self.pool.ok("verify", "table", TABLE, "--sample", "2000"))

    def test_controller_and_target_die_in_the_middle_of_a_drain(self):
        self.load()
        self.start_readers()
        victim = next(node["node"] for node in self.pool.json("get", "nodes")["nodes"] if int(node["replicasServing"]) > 0)
        self.pool.ok("drain", "node", victim)
        self.assertTrue(wait_until(lambda: any(move["state"] != "MOVE_STATE_WAITING" for move in self.moves())))
        self.kill("controller")
        self.pool.up()
        done = self.pool.run("drain", "node", victim, "--wait", "--timeout", "240s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.finish_readers()
        self.assertEqual(int(self.node(victim)["replicasServing"]), 0)
        self.assertIn("0 wrong", self.pool.ok("verify", "table", TABLE, "--sample", "2000"))

    def test_two_copies_outlive_a_target_that_is_killed(self):
        self.load("--replicas", "2")
        self.start_readers()
        source = self.holders(0)[0]
        target = next(f"node-{i}" for i in range(3) if f"node-{i}" not in self.holders(0))
        self.pool.ok("drain", "node", source)
        self.assertTrue(wait_until(lambda: any(move["to"] == target for move in self.moves())))
        self.kill(target)
        self.pool.up()
        done = self.pool.run("drain", "node", source, "--wait", "--timeout", "240s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.finish_readers()
        # What the target had taken over already it loads again.
        self.assertTrue(wait_until(lambda: len(self.holders(0)) == 2), self.holders(0))
        self.assertIn("0 wrong", self.pool.ok("verify", "table", TABLE, "--sample", "2000"))


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
