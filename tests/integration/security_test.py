"""A pool under mutual TLS: real programs, certificates made on the spot, readers that the pool knows.

usage: security_test.py BIN_DIR
"""
import base64
import ctypes
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from moves_test import Reader as PlainReader  # noqa: E402
from pool import PATIENCE, wait_until  # noqa: E402

BIN_DIR = pathlib.Path()
TABLE = "t@1"
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1], "seed": 7}


class TlsFiles(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("cert", ctypes.c_char_p), ("key", ctypes.c_char_p), ("ca", ctypes.c_char_p)]


class Certificates:
    """An authority and what it signs, in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.authority("ca")

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], cwd=self.folder, check=True, capture_output=True, timeout=30)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
                     "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def make(self, name, path, authority="ca", days=2):
        """Writes NAME.pem and NAME.key, each with one rename."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                     "-addext", f"subjectAltName=URI:spiffe://test/engram/{path}", "-keyout", "new.key", "-out", "new.csr")
        self.openssl("x509", "-req", "-copy_extensions", "copy", "-in", "new.csr", "-CA", f"{authority}.pem",
                     "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", days, "-out", "new.pem")
        os.rename(self.folder / "new.key", self.folder / f"{name}.key")
        os.rename(self.folder / "new.pem", self.folder / f"{name}.pem")

    def files(self, name, authority="ca"):
        return tuple(str(self.folder / file) for file in (f"{name}.pem", f"{name}.key", f"{authority}.pem"))

    def flags(self, name, authority="ca"):
        cert, key, ca = self.files(name, authority)
        return ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca]


class Program:
    """A daemon whose log is looked at."""

    def __init__(self, log, *command):
        self.log = log
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ENGRAM_")}
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                            env=environment)

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Reader(PlainReader):
    """A reader with a certificate: compares what it reads with the first answer."""

    def __init__(self, lib, endpoint, fabric, files, table=TABLE):
        self.files, self.finished = files, False
        super().__init__(lib, endpoint, fabric, seed=1, table=table)

    def finish(self):
        if not self.finished:
            self.finished = True
            super().finish()

    def open_pool(self, options):
        cert, key, ca = (file.encode() for file in self.files)
        tls = TlsFiles(ctypes.sizeof(TlsFiles), cert, key, ca)
        return self.lib.engram_pool_open_tls(ctypes.byref(options), ctypes.byref(tls), ctypes.byref(self.pool))


class TlsPool(unittest.TestCase):
    """A controller and a node with certificates, and a table of team-a."""

    node_words = ()

    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory(prefix="engram-tls-")
        cls.addClassCleanup(cls.work.cleanup)
        cls.path = pathlib.Path(cls.work.name)
        cls.made = Certificates(cls.path)
        for name, path in (("controller", "controller/c"), ("node-0", "node/node-0"), ("admin", "admin/root"),
                           ("good", "client/team-a/good"), ("bad", "client/team-a/bad"), ("other", "client/team-b/x")):
            cls.made.make(name, path)
        cls.lib = ctypes.CDLL(str(BIN_DIR.parent / "lib" / "libengram.so"))
        cls.lib.engram_last_error.restype = ctypes.c_void_p
        cls.controller = cls.start("controller", "engram-placement", "--listen", "127.0.0.1:0", "--metrics-listen", "",
                                   "--state-file", cls.path / "state.db", "--heat-report-every", "200ms",
                                   *cls.made.flags("controller"))
        cls.endpoint = f"127.0.0.1:{cls.port_of(cls.controller)}"
        cls.node = cls.start_node("node-0", "node-0")
        (cls.path / "spec.json").write_text(json.dumps(SPEC), encoding="utf-8")
        assert wait_until(lambda: "joined the pool" in cls.node.text()), cls.node.text() + cls.controller.text()
        cls.ctl("load", "table", TABLE, "--synthetic", cls.path / "spec.json", "--tenant", "team-a", "--wait", "--timeout", "240s")

    @classmethod
    def start(cls, name, program, *words):
        started = Program(cls.path / f"{name}.log", BIN_DIR / program, *words)
        cls.addClassCleanup(started.stop)
        return started

    @classmethod
    def start_node(cls, name, certificate, authority="ca"):
        return cls.start(f"{name}-{certificate}", "engram-poolserver", "--node-id", name, "--controller", cls.endpoint,
                         "--memory", "64MiB", "--lease", "6s", "--huge-pages", "off", *cls.node_words,
                         *cls.made.flags(certificate, authority))

    @staticmethod
    def port_of(program):
        """The port on which the one process listens."""
        found = []

        def look():
            out = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True, timeout=10).stdout
            found[:] = [line.split()[3].rsplit(":", 1)[1] for line in out.splitlines()
                        if f"pid={program.process.pid}," in line]
            return found
        assert wait_until(look), program.text()
        return int(found[0])

    @classmethod
    def ctl(cls, *words, who="admin", check=True, endpoint=None):
        command = [BIN_DIR / "engramctl", *words, "--endpoint", endpoint or cls.endpoint, *cls.made.flags(who)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, env=dict(os.environ, **PATIENCE))
        if check:
            assert done.returncode == 0, f"engramctl {words}: {done.stderr}"
        return done

    def reader(self, fabric, who="good", table=TABLE):
        reader = Reader(self.lib, self.endpoint, fabric, self.made.files(who), table)
        self.addCleanup(reader.finish)
        return reader


