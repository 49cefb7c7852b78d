"""What a bad host, bad arguments and bad peers do to the real programs: one clear error, or nothing at all.

usage: faults_test.py BIN_DIR

Unit tests hold the same faults closer to the code; here they meet whole processes. Cases that need root (mount namespaces, another
user) are skipped, visibly, without it.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pool import PATIENCE, Pool, alive, wait_until  # noqa: E402

BIN_DIR = None
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1, 14], "seed": 7}  # 27 MiB
NOBODY = 65534
MIB_PAGES = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
GIB_PAGES = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-1048576kB")
needs_root = unittest.skipIf(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"),
                             "mount namespaces and another user need root and util-linux")


@contextlib.contextmanager
def taken_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


class Daemons:
    """A controller and nodes started one by one, where `engramctl local` would start them too well."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="engram-faults-")
        self.path = pathlib.Path(self.dir.name)
        self.path.chmod(0o755)
        self.processes = []
        self.endpoint = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.dir.cleanup()

    def start(self, name, *command):
        """Starts a process whose output goes to NAME.log; returns it."""
        with open(self.path / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def said(self, name, pattern, seconds=60):
        """The first match of `pattern` in a log."""
        log = self.path / f"{name}.log"
        found = []
        ready = wait_until(lambda: found.extend(re.findall(pattern, log.read_text(encoding="utf-8"))[:1]) or found, seconds)
        assert ready, f"{name} did not say {pattern!r}:\n{log.read_text(encoding='utf-8')}"
        return found[0]

    def controller(self, state_file, *before):
        process = self.start("controller", *before, BIN_DIR / "engram-placement", "--listen", "127.0.0.1:0",
                             "--metrics-listen", "", "--state-file", state_file)
        self.endpoint = "127.0.0.1:" + self.said("controller", r"listens on port (\d+)")
        return process

    def node(self, *flags, before=(), program=None):
        process = self.start("node", *before, program or BIN_DIR / "engram-poolserver", "--node-id", "n0", "--controller",
                             self.endpoint, *(flags if "--memory" in flags else ("--memory", "64MiB", *flags)))
        self.said("node", "as incarnation")
        return process

    def ctl(self, *words, timeout=300):
        command = [BIN_DIR / "engramctl", *map(str, words), "--endpoint", self.endpoint]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **PATIENCE))

    def ok(self, *words):
        done = self.ctl(*words)
        assert done.returncode == 0, f"engramctl {words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def spec(self, **changed):
        path = self.path / "spec.json"
        path.write_text(json.dumps({**SPEC, **changed}), encoding="utf-8")
        return path


