"""The C ABI, and the examples, against a real local pool.

usage: abi_test.py BIN_DIR [GoogleTest options]
"""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import Pool  # noqa: E402

BIN_DIR, OPTIONS = None, []
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1, 14]}
TABLES = {"small@1": 7, "small@2": 10, "other@1": 8, "gone@1": 9}


class AbiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = Pool(BIN_DIR)
        cls.addClassCleanup(cls.pool.__exit__)
        cls.endpoint = cls.pool.up("--nodes", "2", "--memory-per-node", "192MiB", "--port", "0")
        for name, seed in TABLES.items():
            spec = cls.pool.synthetic(**SPEC, seed=seed)
            cls.pool.ok("load", "table", name, "--synthetic", spec, "--shard-bytes", "1MiB", "--replicas", "2",
                        "--wait", "--timeout", "240s")

    def run_program(self, *command, **environment):
        env = dict(self.pool.env, ENGRAM_ENDPOINT=self.endpoint, ENGRAM_TEST_BIN=str(BIN_DIR),
                   ENGRAM_TEST_NODES=" ".join(map(str, self.pool.nodes())), **environment)
        return subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=280)

    def test_every_call_of_the_c_abi(self):
        done = self.run_program(pathlib.Path(BIN_DIR) / "engram_abi_pool_test", "--gtest_brief=1", *OPTIONS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"PASSED.* \d\d tests")

    def test_the_c_example_reads_every_layer_of_every_token(self):
        done = self.run_program(pathlib.Path(BIN_DIR) / "prefetch_example", self.endpoint, "small@1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 12, done.stdout)
        wrong = self.run_program(pathlib.Path(BIN_DIR) / "prefetch_example", self.endpoint, "small@9")
        self.assertEqual(wrong.returncode, 1)
        self.assertRegex(wrong.stderr, "open the table: not_found: .*table small@9 is unknown")


if __name__ == "__main__":
    BIN_DIR = sys.argv.pop(1)
    OPTIONS = [word for word in sys.argv[1:] if word.startswith("--gtest")]
    sys.argv = [word for word in sys.argv if word not in OPTIONS]
    unittest.main()