class SecurityTest(TlsPool):
    def test_rows_are_read_over_stream_and_mapped(self):
        for fabric in ("stream", "mapped"):
            reader = self.reader(fabric)
            self.assertEqual(reader.read(), 0)
            self.assertEqual(reader.out.raw, reader.first)

    def test_a_role_calls_what_is_its_own_and_nothing_else(self):
        refused = self.ctl("get", "nodes", who="good", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("ListNodes may be called by the role admin; the certificate of the caller says client team-a/good",
                      refused.stderr)
        self.assertIn("may be called by the role", self.ctl("delete", "table", TABLE, "--yes", who="node-0", check=False).stderr)
        self.assertIn(TABLE, self.ctl("get", "tables", who="good").stdout)

    def test_nobody_comes_in_without_a_certificate_of_the_authority(self):
        plain = subprocess.run([BIN_DIR / "engramctl", "get", "tables", "--endpoint", self.endpoint, "--timeout", "3s"],
                               capture_output=True, text=True, timeout=30)
        self.assertNotEqual(plain.returncode, 0)
        self.made.authority("foreign")
        self.made.make("stranger", "admin/root", authority="foreign")
        command = [BIN_DIR / "engramctl", "get", "tables", "--endpoint", self.endpoint, "--timeout", "3s",
                   *self.made.flags("stranger", "foreign")]
        self.assertNotEqual(subprocess.run(command, capture_output=True, timeout=30).returncode, 0)

    def test_a_node_speaks_for_itself_alone(self):
        wrong = self.start_node("node-7", "node-0")
        self.assertNotEqual(wrong.process.wait(timeout=90), 0)
        self.assertIn("is that of node node-0, and --node-id is node-7", wrong.text())
        wrong = self.start_node("node-0", "good")
        self.assertNotEqual(wrong.process.wait(timeout=90), 0)
        self.assertIn("is that of client team-a/good; this program needs the role node", wrong.text())

    def test_certificates_are_renewed_without_a_restart(self):
        def serial():
            shown = subprocess.run(["openssl", "s_client", "-connect", self.endpoint, "-alpn", "h2"], input="", timeout=30,
                                   capture_output=True, text=True).stdout
            return subprocess.run(["openssl", "x509", "-noout", "-serial"], input=shown, capture_output=True, text=True,
                                  timeout=30).stdout
        before = serial()
        self.assertIn("serial=", before)
        reader = self.reader("stream")
        self.made.make("controller", "controller/c")
        self.assertTrue(wait_until(lambda: serial() not in ("", before)), "the controller shows its old certificate")
        self.assertIn(TABLE, self.ctl("get", "tables").stdout)
        self.assertEqual(reader.read(), 0)

    def test_a_revoked_client_loses_its_session_and_the_others_go_on(self):
        good, bad = self.reader("stream"), self.reader("stream", who="bad")
        good.start()
        self.ctl("revoke", "client", "team-a/bad")
        self.addCleanup(self.ctl, "restore", "client", "team-a/bad")
        # How long it may take at most is for tests whose clock is their own.
        self.assertTrue(wait_until(lambda: bad.read(within_ns=1_000_000_000) != 0), "a revoked client still reads")
        refused = self.ctl("get", "tables", who="bad", check=False)
        self.assertIn("client team-a/bad is revoked", refused.stderr)
        self.assertIn("bad", self.ctl("get", "tenants").stdout)
        steps = good.steps
        self.assertTrue(wait_until(lambda: good.steps > steps + 20))
        self.assertEqual((good.wrong, good.failed), (0, []))
        self.ctl("restore", "client", "team-a/bad")
        self.assertTrue(wait_until(lambda: bad.read() == 0), "a client that was let in again does not read")
        self.assertEqual(bad.out.raw, bad.first)

    def test_a_client_sees_the_tables_of_its_tenant_and_what_it_was_granted(self):
        self.assertNotIn(TABLE, self.ctl("get", "tables", who="other").stdout)
        with self.assertRaisesRegex(AssertionError, "t@1 is unknown"):
            self.reader("stream", who="other")
        self.ctl("grant", "table", "t", "--tenant", "team-b")
        self.assertIn(TABLE, self.ctl("get", "tables", who="other").stdout)
        reader = self.reader("stream", who="other")
        self.assertEqual(reader.read(), 0)
        self.ctl("revoke", "table", "t", "--tenant", "team-b")
        self.assertTrue(wait_until(lambda: reader.read(within_ns=1_000_000_000) != 0), "a grant that was taken back still reads")

    def test_versions_are_adopted_before_they_are_deleted(self):
        self.ctl("load", "table", "t@2", "--synthetic", self.path / "spec.json", "--tenant", "team-a", "--wait", "--timeout", "240s")
        self.ctl("set", "alias", "t@live", "2")
        reader = self.reader("stream", table="t@live")
        def adopted():
            return self.ctl("get", "aliases").stdout
        self.assertTrue(wait_until(lambda: "1/1" in adopted()), adopted())
        self.ctl("set", "alias", "t@live", "1")
        self.assertTrue(wait_until(lambda: "0/1" in adopted()), adopted())
        self.assertIn("t@live", self.ctl("get", "sessions").stdout)
        refused = self.ctl("delete", "table", "t@2", "--yes", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--force", refused.stderr)
        self.assertIn("names t@2", self.ctl("rollback", "alias", "t@live").stdout)
        self.assertIn("names t@1", self.ctl("rollback", "alias", "t@live").stdout)
        reader.finish()
        self.assertTrue(wait_until(lambda: "t@2" not in self.ctl("get", "sessions").stdout))
        self.ctl("delete", "table", "t@2", "--yes", "--wait")
        self.ctl("delete", "alias", "t@live", "--yes")

    def test_a_budget_holds_gathers_back(self):
        self.ctl("budget", "tenant", "team-a", 2000)
        self.addCleanup(self.ctl, "budget", "tenant", "team-a", 0)
        reader = self.reader("stream")  # 256 rows a read
        self.assertTrue(wait_until(lambda: self.budget_seen_by(reader) == 2000), "a client is not told its tenant's budget")
        start = time.monotonic()
        for _ in range(16):
            self.assertEqual(reader.read(), 0)
        # 4,096 rows at 2,000 a second, less the burst and the debt of the last one.
        self.assertGreater(time.monotonic() - start, 1.0)
        self.assertTrue(wait_until(lambda: any(
            tenant["name"] == "team-a" and int(tenant.get("throttledMessages", tenant.get("throttled_messages", 0))) > 0
            for tenant in json.loads(self.ctl("get", "tenants", "-o", "json").stdout)["tenants"])))

    def budget_seen_by(self, reader):
        """tenant_budget_rows_per_second of engram_stats: the 28th of its 29 fields of eight bytes."""
        stats = (ctypes.c_uint64 * 29)(8 * 29)
        self.assertEqual(self.lib.engram_table_get_stats(reader.table, ctypes.byref(stats)), 0)
        return stats[27]

    def test_a_peer_without_a_session_gets_nothing_and_is_closed(self):
        port = self.stream_port()
        silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(50)]
        for peer in silent:
            self.addCleanup(peer.close)
        for peer in silent[:25]:
            peer.sendall(b"\x00" * 4096)
        for peer in silent[:25]:
            self.assertIn(peer.recv(1 << 16), (b"",), "a peer without a session got an answer")
        reader = self.reader("stream")
        self.assertEqual(reader.read(), 0)
        for peer in silent[25:]:
            self.assertEqual(peer.recv(1), b"", "a silent peer was kept")

    def stream_port(self):
        """Of the two ports of the node the one that does not speak HTTP/2."""
        out = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True, timeout=10).stdout
        ports = {int(line.split()[3].rsplit(":", 1)[1]) for line in out.splitlines() if f"pid={self.node.process.pid}," in line}
        endpoint = next(node["endpoint"] for node in json.loads(self.ctl("get", "nodes", "-o", "json").stdout)["nodes"]
                        if node["node"] == "node-0")
        ports.discard(int(endpoint.rsplit(":", 1)[1]))
        self.assertEqual(len(ports), 1)
        return ports.pop()


