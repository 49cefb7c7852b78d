"""One device, several hosts: a pool node on it, a reader that maps it, take-over. A file stands for the device; every
process is real. Two hosts with a device that is one are two guests of ./dev vm cxl2.

usage: shared_device_test.py BIN_DIR
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path()
MIB = 1 << 20


def wait_for(path, pattern, process=None, seconds=60):
    """The match of `pattern` in a log, once it is there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.search(pattern, path.read_text(encoding="utf-8") if path.exists() else "")
        if found:
            return found
        if process is not None and process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"no {pattern!r} in {path}:\n{path.read_text(encoding='utf-8')}")


class SharedDevice(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory(prefix="engram-device-", dir="/dev/shm")
        self.path = pathlib.Path(self.work.name)
        self.device = f"file:{self.path / 'device'}"
        self.more = f"file:{self.path / 'more'}"
        for device in ("device", "more"):
            with open(self.path / device, "wb") as file:
                file.truncate(96 * MIB)
        (self.path / "spec.json").write_text('{"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1, 14], "seed": 7}')
        self.processes = []
        self.env = dict(os.environ, ENGRAM_DAX_DEVICES=self.device, ENGRAM_CONTEXT=str(self.path / "context.yaml"))
        controller, log = self.start("controller", "engram-placement", "--listen", "127.0.0.1:0",
                                     "--state-file", self.path / "placement.db", "--metrics-listen", "",
                                     "--dead-after", "2s", "--repair-after", "1s")
        self.endpoint = "127.0.0.1:" + wait_for(log, r"listens on port (\d+)", controller)[1]

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.work.cleanup()

    def start(self, name, program, *flags):
        log = self.path / f"{name}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([BIN / program, *map(str, flags)], stdout=out, stderr=out, env=self.env)
        self.processes.append(process)
        return process, log

    def node(self, node, *flags):
        return self.start(node, "engram-poolserver", "--node-id", node, "--controller", self.endpoint, "--lease", "1s",
                          "--cxl-devices", self.device, "--memory", "0", *flags)

    def serving_node(self, node, *flags):
        process, log = self.node(node, *flags)
        wait_for(log, "serves at", process)
        return process, log

    def refused(self, node, *flags):
        """What a node says that does not start."""
        process, log = self.node(node, *flags)
        self.assertEqual(process.wait(timeout=30), 2, log.read_text())
        return log.read_text()

    def ctl(self, *words, check=True, env=None):
        done = subprocess.run([BIN / "engramctl", *map(str, words), "--endpoint", self.endpoint], env=env or self.env,
                              capture_output=True, text=True, timeout=90)
        if check:
            self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done

    def verify(self, seconds=40):
        """Every sampled row over the device, as soon as somebody serves it."""
        deadline = time.monotonic() + seconds
        while True:
            done = self.ctl("verify", "table", "rows@1", "--sample", 2000, "--fabric", "mapped", check=False)
            if done.returncode == 0 or time.monotonic() > deadline:
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return
            time.sleep(0.3)

    def test_a_device_that_disappears_ends_its_node_with_the_reason(self):
        process, log = self.serving_node("node-a")
        with open(self.path / "device", "r+b") as file:
            file.truncate(0)
        self.assertEqual(process.wait(timeout=60), 1, log.read_text())
        self.assertIn(f"--cxl-devices {self.path / 'device'} is gone or failed", log.read_text())

    def test_one_owner_after_the_other_and_readers_that_map_the_device(self):
        first, log = self.serving_node("node-a")
        wait_for(log, "device [0-9a-f]{32}, blank")
        self.ctl("load", "table", "rows@1", "--synthetic", self.path / "spec.json", "--wait")
        self.verify()

        elsewhere = dict(self.env, ENGRAM_DAX_DEVICES="")
        not_attached = self.ctl("verify", "table", "rows@1", "--sample", 10, "--fabric", "mapped", check=False, env=elsewhere)
        self.assertNotEqual(not_attached.returncode, 0)
        self.assertIn("is not attached to this host", not_attached.stdout + not_attached.stderr)
        self.ctl("verify", "table", "rows@1", "--sample", 1000, env=elsewhere)  # over stream

        self.assertIn("in use by another process", self.refused("node-b"))
        first.send_signal(signal.SIGKILL)
        first.wait()

        said = self.refused("node-b")
        self.assertIn('belongs to node "node-a", incarnation 1', said)
        self.assertIn("--take-over-device node-a@1", said)
        self.assertIn("its owner is", self.refused("node-b", "--take-over-device", "node-a@9"))

        second, log = self.serving_node("node-b", "--take-over-device", "node-a@1")
        wait_for(log, "taken over from node-a@1; waits")
        self.verify()

        second.send_signal(signal.SIGKILL)
        second.wait()
        self.assertIn('belongs to node "node-b"', self.refused("node-a"))
        third, log = self.serving_node("node-b")
        wait_for(log, r"left by node-b@\d+; waits")
        self.verify()
        third.send_signal(signal.SIGTERM)
        self.assertEqual(third.wait(timeout=20), 0)

    def test_two_devices_are_one_tier_for_sealed_tables(self):
        self.device = self.env["ENGRAM_DAX_DEVICES"] = f"{self.device},{self.more}"
        self.serving_node("node-a")
        done = self.ctl("load", "table", "bare@1", "--synthetic", self.path / "spec.json", "--seal", "none", "--wait", "--timeout", "20s",
                        check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is not sealed", done.stdout + done.stderr)
        for table in ("rows@1", "rows@2"):
            self.ctl("load", "table", table, "--synthetic", self.path / "spec.json", "--wait")
            self.ctl("verify", "table", table, "--sample", 1000, "--fabric", "mapped")
        for device in ("device", "more"):
            self.assertGreater((self.path / device).stat().st_blocks, 1000, f"no rows lie on {device}")

    def test_what_cannot_work_is_refused_with_the_reason(self):
        self.assertIn("add mapped", self.start_and_fail("--fabrics", "stream"))
        self.assertIn("is more than", self.refused("node-a", "--cxl-memory", "1GiB"))
        with open(self.path / "device", "r+b") as file:
            file.write(b"somebody else's data")
        self.assertIn("--take-over-device unreadable", self.refused("node-a"))

    def start_and_fail(self, *flags):
        process, log = self.node("node-a", *flags)
        self.assertIn(process.wait(timeout=30), (1, 2), log.read_text())  # 2: the settings say so already
        return log.read_text()


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