class StartTest(unittest.TestCase):
    """Programs that cannot start end, soon, with an error that says why and what to do."""

    def refused(self, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        self.assertIn(done.returncode, (1, 2), done.stderr)
        return done.stderr

    def test_a_port_in_use_is_named_with_the_next_step(self):
        with taken_port() as port, tempfile.TemporaryDirectory() as folder:
            taken, state = f"127.0.0.1:{port}", pathlib.Path(folder) / "placement.db"
            placement = [BIN_DIR / "engram-placement", "--state-file", state]
            node = [BIN_DIR / "engram-poolserver", "--memory", "16MiB", "--controller", "127.0.0.1:1"]
            for command in ([*placement, "--metrics-listen", "", "--listen", taken],
                            [*placement, "--listen", "127.0.0.1:0", "--metrics-listen", taken],
                            *([*node, flag, taken] for flag in ("--listen", "--stream-listen", "--metrics-listen", "--health-listen"))):
                with self.subTest(command=command[-2:], program=command[0].name):
                    said = self.refused(*command)
                    self.assertIn(taken, said)
                    self.assertRegex(said, "in use")
                    self.assertRegex(said, "ss -ltnp|choose another port")

    @unittest.skipIf(pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").exists()
                     and int(pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text()) >= 512,
                     "this machine has reserved huge pages")
    def test_required_huge_pages_that_are_not_there_are_counted(self):
        said = self.refused(BIN_DIR / "engram-poolserver", "--memory", "1GiB", "--huge-pages", "required")
        self.assertRegex(said, r"needs 512 pages of 2MiB, and \d+ are free")
        self.assertIn("vm.nr_hugepages=512", said)

    def test_check_config_refuses_what_could_not_start(self):
        for program, flags, said in (
                ("engram-poolserver", ("--fabrics", "foo"), "\"foo\" is not a fabric"),
                ("engram-poolserver", ("--controller", "foo"), "HOST:PORT"),
                ("engram-poolserver", ("--node-id", "a b"), "letters, digits"),
                ("engram-poolserver", ("--memory", "60TiB"), "more than this machine's"),
                ("engram-placement", ("--state-file", "/nonexistent/x"), "no file can be made in /nonexistent")):
            with self.subTest(flags=flags):
                self.assertIn(said, self.refused(BIN_DIR / program, "--check-config", *flags))

    def test_required_pages_of_1_gib_that_are_not_there_are_counted(self):
        pages = 1 + int((GIB_PAGES / "free_hugepages").read_text()) if GIB_PAGES.exists() else 1
        if pages << 30 > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"):
            self.skipTest("all of this machine's memory is reserved in pages of 1 GiB")
        said = self.refused(BIN_DIR / "engram-poolserver", "--memory", f"{pages}GiB", "--huge-pages", "1GiB")
        self.assertRegex(said, rf"--huge-pages 1GiB .* needs {pages} pages of 1GiB, and {pages - 1} are free")
        self.assertIn(f"echo {pages} > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", said)
        self.assertIn("--huge-pages auto", said)

    def test_an_unknown_page_size_is_answered_with_the_known_ones(self):
        self.assertRegex(self.refused(BIN_DIR / "engram-poolserver", "--huge-pages", "2GiB"), '"2GiB".*auto, 1GiB, 2MiB, off')

    def test_more_memory_than_the_machine_has_is_refused(self):
        said = self.refused(BIN_DIR / "engram-poolserver", "--memory", "64TiB", "--huge-pages", "off")
        self.assertIn("64TiB", said)


class RequestTest(unittest.TestCase):
    """Requests that cannot be served are refused, and change nothing."""

    def refused(self, pool, code, pattern, *words):
        done = pool.run(*words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, pattern)

    def test_names_sizes_rows_and_tokens_that_are_wrong(self):
        with Pool(BIN_DIR) as pool:
            pool.up("--nodes", "1", "--memory-per-node", "64MiB", "--port", "0")
            pool.ok("load", "table", "t@1", "--synthetic", pool.synthetic(**SPEC), "--wait")
            self.refused(pool, 1, r"t@1 exists .*another version", "load", "table", "t@1", "--synthetic", pool.synthetic(**SPEC))
            big = pool.synthetic(**dict(SPEC, engram_vocab_size=200000))
            self.refused(pool, 1, r"does not fit: it needs 2\.\dGiB .*node-0 \d+(\.\d)?MiB", "load", "table", "big@1", "--synthetic", big)
            for name in ("t@2", "nope@1"):
                self.refused(pool, 3, f"{name} is unknown.*get tables", "read", "table", name, "--rows", "0")
            self.refused(pool, 2, r"position 0 is -1; the vocabulary is 0 to 129279", "read", "table", "t@1", "--tokens=-1")
            self.refused(pool, 2, f"--tokens.*{2**63}", "read", "table", "t@1", "--tokens", str(2**63))
            self.refused(pool, 2, f"position 0 is {2**63 - 1}; the vocabulary is 0 to 129279", "read", "table", "t@1", "--tokens", str(2**63 - 1))
            self.refused(pool, 2, rf"row {2**63 - 1} .*0 to \d+", "read", "table", "t@1", "--rows", str(2**63 - 1))
            self.assertEqual(len(pool.json("get", "tables")["tables"]), 1)
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000"))


class CheckpointTest(unittest.TestCase):
    """Directories that are no checkpoint of this table: one clear error, and no table."""

    @staticmethod
    def edit(path, **changed):
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changed}), encoding="utf-8")

    @staticmethod
    def edit_header(path, change):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])

    def damages(self, good):
        """(what, how it is done to a copy, what the error must say)"""
        shard = sorted(good.glob("*.safetensors"))[1].name
        tensors = [name for name in self.header(good / shard) if name != "__metadata__"]
        weight = next(name for name in tensors if name.endswith("weight"))
        scale = next(name for name in tensors if name.endswith("scale"))

        def overlap(header):
            header[scale]["data_offsets"] = [0, header[scale]["data_offsets"][1] - header[scale]["data_offsets"][0]]

        def rename(header):
            header["nobody.knows"] = header.pop(weight)

        def widen(header):
            header[weight]["shape"].reverse()

        def retype(header):
            header[weight]["dtype"] = "BF16"

        def huge(header):
            header[weight]["data_offsets"][1] = 2**53 + 1
        return [
            ("truncated", lambda d: os.truncate(d / shard, (d / shard).stat().st_size - 1), f"{shard}.*truncated"),
            ("overlapping", lambda d: self.edit_header(d / shard, overlap), f"{shard}.*(overlap|hole|no tensor)"),
            ("misnamed", lambda d: self.edit_header(d / shard, rename), f"{re.escape(weight)}"),
            ("wrongly shaped", lambda d: self.edit_header(d / shard, widen), f"{re.escape(weight)} has shape .* leads to"),
            ("wrong dtype", lambda d: self.edit_header(d / shard, retype), f'{re.escape(weight)}.*"?BF16"?'),
            ("above 2^53", lambda d: self.edit_header(d / shard, huge), r"above 2\^53"),
            ("missing file", lambda d: (d / shard).unlink(), f"{shard} does not exist"),
            ("vocabulary", lambda d: self.edit(d / "config.json", engram_compressed_vocab_size=7), "engram_compressed_vocab_size is 7"),
            ("rows", lambda d: self.edit(d / "config.json", engram_num_embeddings=[7, 7]), "7 rows for layer"),
            ("tokenizer", lambda d: (d / "tokenizer.json").write_text("{]"), "tokenizer.json does not parse"),
        ]

    @staticmethod
    def header(path):
        with open(path, "rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))

    def test_each_damage_is_named_and_leaves_no_table(self):
        bench = BIN_DIR / "engram-bench"
        if not bench.exists():
            self.skipTest("engram-bench, which writes checkpoints, is not built under the sanitizers")
        with Pool(BIN_DIR) as pool:
            pool.up("--nodes", "1", "--memory-per-node", "64MiB", "--port", "0")
            good = pool.path / "good"
            subprocess.run([bench, "checkpoint", "--out", good, "--engram-vocab-size", "2000"], check=True, capture_output=True, timeout=120)
            for what, damage, said in self.damages(good):
                with self.subTest(what):
                    bad = pool.path / what.replace(" ", "-")
                    shutil.copytree(good, bad)
                    damage(bad)
                    refused = pool.run("load", "table", "t@1", "--checkpoint", bad, "--wait", "--timeout", "240s")
                    self.assertNotEqual(refused.returncode, 0)
                    self.assertRegex(refused.stderr, said)
                    self.assertIn(str(bad), refused.stderr)
                    self.assertEqual(pool.json("get", "tables").get("tables", []), [])
            pool.ok("load", "table", "t@1", "--checkpoint", good, "--wait", "--timeout", "240s")
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000"))


@contextlib.contextmanager
def huge_pages(pages, count):
    """Reserves `count` more huge pages of the size `pages`; yields whether the kernel had them to give."""
    setting = pages / "nr_hugepages"
    try:
        before = int(setting.read_text(encoding="ascii"))
        setting.write_text(str(before + count), encoding="ascii")
    except OSError:
        yield False
        return
    try:
        yield int((pages / "free_hugepages").read_text(encoding="ascii")) >= count
    finally:
        setting.write_text(str(before), encoding="ascii")


class HostTest(unittest.TestCase):
    def test_pages_of_1_gib_are_granted_where_the_kernel_has_one(self):
        with huge_pages(GIB_PAGES, 1) as reserved:
            if not reserved:
                self.skipTest("no page of 1 GiB can be reserved on this machine")
            with Daemons() as pool:
                pool.controller(pool.path / "placement.db")
                pool.node("--memory", "1GiB", "--huge-pages", "1GiB")
                self.assertIn("pages of 1GiB", pool.said("node", "serves at .*"))
                pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--wait")
                self.assertIn("on 1 GiB pages", pool.said("node", "first slab .*"))
                self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000", "--fabric", "mapped"))
                # The page holds this table: another one is refused with the figures.
                refused = pool.ctl("load", "table", "u@1", "--synthetic", pool.spec(engram_vocab_size=4000), "--wait")
                self.assertNotEqual(refused.returncode, 0)
                self.assertRegex(refused.stderr, "u@1.*does not fit")
                pool.ok("delete", "table", "t@1", "--yes")
                pool.ok("wait", "table", "t@1", "--for", "deleted", "--timeout", "240s")

    def test_pages_of_2_mib_are_granted_and_read_by_other_processes(self):
        with huge_pages(MIB_PAGES, 64) as reserved:
            if not reserved:
                self.skipTest("no 64 pages of 2 MiB can be reserved on this machine")
            with Daemons() as pool:
                pool.controller(pool.path / "placement.db")
                pool.node("--memory", "128MiB", "--huge-pages", "2MiB")
                self.assertIn("pages of 2MiB", pool.said("node", "serves at .*"))
                pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--wait")
                self.assertIn("on 2 MiB pages", pool.said("node", "first slab .*"))
                self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000", "--fabric", "mapped"))

    def test_rows_come_over_a_unix_socket_where_the_node_listens_on_one(self):
        with Daemons() as pool:
            pool.controller(pool.path / "placement.db")
            pool.node("--fabrics", "stream", "--stream-listen", f"unix:{pool.path}/rows.sock")
            pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--wait")
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000", "--fabric", "stream"))

    def test_where_there_are_no_huge_pages_the_node_says_what_it_takes_instead(self):
        if int(pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text()) > 0:
            self.skipTest("this machine has reserved huge pages")
        with Daemons() as pool:
            pool.controller(pool.path / "placement.db")
            pool.node()
            said = pool.said("node", "serves at .*")
            self.assertIn("pages of 4KiB", said)
            self.assertIn("vm.nr_hugepages=32", said)
            pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--wait")
            self.assertIn("on 4 KiB pages", pool.said("node", "first slab .*"))

    @needs_root
    def test_an_ordinary_user_with_8_mib_of_memlock_and_64_mib_of_dev_shm_serves_more_than_both(self):
        with Daemons() as pool:
            # A place that the other user may enter, whatever the rights of the build folder.
            program = shutil.copy(BIN_DIR / "engram-poolserver", pool.path)
            pool.controller(pool.path / "placement.db")
            before = ("unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64m none /dev/shm && exec \"$@\"", "sh",
                      "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all",
                      "prlimit", f"--memlock={8 << 20}")
            node = pool.node("--memory", "192MiB", before=before, program=program)
            status = pathlib.Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
            self.assertRegex(status, rf"Uid:\s+{NOBODY}\s+{NOBODY}")
            self.assertRegex(status, r"CapEff:\s+0+\n")
            self.assertRegex(pathlib.Path(f"/proc/{node.pid}/limits").read_text(encoding="ascii"), rf"Max locked memory\s+{8 << 20} ")
            shm = os.statvfs(f"/proc/{node.pid}/root/dev/shm")
            self.assertEqual(shm.f_blocks * shm.f_frsize, 64 << 20)
            # 104 MiB of rows.
            pool.ok("load", "table", "t@1", "--synthetic", pool.spec(engram_vocab_size=8000), "--wait", "--timeout", "240s")
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "2000"))

    @needs_root
    def test_a_full_disk_under_the_state_refuses_changes_and_goes_on_serving(self):
        with Daemons() as pool:
            disk = pool.path / "disk"
            disk.mkdir()
            state = disk / "placement.db"
            controller = pool.controller(state, "unshare", "-m", "sh", "-c",
                                         f"mount -t tmpfs -o size=2m none {disk} && exec \"$@\"", "sh")
            pool.node()
            pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--wait", "--timeout", "240s")
            inside = ["nsenter", "-t", str(controller.pid), "-m", "-r"]
            filled = subprocess.run([*inside, "dd", "if=/dev/zero", f"of={disk}/fill", "bs=4k"], capture_output=True, text=True)
            self.assertIn("No space left", filled.stderr)
            # What free pages the file itself still has are used up first.
            refusals = []
            for version in range(2, 40):
                done = pool.ctl("load", "table", f"u@{version}", "--synthetic", pool.spec(), "--shard-bytes", "1MiB", "--timeout", "240s")
                if "does not fit" in done.stderr:
                    pool.ctl("delete", "table", f"u@{version - 1}", "--yes")
                elif done.returncode != 0:
                    refusals.append(done.stderr)
                    break
            self.assertTrue(refusals, "a full disk refused nothing")
            self.assertIn(str(state), refusals[0])
            self.assertRegex(refusals[0], "full")
            self.assertIn("t@1", pool.ok("get", "tables"))
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "1000"))
            self.assertIsNone(controller.poll())
            subprocess.run([*inside, "rm", f"{disk}/fill"], check=True)
            pool.ok("delete", "table", "t@1", "--yes")
            pool.ok("wait", "table", "t@1", "--for", "deleted", "--timeout", "240s")

    def test_a_node_that_dies_before_it_has_loaded_anything_serves_nothing_of_it(self):
        with Pool(BIN_DIR) as pool:
            pool.env.update(ENGRAM_DEAD_AFTER="10m")  # it is to be asked while it stands still
            pool.up("--nodes", "1", "--memory-per-node", "256MiB", "--port", "0")
            os.kill(pool.processes()["node-0"]["pid"], signal.SIGSTOP)
            spec = pool.synthetic(**dict(SPEC, engram_vocab_size=8000))
            pool.ok("load", "table", "t@1", "--synthetic", spec)
            os.kill(pool.processes()["node-0"]["pid"], signal.SIGKILL)
            refused = pool.run("read", "table", "t@1", "--rows", "0", "--timeout", "10s")
            self.assertNotEqual(refused.returncode, 0, "a table of which nothing is loaded served a row")
            self.assertIn("t@1", refused.stderr)
            pool.up()
            pool.ok("wait", "table", "t@1", "--for", "ready", "--timeout", "240s")
            self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "2000"))


