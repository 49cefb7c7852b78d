"""What is in the wheel, whom it meets in a process, and how it begins and ends there. Run by engram_pool_test.py, whose pool it reads."""
import ast
import importlib.metadata
import inspect
import os
import pathlib
import subprocess
import sys
import unittest

import engram_pool

POOL, ENDPOINT, WIDE = None, None, None  # engram_pool_test.py sets them


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=280)


class WheelTest(unittest.TestCase):
    def test_one_wheel_serves_every_python_and_carries_what_the_library_links(self):
        wheel = importlib.metadata.distribution("engram-pool")
        self.assertRegex(wheel.read_text("WHEEL"), r"Tag: py3-none-manylinux\w+")
        self.assertEqual(engram_pool.__version__, wheel.version)
        carried = [pathlib.Path(file).name for file in wheel.files if "engram_pool.libs" in str(file)]
        for name in ("libgrpc++", "libgrpc", "libprotobuf", "libabsl_synchronization", "libssl"):
            self.assertTrue(any(file.startswith(name + "-") for file in carried), f"{name} is not in {sorted(carried)}")

    def test_no_shared_library_of_the_system_that_another_wheel_may_carry_is_loaded(self):
        done = python("import engram_pool; print(open('/proc/self/maps').read())")
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = {line.split()[-1] for line in done.stdout.splitlines() if "/" in line}
        foreign = [path for path in loaded if any(word in path for word in ("libgrpc", "libprotobuf", "libabsl"))
                   and "engram_pool.libs" not in path]
        self.assertEqual(foreign, [])

    def test_libfabric_is_loaded_when_ofi_is_asked_for_and_takes_no_signal_handler(self):
        code = ("import engram_pool, sys, faulthandler\n"
                "def state():\n"
                "    caught = [line for line in open('/proc/self/status') if line.startswith('SigCgt')]\n"
                "    return caught, any('libfabric' in line for line in open('/proc/self/maps'))\n"
                "for fabric in ('mapped', 'stream', 'ofi'):\n"
                f"    with engram_pool.connect({ENDPOINT!r}, fabric=fabric) as pool:\n"
                "        pool.table('wide@1').read_rows([1])\n"
                "        print(fabric, *state())\n")
        done = python(code)
        self.assertEqual(done.returncode, 0, done.stderr)
        mapped, stream, ofi = (line.split(" ", 1)[1] for line in done.stdout.splitlines())
        self.assertEqual((mapped, stream), (mapped, mapped))
        self.assertEqual(ofi, mapped.replace("False", "True"))
        files = [str(file) for file in importlib.metadata.distribution("engram-pool").files]
        self.assertEqual([file for file in files if "fabric" in file or "psm" in file], [])

    def test_a_missing_library_is_named_with_the_next_step(self):
        done = python("import engram_pool", ENGRAM_LIBRARY="/nowhere/libengram.so")
        self.assertIn("ImportError: engram_pool needs libengram.so, but /nowhere/libengram.so is not there", done.stderr)
        self.assertIn("pip install", done.stderr)

    def test_a_library_that_is_none_is_named_with_the_reason(self):
        wrong = POOL.path / "wrong.so"
        wrong.write_bytes(b"no library")
        self.assertIn(f"ImportError: engram_pool cannot load {wrong}", python("import engram_pool", ENGRAM_LIBRARY=str(wrong)).stderr)

    def test_grpc_and_protobuf_of_other_wheels_live_in_the_same_process_in_both_orders(self):
        others = ("import grpc; from google.protobuf import struct_pb2\n"
                  "message = struct_pb2.Struct(); message['a'] = 1.5; message.ParseFromString(message.SerializeToString())\n"
                  "assert message['a'] == 1.5\n"
                  "channel = grpc.insecure_channel(endpoint); grpc.channel_ready_future(channel).result(timeout=20)\n")
        ours = ("import engram_pool; pool = engram_pool.connect(endpoint); table = pool.table('wide@1')\n"
                "print(table.read_rows([5]).tobytes().hex())\n")
        for first, second in ((others, ours), (ours, others)):
            done = python(f"endpoint = {ENDPOINT!r}\n" + first + second + first.replace("import grpc; ", "") + "print('end')")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(WIDE.whole_table()[5].tobytes().hex(), done.stdout)
            self.assertTrue(done.stdout.endswith("end\n"), done.stdout)


