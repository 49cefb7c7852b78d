"""engramctl against a real local pool: up, load, read, verify, a killed node, repair, delete, down.

usage: local_pool_test.py BIN_DIR
"""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool, alive, wait_until  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1, 14], "seed": 7}
MASK = (1 << 64) - 1


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def synthetic_row(seed, row, size):
    """The documented function of engram/synthetic.h, written down a second time."""
    state = mix((mix(seed) + row) & MASK)
    words = [mix((state + (i + 1) * 0x9E3779B97F4A7C15) & MASK) for i in range((size + 7) // 8)]
    return b"".join(word.to_bytes(8, "little") for word in words)[:size]


class LocalPoolTest(unittest.TestCase):
    def test_a_pool_lives_through_loading_reading_a_killed_node_and_deleting(self):
        with Pool(BIN_DIR) as pool:
            endpoint = pool.up("--nodes", "3", "--memory-per-node", "64MiB", "--port", "0")
            self.assertRegex(endpoint, r"^127\.0\.0\.1:\d+$")
            started = pool.processes()
            self.assertEqual(set(started), {"controller", "node-0", "node-1", "node-2"})
            self.assertEqual({p["state"] for p in started.values()}, {"running"})

            spec = pool.synthetic(**SPEC)
            loaded = pool.ok("load", "table", "small@1", "--synthetic", spec, "--shard-bytes", "1MiB",
                             "--replicas", "2", "--wait", "--timeout", "240s")
            self.assertIn("table/small@1 ready", loaded)
            table = pool.json("get", "tables")["tables"][0]
            self.assertEqual(table["table"]["state"], "TABLE_STATE_READY")
            self.assertEqual(table["shardsServing"], table["shardsTotal"])

            self.check_rows(pool)
            self.check_words(pool)
            self.check_fewer_copies(pool)
            self.assertIn("0 wrong", pool.ok("verify", "table", "small@1", "--sample", "2000"))
            self.check_kill_and_repair(pool)
            self.assertIn("0 wrong", pool.ok("verify", "table", "small@1", "--sample", "2000"))
            self.check_delete(pool)
            self.check_down(pool)

    def test_a_pool_serves_rows_over_ucx(self):
        for transports in ("tcp", "sysv"):
            with self.subTest(transports=transports), Pool(BIN_DIR) as pool:
                pool.env.update(ENGRAM_UCX_TLS=transports)
                pool.up("--nodes", "1", "--memory-per-node", "16MiB", "--port", "0", "--fabric", "stream,ucx")
                spec = pool.synthetic(**dict(SPEC, engram_vocab_size=300))
                pool.ok("load", "table", "small@1", "--synthetic", spec, "--wait", "--timeout", "240s")
                # The node's CPU serves these reads, so the stream comes first unless ucx is asked for.
                # A client whose connection over ucx takes more than a second does without it at first.
                for _ in range(10):
                    explained = pool.json("explain", "table", "small@1", "--tokens", "270")
                    paths = {tuple(path["fabric"] for path in row["readFrom"]) for row in explained["rows"]}
                    if paths == {("stream", "ucx")}:
                        break
                self.assertEqual(paths, {("stream", "ucx")})
                read = pool.json("read", "table", "small@1", "--rows", "0,5,4000", "--fabric", "ucx")
                for row in read["rows"]:
                    self.assertEqual(bytes.fromhex(row["hex"]), synthetic_row(7, int(row["row"]), 264))
                verified = pool.ok("verify", "table", "small@1", "--sample", "2000", "--fabric", "ucx")
                self.assertIn("0 wrong", verified)

    def check_rows(self, pool):
        read = pool.json("read", "table", "small@1", "--rows", "0,5,40000")
        self.assertEqual([row["row"] for row in read["rows"]], ["0", "5", "40000"])
        for row in read["rows"]:
            expected = synthetic_row(7, int(row["row"]), 264)
            self.assertEqual(bytes.fromhex(row["hex"]), expected, f"row {row['row']}")
        explained = pool.json("explain", "table", "small@1", "--tokens", "22898,19737,270")
        self.assertEqual(len(explained["rows"]), 48)
        # The paths are this host's: mapped memory first, a socket where that fails.
        # Both replicas of a row are there once the sessions with their nodes are open.
        paths = {tuple(dict.fromkeys(path["fabric"] for path in row["readFrom"])) for row in explained["rows"]}
        self.assertEqual(paths, {("mapped", "stream")})
        forced = pool.json("explain", "table", "small@1", "--tokens", "22898", "--fabric", "stream")
        self.assertEqual({path["fabric"] for row in forced["rows"] for path in row["readFrom"]}, {"stream"})
        by_tokens = pool.json("read", "table", "small@1", "--tokens", "22898,19737,270", "--layer", "14")
        wanted = [row["rowOfLayer"] for row in explained["rows"] if row["layer"] == 14]
        self.assertEqual([row["row"] for row in by_tokens["rows"]], wanted)
        of_the_first = pool.json("read", "table", "small@1", "--tokens", "22898,19737,270", "--layer", "14", "--position", "0")
        alone = pool.json("read", "table", "small@1", "--tokens", "22898", "--layer", "14")
        self.assertEqual(of_the_first["rows"], alone["rows"])
        npy = pool.run("read", "table", "small@1", "--rows", "0,5", "-o", "npy", text=False).stdout
        self.assertEqual((npy[:6], npy[-2 * 264:]), (b"\x93NUMPY", synthetic_row(7, 0, 264) + synthetic_row(7, 5, 264)))
        out_of_range = pool.run("read", "table", "small@1", "--rows", "99999999")
        self.assertEqual(out_of_range.returncode, 2, out_of_range.stderr)
        self.assertIn("99999999", out_of_range.stderr)

    def check_words(self, pool):
        """What is said of things that are there under another name, or not at all."""
        pool.ok("set", "alias", "small@live", "1")
        for words in (("describe", "table"), ("get", "shards"), ("get", "tables")):
            self.assertIn("small@1", pool.ok(*words, "small@live"))
        pool.ok("delete", "alias", "small@live", "--yes")
        for code, said, words in (
                (1, "reads like a version", ("set", "alias", "small@7", "1")),
                (2, "an alias is NAME@ALIAS", ("set", "alias", "small", "1")),
                (1, "is alive; drain it", ("delete", "node", "node-1", "--yes")),
                (2, "position 0 is 99999999; the vocabulary", ("explain", "table", "small@1", "--tokens", "99999999")),
                (4, "does not serve ofi", ("read", "table", "small@1", "--rows", "0", "--fabric", "ofi", "--timeout", "5s"))):
            done = pool.run(*words)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(pool.ok("plan", "table", "small@2", "--synthetic", pool.synthetic(**SPEC), "--replicas", "4"),
                         r"in part: \d+ of \d+ copies have no place: its 4 replicas need as many failure domains")
        self.assertIn("nothing ends", pool.run("revoke", "client", "default/x").stderr)
        self.assertIn("may come back", pool.ok("restore", "client", "default/x"))
        self.assertIn("was not revoked", pool.ok("restore", "client", "default/x"))
        self.assertIn("no client of tenant nosuch", pool.run("budget", "tenant", "nosuch", "0").stderr)

    def check_fewer_copies(self, pool):
        """Four copies on three nodes: three are served, and what is missing is said."""
        load = ("load", "table", "wide@1", "--synthetic", pool.synthetic(**dict(SPEC, engram_vocab_size=300)), "--replicas", "4")
        self.assertIn("copies have no place", pool.run(*load, "--dry-run").stderr)
        loaded = pool.run(*load, "--wait", "--timeout", "240s")
        self.assertEqual(loaded.returncode, 0, loaded.stderr)
        self.assertRegex(loaded.stderr, r"note: \d+ of \d+ copies have no place")
        self.assertRegex(pool.ok("get", "tables", "wide@1"), r"Degraded .*4 \(\d+ missing\)")
        self.assertTrue(wait_until(lambda: "start one in another domain" in pool.ok("describe", "table", "wide@1")))
        status = pool.run("status")
        self.assertIn("1 with fewer copies than wanted", status.stdout)
        self.assertEqual(status.returncode, 1)
        self.assertIn("0 wrong", pool.ok("verify", "table", "wide@1", "--sample", "500"))
        pool.ok("delete", "table", "wide@1", "--yes")
        pool.ok("wait", "table", "wide@1", "--for", "deleted", "--timeout", "240s")

    def check_kill_and_repair(self, pool):
        before = pool.processes()
        os.kill(before["node-1"]["pid"], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not alive(before["node-1"]["pid"])))
        status = pool.run("local", "status", "--data-dir", pool.data_dir)
        self.assertEqual(status.returncode, 1)
        self.assertIn("node-1 is dead", status.stderr)
        # Every shard has two copies, so reads go on without the node.
        self.check_rows(pool)
        pool.up()
        after = pool.processes()
        self.assertEqual({p["state"] for p in after.values()}, {"running"})
        self.assertNotEqual(after["node-1"]["pid"], before["node-1"]["pid"])
        self.assertEqual(after["node-0"]["pid"], before["node-0"]["pid"])

    def check_delete(self, pool):
        refused = pool.run("delete", "table", "small@1")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--yes", refused.stderr)
        # Readers lose the table and never see a wrong row; then its memory is free.
        reader = subprocess.Popen([pool.bin_dir / "engramctl", "verify", "table", "small@1", "--sample", "100000000000"], env=pool.env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertTrue(wait_until(lambda: "small@1" in pool.ok("get", "sessions")))
        self.assertIn("--force", pool.run("delete", "table", "small@1", "--yes").stderr)
        pool.ok("delete", "table", "small@1", "--yes", "--force")
        pool.ok("wait", "table", "small@1", "--for", "deleted", "--timeout", "240s")
        said = reader.communicate(timeout=60)[0]
        self.assertNotEqual(reader.returncode, 0, said)
        self.assertRegex(said, r"after [1-9]\d* rows")
        self.assertNotIn("is wrong", said)

        def allocated():  # as of each node's last heartbeat
            return sum(int(tier.get("allocatedBytes", 0)) for node in pool.json("get", "nodes")["nodes"] for tier in node["tiers"])
        self.assertTrue(wait_until(lambda: allocated() == 0), f"{allocated()} bytes are still allocated")
        self.assertEqual(pool.run("describe", "table", "small@1").returncode, 3)

    def check_down(self, pool):
        # One node and one copy less: what has lost its only copy is not ready.
        pool.ok("load", "table", "one@1", "--synthetic", pool.synthetic(**SPEC), "--wait", "--timeout", "240s")
        holder = pool.json("get", "replicas", "one@1")["replicas"][0]["node"]
        os.kill(pool.processes()[holder]["pid"], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: "Degraded" in pool.ok("get", "tables")))
        self.assertIn(f"{holder} (dead)", pool.ok("describe", "shard", "one@1/0"))
        self.assertEqual(pool.run("wait", "table", "one@1", "--for", "ready", "--timeout", "2s").returncode, 5)
        status = pool.run("status")
        self.assertEqual(status.returncode, 1)
        self.assertIn("0 of 1 fully served", status.stdout)
        pids = [process["pid"] for process in pool.processes().values()]
        pool.ok("local", "down", "--purge", "--data-dir", pool.data_dir)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        self.assertFalse(pool.data_dir.exists())
        left = [p.name for p in pathlib.Path("/dev/shm").glob("*") if p.name.split(":")[0] in map(str, pids)]
        self.assertEqual(left, [])
        sockets = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        self.assertNotIn(str(pool.data_dir), sockets)
        self.assertEqual(pool.run("get", "tables").returncode, 2)


if __name__ == "__main__":
    BIN_DIR = sys.argv.pop(1)
    unittest.main()