class KeysTest(TlsPool):
    """Over ofi, whose keys are bearer tokens."""

    node_words = ("--fabrics", "stream,ofi", "--ofi-providers", "tcp;ofi_rxm")

    def test_a_key_that_a_revoked_client_kept_is_worth_nothing_after_its_lease(self):
        honest = self.reader("ofi")
        where = next(one for one in json.loads(self.ctl("get", "nodes", "-o", "json").stdout)["nodes"] if one["node"] == "node-0")
        table = next(one for one in json.loads(self.ctl("get", "tables", "-o", "json").stdout)["tables"]
                     if one["table"]["name"] == "t")
        uid = base64.b64decode(table["table"]["uid"]).hex()
        thief = subprocess.Popen([str(BIN_DIR / "engram_stale_key"), where["endpoint"], "node-0", str(where["incarnation"]), uid,
                                  *self.made.files("bad")], stdout=subprocess.PIPE, text=True)
        self.addCleanup(thief.stdout.close)
        self.addCleanup(thief.wait)
        self.addCleanup(thief.kill)
        self.assertEqual(thief.stdout.readline(), "reading\n")
        honest.start()
        self.assertTrue(wait_until(lambda: honest.steps > 20))
        self.ctl("revoke", "client", "team-a/bad")
        self.addCleanup(self.ctl, "restore", "client", "team-a/bad")
        # It gives up after a minute.
        self.assertRegex(thief.stdout.readline(), "refused reads=")
        steps = honest.steps
        self.assertTrue(wait_until(lambda: honest.steps > steps + 20))
        self.assertEqual((honest.wrong, honest.failed), (0, []), "an honest client of the tenant lost reads")


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
