"""The Python package, installed from its wheel, against a real local pool and an independent NumPy computation.

usage: engram_pool_test.py BIN_DIR [unittest options]
"""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import unittest
from unittest import mock

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import engram_pool  # noqa: E402
import package_test  # noqa: E402
import patient  # noqa: E402, F401
from checkpoint import Checkpoint  # noqa: E402
from engram_pool._abi import TableInfo, library  # noqa: E402
from package_test import python  # noqa: E402
from pool import Pool, wait_until  # noqa: E402

BIN_DIR = None
TRACES = HERE.parent.parent / "bench" / "traces"
POISON = np.concatenate([np.full(256, 0x7F, np.uint8), np.full(8, 0xFF, np.uint8)])


def trace(name, first, count):
    done = subprocess.run(["zstd", "-dc", TRACES / f"tokens_{name}.u32.zst"], check=True, capture_output=True)
    return np.frombuffer(done.stdout, "<u4")[first:first + count].astype(np.int64)


class LegacyDLPack:
    """An array of another library, which exports the first version of DLPack, as most do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(LegacyDLPack):
    def __dlpack_device__(self):
        return (2, 0)


def setUpModule():
    global POOL, ENDPOINT, WIDE, NARROW
    POOL = Pool(BIN_DIR)
    POOL.env["ENGRAM_OFI_PROVIDERS"] = "tcp;ofi_rxm,shm"
    POOL.env["ENGRAM_OFI_HOST"] = "127.0.0.1,127.0.0.2"  # of nodes: a path by each
    unittest.addModuleCleanup(POOL.__exit__)
    ENDPOINT = POOL.up("--nodes", "2", "--memory-per-node", "24MiB", "--port", "0", "--fabric", "mapped,stream,ofi")
    WIDE = Checkpoint(POOL.path / "wide", layers=[3, 7], max_order=4, heads=8, head_dim=256, vocab_size=2000,
                      raw_vocab=129280, prefix="language_model.model.", nested=True, files=3, seed=5)
    NARROW = Checkpoint(POOL.path / "narrow", layers=[0, 5, 6], max_order=3, heads=3, head_dim=96, vocab_size=300,
                        raw_vocab=2000, prefix="", nested=False, files=1, seed=6)
    for name, checkpoint in (("wide@1", WIDE), ("narrow@2", NARROW)):
        POOL.ok("load", "table", name, "--checkpoint", checkpoint.path, "--shard-bytes", "1MiB", "--wait", "--timeout", "240s")
    package_test.POOL, package_test.ENDPOINT, package_test.WIDE = POOL, ENDPOINT, WIDE


# Of this module, so that they run while its pool does.
class WheelTest(package_test.WheelTest):
    pass


class TypesTest(package_test.TypesTest):
    pass


class LifetimeTest(package_test.LifetimeTest):
    pass


class ReadTest(unittest.TestCase):
    def test_engramctl_agrees_that_every_row_is_that_of_the_checkpoint(self):
        for name, checkpoint in (("wide@1", WIDE), ("narrow@2", NARROW)):
            verified = POOL.ok("verify", "table", name, "--checkpoint", checkpoint.path)
            self.assertIn(" 0 wrong", verified)
            self.assertIn("recomputed: equal", verified)

    def test_tensors_of_other_names_are_found_through_a_name_map(self):
        names = {"layers.1.engram.embed.scale": "odd_scales", "layers.1.engram.embed.weight": "odd_values"}
        odd = Checkpoint(POOL.path / "odd", layers=[1], max_order=2, heads=2, head_dim=64, vocab_size=300, raw_vocab=2000, prefix="",
                         nested=False, files=2, seed=7, names=names)
        load = ("load", "table", "odd@1", "--checkpoint", odd.path, "--wait", "--timeout", "240s")
        refused = POOL.run(*load)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("layers.1.engram.embed.", refused.stderr)
        (POOL.path / "names.json").write_text(json.dumps(names))
        POOL.ok(*load, "--name-map", POOL.path / "names.json")
        self.assertIn(" 0 wrong", POOL.ok("verify", "table", "odd@1", "--checkpoint", odd.path))
        with engram_pool.connect(ENDPOINT) as pool:
            rows = np.arange(odd.model.rows(1))
            np.testing.assert_array_equal(pool.table("odd@1").read_rows(rows, timeout=60), odd.whole_table())
        POOL.ok("delete", "table", "odd@1", "--yes")

    def test_the_table_describes_itself_as_the_checkpoint_does(self):
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("wide@1")
            primes = [prime for layer in (3, 7) for prime in WIDE.model.primes[layer]]
            self.assertEqual([column.rows for column in table.columns], primes)
            self.assertEqual([(x.layer, x.rows) for x in table.layers], [(n, WIDE.model.rows(n)) for n in (3, 7)])
            self.assertEqual([tuple(plane) for plane in table.planes], [("weight", "e4m3", 0, 256), ("scale", "ue8m0", 256, 8)])
            self.assertEqual((table.name, table.row_bytes, table.lookback), ("wide@1", 264, 3))

    def check_reads(self, endpoint, fabric, count=1500):
        with engram_pool.connect(endpoint, fabric=fabric) as pool:
            table = pool.table("wide@1")
            for name in ("kjv", "sqlite3_c", "tang300"):
                tokens = trace(name, 1000, count)
                addresses = WIDE.model.addresses(tokens)
                np.testing.assert_array_equal(table.addresses(tokens), addresses)
                np.testing.assert_array_equal(table.read(tokens, timeout=60), WIDE.expected(addresses))
            stats = table.stats()
            self.assertEqual(stats["rows_ok"], 3 * count * 48)
            over = {f: stats["rows_" + f] for f in ("mapped", "stream", "ofi")}
            # A row that is wanted twice in a batch may be read once.
            self.assertEqual(over.pop(fabric) + stats["rows_duplicate"], stats["rows_ok"])
            self.assertEqual(set(over.values()), {0})
            of_table = f'pool="{endpoint}",table="wide@1"'
            self.assertIn(f'engram_client_rows_total{{{of_table},fabric="{fabric}",outcome="ok"}} {stats["rows_" + fabric]}\n',
                          engram_pool.metrics())
        self.assertNotIn('table="wide@1"', engram_pool.metrics())

    def test_rows_of_real_text_over_mapped(self):
        self.check_reads(ENDPOINT, "mapped")

    def test_rows_of_real_text_over_stream(self):
        self.check_reads(ENDPOINT, "stream")

    def test_rows_of_real_text_over_ofi(self):
        for provider, count in (("tcp;ofi_rxm", 1500), ("shm", 200)):
            with self.subTest(provider=provider), mock.patch.dict(os.environ, ENGRAM_OFI_PROVIDER=provider):
                self.check_reads(ENDPOINT, "ofi", count)

    def test_a_provider_that_is_not_there_is_named_with_those_that_are(self):
        with mock.patch.dict(os.environ, ENGRAM_OFI_PROVIDER="telegraph"):
            with self.assertRaisesRegex(engram_pool.FailedPrecondition, "telegraph.*tcp;ofi_rxm"):
                engram_pool.connect(ENDPOINT, fabric="ofi")

    def test_other_geometries(self):
        tokens = np.random.default_rng(1).integers(0, 2000, 700)
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("narrow@2")
            self.assertEqual((table.row_bytes, table.lookback), (99, 2))
            np.testing.assert_array_equal(table.read(tokens, timeout=60), NARROW.expected(NARROW.model.addresses(tokens)))

    def test_a_chunk_with_its_look_back_reads_as_the_whole_and_dead_tokens_block(self):
        tokens = trace("tang300", 0, 300)
        dead = np.zeros(300, bool)
        dead[[40, 41, 100, 199]] = True
        wanted = WIDE.model.addresses(tokens, dead)
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("wide@1")
            np.testing.assert_array_equal(table.addresses(tokens, dead=dead), wanted)
            chunk = dict(dead=dead[200:], lookback=tokens[197:200], lookback_dead=dead[197:200])
            np.testing.assert_array_equal(table.addresses(tokens[200:], **chunk), wanted[200:])
            np.testing.assert_array_equal(table.read(tokens[200:], **chunk, timeout=60), WIDE.expected(wanted)[200:])
            self.assertEqual(table.read([]).shape, (0, 2, 24, 264))

    def test_rows_by_number(self):
        everything = WIDE.whole_table()
        first = WIDE.model.rows(3)
        with engram_pool.connect([ENDPOINT]) as pool:
            table = pool.table("wide@1")
            np.testing.assert_array_equal(table.read_rows(np.array([5, 0, 5, first], np.int32), timeout=60), everything[[5, 0, 5, first]])
            np.testing.assert_array_equal(table.read_rows([0, -1, 9], layer=7),
                                          np.stack([everything[first], np.zeros(264, np.uint8), everything[first + 9]]))
            self.assertEqual(table.read_rows([]).shape, (0, 264))

    def test_rows_land_in_the_memory_of_the_caller(self):
        wanted = WIDE.whole_table()[[7, 8]]
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("wide@1")
            numbers = np.array([7, 8])
            for out, memory in ((array := np.zeros((2, 264), np.uint8), array), (wide := np.zeros((2, 66), np.float32), wide),
                                (raw := bytearray(528), raw), (memoryview(view := bytearray(528)), view),
                                (LegacyDLPack(legacy := np.zeros((2, 264), np.uint8)), legacy)):
                returned = table.read_rows(LegacyDLPack(numbers), out=out)
                self.assertEqual(bytes(memory), wanted.tobytes(), type(out))
                self.assertEqual(returned.tobytes(), wanted.tobytes())


class PrefetchTest(unittest.TestCase):
    """Every layer of a step, on every fabric, against the blocking read, which ReadTest compares with the checkpoint."""

    def open(self, fabric="mapped"):
        pool = engram_pool.connect(ENDPOINT, fabric=fabric)
        self.addCleanup(pool.close)
        return pool.table("wide@1")

    def test_layers_are_there_when_they_were_waited_for(self):
        tokens = trace("kjv", 500, 40)
        for fabric in ("mapped", "stream", "ofi"):
            with self.subTest(fabric=fabric):
                table = self.open(fabric)
                want = table.read(tokens, lookback=[5, 6], timeout=60)
                buffer = np.empty(want.shape, np.uint8)
                step = table.prefetch(tokens, out=buffer, lookback=[5, 6], needed_in={3: 20, 7: 20}, timeout=60)
                step.wait(layer=3, timeout=60)
                np.testing.assert_array_equal(buffer[:, 0], want[:, 0])
                np.testing.assert_array_equal(step.wait(), want)
                self.assertEqual((step.state(3), step.state(7), step.late(3)), ("ready", "ready", False))
                self.assertEqual(table.stats()["layers_ready"], 2)
                step.close()
                self.assertEqual(step.state(3), "unknown")

    def test_a_step_can_be_awaited(self):
        import asyncio
        table = self.open("stream")
        tokens = trace("kjv", 600, 100)
        want = table.read(tokens, timeout=60)

        async def both():
            return await asyncio.gather(*(table.prefetch(tokens, kind=kind, timeout=60) for kind in ("decode", "prefill")))

        for rows in asyncio.run(both()):
            np.testing.assert_array_equal(rows, want)

    def test_cached_rows_are_not_read_again_and_hot_ones_can_be_pinned(self):
        tokens = trace("kjv", 700, 50)
        file = POOL.path / "hot"
        for host_cache in (False, True):
            with self.subTest(host_cache=host_cache):
                pool = engram_pool.connect(ENDPOINT, fabric="stream")
                self.addCleanup(pool.close)
                table = pool.table("wide@1", cache_bytes=8 << 20, host_cache=host_cache)
                want = table.read(tokens, timeout=60)
                np.testing.assert_array_equal(table.prefetch(tokens, timeout=60).wait(), want)
                read = table.stats()["rows_stream"]
                np.testing.assert_array_equal(table.prefetch(tokens, timeout=60).wait(), want)
                self.assertEqual(table.stats()["rows_stream"], read)
                self.assertEqual(table.hint(tokens), tokens.size * 48)
                self.assertGreater(table.stats()["cache_hits"], 0)
                self.assertEqual(table.hint_rows(range(16), layer=7), 16)
                table.dump_hot(file, 10)
                later = pool.table("wide@1", cache_bytes=8 << 20, pinned=file)
                self.assertEqual(later.hint([]), 0)  # opens its prefetcher, which reads what is pinned
                self.assertTrue(wait_until(lambda: later.stats()["rows_stream"] == 80), later.stats())
                np.testing.assert_array_equal(later.prefetch(tokens, timeout=60).wait(), want)
                self.assertGreaterEqual(later.stats()["cache_hits"], 80)
        with self.assertRaisesRegex(engram_pool.FailedPrecondition, "cache_bytes"):
            self.open("stream").dump_hot(file)

    def test_a_large_prefill_and_decode_steps_are_served_side_by_side(self):
        table = self.open("stream")
        text = trace("kjv", 0, 3000)
        prefill = table.prefetch(text, kind="prefill", timeout=60)
        for first in range(0, 80, 8):
            with table.prefetch(text[first:first + 8], timeout=60) as step:
                np.testing.assert_array_equal(step.wait(), table.read(text[first:first + 8], timeout=60))
        np.testing.assert_array_equal(prefill.wait()[5:], table.read(text, timeout=60)[5:])

    def test_steps_are_bounded(self):
        table = self.open()
        steps = []
        with self.assertRaises(engram_pool.ResourceExhausted):
            for _ in range(65):
                steps.append(table.prefetch([7, 8, 9]))
        self.assertEqual(len(steps), 64)
        steps.pop().close()
        np.testing.assert_array_equal(table.prefetch([7, 8, 9], timeout=60).wait(), table.read([7, 8, 9], timeout=60))

    def test_bad_steps_are_refused(self):
        table = self.open()
        with self.assertRaises(engram_pool.InvalidArgument):
            table.prefetch([1, 2], kind="training")
        with self.assertRaises(engram_pool.InvalidArgument):
            table.prefetch([1, 2], needed_in={4: 0.1})
        with self.assertRaises(engram_pool.InvalidArgument):
            table.prefetch([1, 200_000])
        with self.assertRaises(engram_pool.InvalidArgument):
            table.prefetch([1, 2], out=np.empty(7, np.uint8))
        with self.assertRaises(engram_pool.InvalidArgument):
            table.prefetch([1, 2]).wait(layer=4)
        step = table.prefetch([1, 2])
        table.close()
        with self.assertRaises(engram_pool.InvalidArgument):
            step.wait()
        step.close()


class ErrorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = engram_pool.connect(ENDPOINT)
        cls.table = cls.pool.table("wide@1")

    @classmethod
    def tearDownClass(cls):
        cls.pool.close()

    def refused(self, error, words, call):
        with self.assertRaises(error) as raised:
            call()
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_unknown_tables_and_wrong_digests(self):
        self.refused(engram_pool.NotFound, ["nosuch@1"], lambda: self.pool.table("nosuch@1"))
        self.refused(engram_pool.NotFound, ["wide@9"], lambda: self.pool.table("wide@9"))
        for digest in ("content_digest", "spec_digest"):
            self.refused(engram_pool.FailedPrecondition, ["0" * 64], lambda: self.pool.table("wide@1", **{digest: "0" * 64}))
        self.pool.table("wide@1", content_digest=self.table.digest, spec_digest=self.table.spec_digest).close()

    def test_no_pool_there(self):
        self.refused(engram_pool.Unavailable, ["127.0.0.1:1"], lambda: engram_pool.connect("127.0.0.1:1", timeout=0.2))
        self.refused(engram_pool.InvalidArgument, ["telegraph"], lambda: engram_pool.connect(ENDPOINT, fabric="telegraph"))

    def test_rows_out_of_range(self):
        rows = self.table.rows
        invalid = engram_pool.InvalidArgument
        self.refused(invalid, [str(rows), str(rows - 1)], lambda: self.table.read_rows([0, rows]))
        self.refused(invalid, [str(2**63 - 1)], lambda: self.table.read_rows([2**63 - 1]))
        self.refused(invalid, [str(2**63)], lambda: self.table.read_rows([2**63]))
        self.refused(invalid, ["integers"], lambda: self.table.read_rows([1.5]))
        self.refused(invalid, ["integers"], lambda: self.table.read_rows([2**64]))
        self.refused(invalid, ["layer 4", "[3, 7]"], lambda: self.table.read_rows([0], layer=4))

    def test_tokens_out_of_range(self):
        for call in (self.table.read, self.table.addresses):
            self.refused(engram_pool.InvalidArgument, ["position 1", "-1", "129279"], lambda: call([1, -1]))
            self.refused(engram_pool.InvalidArgument, ["129280", "129279"], lambda: call([129280]))
            self.refused(engram_pool.InvalidArgument, [str(2**63)], lambda: call([2**63]))
            self.refused(engram_pool.InvalidArgument, ["dead", "2 tokens"], lambda: call([1, 2], dead=[True]))
            self.refused(engram_pool.InvalidArgument, ["look-back", "-7"], lambda: call([1], lookback=[-7]))

    def test_outputs_that_do_not_fit(self):
        invalid = engram_pool.InvalidArgument
        for out in (np.empty(263, np.uint8), np.empty(528, np.uint8), bytearray(1)):
            with self.subTest(out=type(out)):
                self.refused(invalid, ["264"], lambda: self.table.read_rows([0], out=out))
        self.refused(invalid, ["contiguous"], lambda: self.table.read_rows([0], out=np.empty(528, np.uint8)[::2]))
        self.refused(invalid, ["contiguous"], lambda: self.table.read_rows([0], out=memoryview(bytearray(528))[::2]))
        frozen = np.empty(264, np.uint8)
        frozen.flags.writeable = False
        for out in (frozen, bytes(264)):
            self.refused(invalid, ["writable"], lambda: self.table.read_rows([0], out=out))
        self.refused(invalid, ["DLPack"], lambda: self.table.read_rows([0], out=OnDevice(np.empty(264, np.uint8))))
        self.refused(invalid, ["out cannot be written"], lambda: self.table.read_rows([0], out="text"))

    def test_what_is_closed_says_so(self):
        pool = engram_pool.connect(ENDPOINT)
        table = pool.table("narrow@2")
        pool.close()
        pool.close()
        self.refused(engram_pool.InvalidArgument, ["narrow@2 is closed"], lambda: table.read_rows([0]))
        self.refused(engram_pool.InvalidArgument, ["closed"], lambda: pool.table("wide@1"))

    def test_closing_waits_for_reads_of_other_threads(self):
        pool = engram_pool.connect(ENDPOINT)
        table, tokens, failures = pool.table("wide@1"), trace("kjv", 0, 400), []
        begun = threading.Barrier(3)

        def read():
            begun.wait()
            try:
                while True:
                    table.read(tokens, timeout=60)
            except engram_pool.EngramError as error:
                failures.append(str(error))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        wait_until(lambda: table.stats()["batches"] > 4)
        pool.close()
        for thread in threads:
            thread.join(30)
        self.assertEqual(["is closed" in failure for failure in failures], [True, True], failures)

    def test_a_forked_child_is_refused_and_the_parent_reads_on(self):
        child = os.fork()
        if child == 0:
            os._exit(self.in_child())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(self.table.read_rows([3]).tobytes(), WIDE.whole_table()[3].tobytes())

    def test_a_child_that_is_forked_while_a_pool_is_open_cannot_open_another(self):
        code = ("import engram_pool, os\n"
                f"pool = engram_pool.connect({ENDPOINT!r}); table = pool.table('wide@1')\n"
                "def connect():\n"
                "    try:\n"
                f"        engram_pool.connect({ENDPOINT!r}).table('wide@1').read_rows([1])\n"
                "    except engram_pool.FailedPrecondition as error:\n"
                "        return 7 if 'forked' in str(error) and 'spawn' in str(error) else 8\n"
                "    return 0\n"
                "def in_child():\n"
                "    child = os.fork()\n"
                "    if child == 0: os._exit(connect())\n"
                "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
                "print(in_child())\n"
                "pool.close(); print(in_child())\n")
        done = python(code)
        self.assertEqual((done.stdout.split(), done.returncode), (["7", "0"], 0), done.stderr)

    def in_child(self):
        """0: both the package and the library under it refuse, and closing returns."""
        info = TableInfo()
        if library.engram_table_get_info(self.table._handle._pointer, ctypes.byref(info)) != 3:
            return 1
        if b"forked" not in library.engram_last_error():
            return 2
        for call in (lambda: self.table.read_rows([0]), lambda: self.pool.table("wide@1")):
            try:
                call()
                return 3
            except engram_pool.FailedPrecondition:
                pass
        self.pool.close()
        return 0


class ZKilledNodeTest(unittest.TestCase):
    """Last, because it kills a node of the common pool."""

    def test_rows_of_a_killed_node_are_poisoned_and_marked_until_it_is_back(self):
        tokens = trace("kjv", 5000, 200)
        wanted = WIDE.expected(WIDE.model.addresses(tokens))
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("wide@1")
            os.kill(POOL.processes()["node-1"]["pid"], signal.SIGKILL)
            self.assertTrue(wait_until(lambda: self.failure(table, tokens) is not None, 60))
            error = self.failure(table, tokens)
            self.assertIsInstance(error, engram_pool.Unavailable)
            self.assertIn("node-1", str(error))
            good = error.row_status == 0
            self.assertTrue(0 < good.sum() < good.size, "one node of two is gone")
            self.assertEqual(set(np.unique(error.row_status)), {0, 1})
            np.testing.assert_array_equal(error.rows[good], wanted[good])
            np.testing.assert_array_equal(error.rows[~good], np.broadcast_to(POISON, error.rows[~good].shape))
            POOL.up()
            POOL.ok("wait", "table", "wide@1", "--for", "ready", "--timeout", "240s")
            self.assertTrue(wait_until(lambda: self.failure(table, tokens) is None, 120), "the same handle reads again")
            np.testing.assert_array_equal(table.read(tokens, timeout=60), wanted)

    @staticmethod
    def failure(table, tokens):
        try:
            table.read(tokens, timeout=5)
        except engram_pool.EngramError as error:
            return error
        return None


if __name__ == "__main__":
    BIN_DIR = sys.argv.pop(1)
    unittest.main()