class TypesTest(unittest.TestCase):
    """What the stub promises to type checkers is what the package has, and nothing that it offers is left out."""

    def setUp(self):
        folder = pathlib.Path(engram_pool.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        self.stub = ast.parse((folder / "__init__.pyi").read_text()).body

    @staticmethod
    def signature(function):
        """Names, kinds and which have defaults, of a function of the stub."""
        wanted = function.args
        plain = [(argument.arg, len(wanted.args) - at <= len(wanted.defaults)) for at, argument in enumerate(wanted.args)]
        named = [(argument.arg, default is not None) for argument, default in zip(wanted.kwonlyargs, wanted.kw_defaults)]
        return plain, named

    @staticmethod
    def real_signature(function):
        parameters = inspect.signature(function).parameters.values()
        given = [(x.name, x.default is not x.empty, x.kind) for x in parameters]
        return ([(name, default) for name, default, kind in given if kind == inspect.Parameter.POSITIONAL_OR_KEYWORD],
                [(name, default) for name, default, kind in given if kind == inspect.Parameter.KEYWORD_ONLY])

    def same(self, function, real, name):
        if name not in ("connect", "__exit__"):  # they take what they pass on
            self.assertEqual(self.signature(function), self.real_signature(real), name)
        self.assertEqual(isinstance(function, ast.AsyncFunctionDef), inspect.iscoroutinefunction(real), name)

    def test_every_name_and_parameter_of_the_stub_is_the_packages(self):
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        for node in self.stub:
            if isinstance(node, functions):
                self.same(node, getattr(engram_pool, node.name), node.name)
            elif isinstance(node, ast.ClassDef):
                real = getattr(engram_pool, node.name)
                fields = [x.target.id for x in node.body if isinstance(x, ast.AnnAssign)]
                if issubclass(real, tuple):
                    self.assertEqual(list(real._fields), fields, node.name)
                for method in (x for x in node.body if isinstance(x, functions)):
                    found = inspect.getattr_static(real, method.name)
                    if isinstance(found, property):
                        self.assertTrue(method.decorator_list, method.name)
                    else:
                        self.same(method, found, f"{node.name}.{method.name}")

    def test_the_stub_leaves_nothing_out(self):
        classes = {node.name: node for node in self.stub if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in self.stub if isinstance(node, ast.FunctionDef)}
        self.assertEqual(set(classes) | functions, set(engram_pool.__all__))
        for name, node in classes.items():
            real = getattr(engram_pool, name)
            public = {x for x in vars(real) if not x.startswith("_")}
            typed = {x.target.id for x in node.body if isinstance(x, ast.AnnAssign)}
            typed |= {x.name for x in node.body if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef))}
            self.assertLessEqual(public, typed, name)
        with engram_pool.connect(ENDPOINT) as pool:
            table = pool.table("wide@1")
            layout = table.layout(2)
            with table.register(bytearray(layout.bytes)) as destination, table.prefetch([5], timeout=60) as step:
                for real in (table, layout, destination, table.slot(layout), step):
                    typed = {x.target.id for x in classes[type(real).__name__].body if isinstance(x, ast.AnnAssign)}
                    self.assertLessEqual(typed, {x for x in dir(real) if not x.startswith("_")}, type(real).__name__)


class LifetimeTest(unittest.TestCase):
    """Each in a process of its own: gRPC ends a process whose objects end in the wrong order."""

    LOOP = ("import engram_pool, random, threading\n"
            "def once(close=True):\n"
            "    pool = engram_pool.connect({endpoint!r}, timeout=60); table = pool.table('narrow@2', timeout=60)\n"
            "    table.read_rows([random.randrange(table.rows)], timeout=60)\n"
            "    if close: pool.close()\n"
            "    return pool, table\n"
            "def loop(times): [once() for _ in range(times)]\n")

    def lives(self, code):
        done = python(self.LOOP.format(endpoint=ENDPOINT) + code + "print('end')\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))

    def test_pools_are_opened_and_closed_many_times(self):
        self.lives("loop(100)\n")

    def test_pools_are_opened_and_closed_by_many_threads(self):
        self.lives("threads = [threading.Thread(target=loop, args=(12,)) for _ in range(8)]\n"
                   "for thread in threads: thread.start()\n"
                   "for thread in threads: thread.join()\n")

    def test_the_interpreter_exits_while_pools_are_open(self):
        self.lives("kept = [once(close=False) for _ in range(4)]\n")

    def test_the_interpreter_exits_while_threads_open_and_read(self):
        self.lives("import time\n"
                   "for _ in range(4): threading.Thread(target=loop, args=(10**6,), daemon=True).start()\n"
                   "time.sleep(0.3)\n")
