"""Steps of the Python package against a real local pool: both doors, every layout, destinations, versions, the example.

usage: steps_test.py BIN_DIR [unittest options]
"""
import asyncio
import gc
import hashlib
import math
import pathlib
import subprocess
import sys
import threading
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import engram_pool  # noqa: E402
import patient  # noqa: E402, F401
from pool import Pool, stopped, wait_until  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1, 14]}
TOKENS = [22898, 19737, 270, 9327, 270]
POISON = np.concatenate([np.full(256, 0x7F, np.uint8), np.full(8, 0xFF, np.uint8)])


class Legacy:
    """Memory of another library, which exports the first version of DLPack, as most do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Versioned(Legacy):
    """The same, which exports the second version, as newer ones do."""

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def setUpModule():
    global POOL, ENDPOINT
    POOL = Pool(BIN_DIR)
    unittest.addModuleCleanup(POOL.__exit__)
    ENDPOINT = POOL.up("--nodes", "2", "--memory-per-node", "128MiB", "--port", "0")
    for name, seed in (("small@1", 7), ("small@2", 10)):
        POOL.ok("load", "table", name, "--synthetic", POOL.synthetic(**SPEC, seed=seed), "--shard-bytes", "1MiB", "--replicas", "2",
                "--wait", "--timeout", "240s")


class StepsTest(unittest.TestCase):
    fabric = None

    def setUp(self):
        pool = engram_pool.connect(ENDPOINT, fabric=self.fabric)
        self.addCleanup(pool.close)
        self.pool, self.table = pool, pool.table("small@1")
        self.want = self.table.read(TOKENS, timeout=60)

    def refused(self, error, words, call):
        with self.assertRaisesRegex(error, words):
            call()

    def test_the_row_id_door_takes_every_width_and_stride(self):
        rows = self.table.addresses(TOKENS)
        rows[1, 0, 3] = -1
        want = self.want.copy()
        want[1, 0, 3] = 0
        strided = np.zeros((10, 2, 48), np.int32)[::2, :, ::2]
        strided[...] = rows
        for given in (rows, rows.astype(np.int32), strided, np.asfortranarray(rows), rows[::-1][::-1], rows.tolist(), Legacy(rows)):
            with self.table.prefetch_rows(given, timeout=60) as step:
                np.testing.assert_array_equal(step.wait(), want)
                status = step.row_status(1)
                self.assertEqual((status.size, status[24 + 3], np.count_nonzero(status)), (5 * 24, 4, 1))
                self.assertEqual(np.count_nonzero(step.row_status(14)), 0)

    def test_every_layout_holds_the_same_rows(self):
        rows = self.table.addresses(TOKENS)
        for order in ("token", "column"):
            for split in (False, True):
                for columns in (None, range(6, 12), slice(1, None, 4), [0, 5, 10]):
                    layout = self.table.layout(8, order=order, split=split, columns=columns)
                    want = self.want[:, :, list(layout.columns)].transpose(1, 0, 2, 3)
                    for start in (lambda: self.table.prefetch(TOKENS, layout=layout, timeout=60),
                                  lambda: self.table.prefetch_rows(rows, layout=layout, timeout=60)):
                        with start() as step:
                            got = step.wait()
                            got = np.concatenate(got, axis=-1) if split else got
                            np.testing.assert_array_equal(got, want, f"{order} {split} {columns}")

    def test_rows_land_in_memory_of_every_kind(self):
        layout = self.table.layout(5)
        want = self.want.transpose(1, 0, 2, 3)
        array = np.zeros(layout.bytes + 64, np.uint8)
        for out in (array, bytearray(layout.bytes), memoryview(bytearray(layout.bytes)), Legacy(array), Versioned(array)):
            with self.table.register(out) as destination, self.table.prefetch(TOKENS, layout=layout, destination=destination,
                                                                             timeout=60) as step:
                np.testing.assert_array_equal(step.wait(), want)
                np.testing.assert_array_equal(layout.views(out, 5)[0], want)
        self.refused(engram_pool.InvalidArgument, "out has 10 bytes; the layout needs",
                     lambda: self.table.prefetch(TOKENS, layout=layout, out=bytearray(10)))
        array.flags.writeable = False
        self.refused(engram_pool.InvalidArgument, "out must be C-contiguous and writable|out cannot be taken through DLPack",
                     lambda: self.table.prefetch(TOKENS, layout=layout, out=Versioned(array)))

    def test_torch_tensors_are_memory_too(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        layout = self.table.layout(5)
        out = torch.zeros(layout.bytes, dtype=torch.uint8)
        want = torch.from_numpy(self.want.transpose(1, 0, 2, 3).copy())
        with self.table.prefetch(torch.tensor(TOKENS), layout=layout, out=out, timeout=60) as step:
            step.wait()
        self.assertTrue(torch.equal(out.view(2, 5, 24, 264), want))
        rows = torch.from_numpy(self.table.addresses(TOKENS))
        for ids in (rows, rows.to(torch.int32), rows.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            with self.table.register(out.zero_()) as destination, self.table.prefetch_rows(
                    ids, layout=layout, destination=destination, timeout=60) as step:
                step.wait()
            self.assertTrue(torch.equal(out.view(2, 5, 24, 264), want), ids.dtype)
        self.refused(engram_pool.InvalidArgument, "out cannot be taken through DLPack",
                     lambda: self.table.prefetch(TOKENS, out=torch.zeros(self.want.size, requires_grad=True)))

    def test_a_slot_is_used_by_one_step_after_the_other(self):
        layout = self.table.layout(5)
        destination = self.table.register(bytearray(2 * layout.bytes))
        halves = destination.memory[:layout.bytes], destination.memory[layout.bytes:]
        slots = [self.table.slot(layout, out=half, destination=destination) for half in halves]
        rows = self.table.addresses(TOKENS)
        for step in (self.table.prefetch(TOKENS, slot=slots[0], timeout=60), self.table.prefetch_rows(rows, slot=slots[1], timeout=60)):
            np.testing.assert_array_equal(step.wait(), self.want.transpose(1, 0, 2, 3))
            self.assertTrue(np.shares_memory(step.rows, destination.memory))
        self.refused(engram_pool.ResourceExhausted, "slot 2 is in use: release its last step",
                     lambda: self.table.prefetch(TOKENS, slot=slots[1]))
        step.close()
        self.table.prefetch(TOKENS, slot=slots[1]).close()
        self.refused(engram_pool.InvalidArgument, "they are the slot's",
                     lambda: self.table.prefetch(TOKENS, slot=slots[0], layout=layout))
        self.refused(engram_pool.InvalidArgument, "the slot is of small@1, the table is small@2 now",
                     lambda: self.pool.table("small@2").prefetch(TOKENS, slot=slots[0]))

    def test_without_a_poller_the_thread_that_waits_serves_its_step(self):
        table = self.pool.table("small@1", poller=False)
        with table.prefetch(TOKENS, timeout=60) as step:
            np.testing.assert_array_equal(step.wait(), self.want)

        async def one():
            return await table.prefetch(TOKENS, timeout=60)

        np.testing.assert_array_equal(asyncio.run(one()), self.want)

    def test_a_destination_stays_while_steps_use_it(self):
        layout = self.table.layout(5)
        destination = self.table.register(bytearray(layout.bytes))
        step = self.table.prefetch(TOKENS, layout=layout, destination=destination, timeout=60)
        self.refused(engram_pool.FailedPrecondition, "is in use by 1 steps or slots", destination.close)
        step.wait()
        step.close()
        destination.close()
        destination.close()
        self.refused(engram_pool.InvalidArgument, "is not registered",
                     lambda: self.table.prefetch(TOKENS, layout=layout, destination=destination))
        whole = np.zeros(4096, np.uint8)
        self.refused(engram_pool.InvalidArgument, "multiple of 16 bytes", lambda: self.table.register(whole[1:]))
        read_only = np.zeros(64, np.uint8)
        read_only.flags.writeable = False
        self.refused(engram_pool.InvalidArgument, "writable", lambda: self.table.register(read_only))
        kept = self.table.register(whole)
        self.refused(engram_pool.InvalidArgument, "overlaps destination", lambda: self.table.register(whole))
        self.pool.close()
        kept.close()

    def test_what_is_wrong_with_a_step_is_said(self):
        table, layout = self.table, self.table.layout(2)
        for words, call in (
                ("layout->columns is 5; from column 20", lambda: table.layout(8, columns=range(20, 25))),
                ("rise in equal steps", lambda: table.layout(8, columns=[1, 2, 5])),
                ("order is 'diagonal'", lambda: table.layout(8, order="diagonal")),
                ("max_tokens is 0", lambda: table.layout(0)),
                ("has places for 2 tokens", lambda: table.prefetch(TOKENS, layout=layout)),
                (".columns is 23; with a layout", lambda: table.prefetch_rows(np.zeros((1, 2, 23), np.int64), layout=layout)),
                ("rows has shape", lambda: table.prefetch_rows(np.zeros((1, 3, 24), np.int64))),
                ("in 3 dimensions", lambda: table.prefetch_rows([1, 2])),
                ("asks for row 99999999 .run 0, column 1.; layer index 1 of table small@1",
                 lambda: table.prefetch_rows([[[0, 1], [0, 99999999]]])),
                ("no layer 3; its layers are .1, 14.", lambda: table.prefetch([1]).wait(layer=3))):
            self.refused(engram_pool.InvalidArgument, words, call)

    def test_an_id_beyond_its_layer_may_fail_alone(self):
        rows = self.table.addresses(TOKENS)
        rows[2, 1, 5] = self.table.layers[1].rows
        with self.table.prefetch_rows(rows, fail_bad_ids=True, timeout=60) as step:
            np.testing.assert_array_equal(step.wait(layer=1)[:, 0], self.want[:, 0])
            self.refused(engram_pool.InvalidArgument, f"there is no row {rows[2, 1, 5]}: layer index 1 of table small@1",
                         lambda: step.wait(layer=14))
            want = self.want.copy()
            want[2, 1, 5] = POISON
            np.testing.assert_array_equal(step.rows, want)
            self.assertEqual(np.flatnonzero(step.row_status(14)).tolist(), [2 * 24 + 5])

    def test_a_step_of_a_layout_can_be_awaited(self):
        layout = self.table.layout(5, order="column", split=True)

        async def one():
            return await self.table.prefetch(TOKENS, layout=layout, timeout=60)

        values, scales = asyncio.run(one())
        np.testing.assert_array_equal(np.concatenate([values, scales], -1), self.want.transpose(1, 0, 2, 3))

    def test_a_step_outlives_the_name_of_its_table(self):
        step = self.pool.table("small@1").prefetch(TOKENS, timeout=60)
        gc.collect()
        np.testing.assert_array_equal(step.wait(), self.want)
        step.close()


class StepsOverStreamTest(StepsTest):
    fabric = "stream"

    def test_rows_out_of_the_cache_land_by_their_layout_too(self):
        table = self.pool.table("small@1", cache_bytes=16 << 20)
        layout = table.layout(8, order="column", split=True, columns=range(8, 16))
        want = self.want[:, :, 8:16].transpose(1, 0, 2, 3)
        for _ in range(3):
            with table.prefetch(TOKENS, layout=layout, timeout=60) as step:
                np.testing.assert_array_equal(np.concatenate(step.wait(), axis=-1), want)
        self.assertGreater(table.stats()["cache_hits"], 0)


    def test_another_process_of_the_host_finds_what_was_read(self):
        table = self.pool.table("small@1", cache_bytes=16 << 20, host_cache=True)
        table.prefetch(TOKENS, timeout=60).wait()
        code = ("import engram_pool, hashlib\n"
                f"pool = engram_pool.connect({ENDPOINT!r}, fabric='stream')\n"
                "table = pool.table('small@1', cache_bytes=16 << 20, host_cache=True)\n"
                f"rows = table.prefetch({TOKENS}, timeout=60).wait()\n"
                "stats = table.stats()\n"
                "print(hashlib.sha256(rows).hexdigest(), stats['rows_stream'], stats['cache_hits'] > 0)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.split(), [hashlib.sha256(self.want).hexdigest(), "0", "True"], done.stderr)


class StandingStillTest(unittest.TestCase):
    """Steps that stay outstanding, because the nodes are stopped meanwhile."""

    def setUp(self):
        pool = engram_pool.connect(ENDPOINT, fabric="stream")
        self.addCleanup(pool.close)
        self.table = pool.table("small@1")
        self.want = self.table.read(TOKENS, timeout=60)
        self.nodes = POOL.nodes()

    def refused(self, error, words, call):
        with self.assertRaisesRegex(error, words):
            call()

    def test_other_threads_run_while_a_step_is_waited_for(self):
        ticks, stop = [], threading.Event()
        thread = threading.Thread(target=lambda: [ticks.append(1) for _ in iter(lambda: stop.wait(0.001), True)])
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)
        with stopped(self.nodes):
            step = self.table.prefetch(TOKENS, timeout=60)
            before = len(ticks)
            self.refused(engram_pool.DeadlineExceeded, "is not there yet; its reads go on", lambda: step.wait(timeout=1))
            self.assertGreater(len(ticks), before + 5)
        np.testing.assert_array_equal(step.wait(), self.want)

    def test_await_raises_what_went_wrong_and_other_tasks_run_meanwhile(self):
        async def tick(ticks):
            while True:
                ticks.append(1)
                await asyncio.sleep(0.001)

        async def one(step, ticks):
            other = asyncio.create_task(tick(ticks))
            try:
                return await step
            finally:
                other.cancel()

        ticks = []
        with stopped(self.nodes):
            step = self.table.prefetch(TOKENS, timeout=0.5, needed_in={1: 0.001})
            self.refused(engram_pool.DeadlineExceeded, "was not read in time", lambda: asyncio.run(one(step, ticks)))
        self.assertGreater(len(ticks), 5)
        np.testing.assert_array_equal(step.rows, np.broadcast_to(POISON, step.rows.shape))
        self.assertEqual((step.state(1), step.late(1), step.late(14)), ("failed", True, False))

    def test_a_layer_that_is_cancelled_while_it_lands_is_poison_for_good(self):
        with stopped(self.nodes):
            step = self.table.prefetch(TOKENS, timeout=60)
            step.cancel(14)
            for _ in range(2):
                self.refused(engram_pool.FailedPrecondition, "was cancelled", lambda: step.wait(layer=14))
            self.assertEqual((step.state(1), step.state(14)), ("pending", "cancelled"))
            self.assertEqual(set(step.row_status(14)), {2})
            np.testing.assert_array_equal(step.rows[:, 1], np.broadcast_to(POISON, (5, 24, 264)))
        np.testing.assert_array_equal(step.wait(layer=1)[:, 0], self.want[:, 0])
        np.testing.assert_array_equal(step.rows[:, 1], np.broadcast_to(POISON, (5, 24, 264)))

    def test_late_rows_come_from_the_other_replica(self):
        heard = []
        engram_pool.set_log(lambda _, message: heard.append(message))
        self.addCleanup(engram_pool.set_log, None)
        with engram_pool.connect(ENDPOINT, fabric="stream") as pool:
            table = pool.table("small@1")
            self.assertTrue(wait_until(lambda: sum("read session open" in message for message in heard) == 2), heard)

            def hedged():  # a session is open a little before its routes are there
                table.read(TOKENS, timeout=60)
                with stopped(self.nodes[:1]), table.prefetch(TOKENS, timeout=100, needed_in={1: 0.001, 14: 0.002}) as step:
                    np.testing.assert_array_equal(step.wait(timeout=60), self.want)
                return table.stats()["hedges_won"] > 0

            self.assertTrue(wait_until(hedged))
            self.assertGreaterEqual(table.stats()["rows_late"], table.stats()["hedges_won"])

    def test_steps_that_nobody_keeps_are_given_back(self):
        with stopped(self.nodes):
            for _ in range(70):
                self.table.prefetch(TOKENS, timeout=60)
        np.testing.assert_array_equal(self.table.prefetch(TOKENS, timeout=60).wait(), self.want)

    def test_an_interpreter_that_exits_in_the_middle_of_a_step_just_ends(self):
        code = ("import contextlib, engram_pool, sys, threading\n"
                f"table = engram_pool.connect({ENDPOINT!r}, fabric='stream').table('small@1'); table.read([1])\n"
                "print('open', flush=True); sys.stdin.readline()\n"
                "step = table.prefetch([7] * 50, kind='prefill', timeout=100)\n"
                "def wait():\n"
                "    with contextlib.suppress(engram_pool.EngramError): step.wait()\n"  # the exit ends the step
                "threading.Thread(target=wait, daemon=True).start()\n"
                "print(step.state(1))\n")
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as child:
            self.assertEqual(child.stdout.readline(), "open\n")
            with stopped(self.nodes):
                out, err = child.communicate("go on\n", timeout=60)
        self.assertEqual((child.returncode, out, err), (0, "pending\n", ""))


class SpinTest(unittest.TestCase):
    def test_waits_may_spin_for_ever_or_hardly_at_all(self):
        for spin in (math.inf, 1e-9):
            with engram_pool.connect(ENDPOINT, fabric="stream", spin=spin) as pool:
                table = pool.table("small@1", poller=False)
                np.testing.assert_array_equal(table.prefetch(TOKENS, timeout=60).wait(), table.read(TOKENS, timeout=60))
        with self.assertRaisesRegex(engram_pool.InvalidArgument, "spin is -1; it must be a number of seconds above 0"):
            engram_pool.connect(ENDPOINT, spin=-1)


class LogTest(unittest.TestCase):
    def test_the_log_says_which_nodes_are_read_until_nobody_listens(self):
        heard = []
        engram_pool.set_log(lambda level, message: heard.append((level, message)))
        with engram_pool.connect(ENDPOINT) as pool:
            pool.table("small@1")
        engram_pool.set_log(None)
        self.assertTrue(any(level == 2 and "read session open" in message for level, message in heard), heard)
        before = len(heard)
        with engram_pool.connect(ENDPOINT) as pool:
            pool.table("small@1")
        self.assertEqual(len(heard), before)


class VersionsTest(unittest.TestCase):
    def test_an_alias_is_adopted_between_steps_and_rolled_back(self):
        POOL.ok("set", "alias", "small@live", "1")
        with engram_pool.connect(ENDPOINT) as pool:
            first, second = pool.table("small@1").read(TOKENS, timeout=60), pool.table("small@2").read(TOKENS, timeout=60)
            live = pool.table("small@live")
            self.assertEqual((live.name, live.pending, live.adopt()), ("small@1", None, False))

            async def both():
                waiting = [asyncio.create_task(live.moved()) for _ in range(2)]
                await asyncio.sleep(0)
                POOL.ok("set", "alias", "small@live", "small@2")
                return await asyncio.wait_for(asyncio.gather(*waiting), 60)

            self.assertEqual(asyncio.run(both()), ["small@2", "small@2"])
            self.assertEqual(live.pending, "small@2")
            np.testing.assert_array_equal(live.read(TOKENS, timeout=60), first)
            step = live.prefetch(TOKENS, timeout=60)
            self.assertTrue(live.adopt())
            self.assertEqual((live.name, live.pending), ("small@2", None))
            with live.prefetch(TOKENS, timeout=60) as after:
                np.testing.assert_array_equal(after.wait(), second)
            np.testing.assert_array_equal(step.wait(), first)
            step.close()
            refused = POOL.run("delete", "table", "small@2", "--yes")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("is what small@live names", refused.stderr)
            POOL.ok("set", "alias", "small@live", "1")
            self.assertTrue(wait_until(lambda: live.pending == "small@1"))
            with self.assertRaisesRegex(engram_pool.FailedPrecondition, "spec digest"):
                live.adopt(spec_digest="abc")
            self.assertTrue(live.adopt())
            np.testing.assert_array_equal(live.read(TOKENS, timeout=60), first)
        self.assertIn("live", POOL.ok("get", "tables", "-o", "wide"))
        POOL.ok("delete", "alias", "small@live", "--yes")


class ExampleTest(unittest.TestCase):
    def test_the_example_runs(self):
        example = HERE.parent.parent / "client" / "examples" / "prefetch.py"
        done = subprocess.run([sys.executable, example, ENDPOINT, "small@1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("layer "), 8)
        self.assertIn("'layers_ready': 8", done.stdout)


if __name__ == "__main__":
    BIN_DIR = sys.argv.pop(1)
    unittest.main()