def listening_ports(pid):
    """TCP ports on which a process listens."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


class Vandal(threading.Thread):
    """Sends one address whatever is not expected there, until told to stop."""

    OPENINGS = [b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SGNE", b"ENGS\x01\x00\x00\x00", b"\x00" * 32, b"\xff" * 32]

    def __init__(self, address, seed):
        super().__init__(daemon=True)
        self.address, self.random = address, random.Random(seed)
        self.stopped = threading.Event()
        self.connections = 0

    def connect(self):
        # A path is the mapped fabric's, whose messages are packets.
        kind = (socket.AF_UNIX, socket.SOCK_SEQPACKET) if isinstance(self.address, str) else (socket.AF_INET, socket.SOCK_STREAM)
        one = socket.socket(*kind)
        one.settimeout(2)
        one.connect(self.address)
        self.connections += 1
        return one

    def run(self):
        slow = []
        while not self.stopped.is_set():
            with contextlib.suppress(OSError):
                if len(slow) < 8:
                    slow.append([self.connect(), self.random.choice(self.OPENINGS) + self.random.randbytes(64)])
            for entry in list(slow):
                try:
                    entry[0].send(entry[1][:1] or b"x")
                    entry[1] = entry[1][1:]
                except OSError:
                    entry[0].close()
                    slow.remove(entry)
            with contextlib.suppress(OSError), self.connect() as fast:
                fast.send(self.random.choice(self.OPENINGS) + self.random.randbytes(self.random.choice([1, 40, 4000])))
                if self.random.random() < 0.5:
                    fast.recv(4096)
            self.stopped.wait(0.05)
        for entry in slow:
            entry[0].close()


class PeersTest(unittest.TestCase):
    def attacked(self, addresses, readings):
        """Vandals at every address while `readings` runs again and again, until each has come ten times, for 12 s at least."""
        vandals = [Vandal(address, seed) for seed, address in enumerate(addresses)]
        for vandal in vandals:
            vandal.start()
        try:
            end = time.monotonic() + 12
            while time.monotonic() < end or (time.monotonic() < end + 120 and any(v.connections <= 10 for v in vandals)):
                readings()
        finally:
            for vandal in vandals:
                vandal.stopped.set()
            for vandal in vandals:
                vandal.join(timeout=10)
        for vandal in vandals:
            self.assertGreater(vandal.connections, 10, vandal.address)

    def lets_go(self, pid, what):
        fds = pathlib.Path(f"/proc/{pid}/fd")
        self.assertTrue(wait_until(lambda: len(list(fds.iterdir())) < 100), f"{what} keeps its connections")
        self.assertTrue(alive(pid))

    def test_garbage_and_slow_bytes_on_every_port_disturb_no_reader(self):
        with Pool(BIN_DIR) as pool:
            pool.up("--nodes", "2", "--memory-per-node", "64MiB", "--port", "0")
            pool.ok("load", "table", "t@1", "--synthetic", pool.synthetic(**SPEC), "--shard-bytes", "1MiB", "--replicas", "2", "--wait")
            before = pool.processes()
            ports = {name: listening_ports(p["pid"]) for name, p in before.items()}
            self.assertGreaterEqual(len(ports["controller"]), 2)  # gRPC, metrics
            self.assertGreaterEqual(len(ports["node-0"]), 3)  # gRPC, stream, metrics
            addresses = [("127.0.0.1", port) for of_one in ports.values() for port in of_one]
            mapped = [str(path) for path in pool.data_dir.glob("run/*/*.mapped")]
            self.assertEqual(len(mapped), 2)

            def read():
                for fabric in ("mapped", "stream"):
                    self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "500", "--fabric", fabric))
                self.assertEqual(sum(self.answers_metrics(port) for _, port in addresses), 3, "slow bytes keep scrapes out")
            self.attacked(addresses + mapped, read)
            after = pool.processes()
            self.assertEqual({n: (p["pid"], p["state"]) for n, p in before.items()}, {n: (p["pid"], p["state"]) for n, p in after.items()})
            self.assertEqual(sum(self.answers_metrics(port) for _, port in addresses), 3, "some scrapes go unanswered")
            for process in after.values():
                self.lets_go(process["pid"], process["name"])

    def test_garbage_and_slow_bytes_on_the_ports_of_ofi_health_and_metrics_disturb_no_reader(self):
        with Daemons() as pool:
            controller = pool.controller(pool.path / "placement.db")
            node = pool.node("--fabrics", "mapped,stream,ofi", "--metrics-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0")
            pool.ok("load", "table", "t@1", "--synthetic", pool.spec(), "--shard-bytes", "1MiB", "--wait")
            ports = listening_ports(node.pid)
            self.assertEqual(len(ports), 5)  # gRPC, stream, ofi, metrics, health
            # Those of read sessions and of health speak HTTP/2.
            self.assertEqual(sum(self.answers_http2(port) for port in ports), 2)

            def read():
                self.assertIn("0 wrong", pool.ok("verify", "table", "t@1", "--sample", "300", "--fabric", "stream"))
                # A client whose connection over ofi takes more than a second does without it until it opens anew.
                for _ in range(10):
                    verified = pool.ctl("verify", "table", "t@1", "--sample", "300", "--fabric", "ofi", "--timeout", "10s")
                    if verified.returncode == 0:
                        break
                self.assertIn("0 wrong", verified.stdout, verified.stderr)
                self.assertEqual(sum(self.answers_http2(port) for port in ports), 2, "slow bytes keep health checks out")
                self.assertEqual(sum(self.answers_metrics(port) for port in ports), 1, "slow bytes keep scrapes out")
            self.attacked([("127.0.0.1", port) for port in ports | listening_ports(controller.pid)], read)
            self.assertIsNone(node.poll())
            self.assertIsNone(controller.poll())
            self.assertEqual(listening_ports(node.pid), ports)
            self.lets_go(node.pid, "the node")
            read()
            node.terminate()
            self.assertEqual(node.wait(timeout=20), 0)

    @staticmethod
    def answers_http2(port):
        """Whether the opening of HTTP/2 is answered by one: a frame of settings comes first."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as one:
            one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            return one.recv(9)[3:4] == b"\x04"
        return False

    @staticmethod
    def answers_metrics(port):
        """Of the ports of three processes, those of metrics speak HTTP/1.1; gRPC and stream close the connection."""
        with contextlib.suppress(OSError, http.client.HTTPException), \
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return b"engram_" in answer.read()
        return False


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
