"""A replica under chaos: reads batches of rows with a deadline of one second each, compares every byte, and says once a second what it saw.

usage: reader.py LIBENGRAM ENDPOINTS TABLE ROWS_FILE [--learn]

ROWS_FILE holds the batches: row ids and the bytes that they have. `--learn` writes it, on a pool that nothing has happened to.
Lines on standard output: {"at": monotonic seconds, "reads", "failed", "wrong", "longest_ms", "why": last error}. Ends with its input.
"""
import ctypes
import json
import pathlib
import pickle
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "integration"))
from moves_test import PoolOptions, RowsOptions, TableInfo  # noqa: E402

BATCHES, ROWS = 64, 48
DEADLINE_NS = 1_000_000_000


class Replica:
    def __init__(self, library, endpoints, table):
        self.lib = ctypes.CDLL(library)
        self.lib.engram_last_error.restype = ctypes.c_void_p
        options = PoolOptions()
        self.lib.engram_pool_options_init(ctypes.byref(options))
        options.endpoints = endpoints.encode()
        self.pool, self.table = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.engram_pool_open(ctypes.byref(options), ctypes.byref(self.pool)))
        self.check(self.lib.engram_table_open(self.pool, table.encode(), None, ctypes.byref(self.table)))
        self.info = TableInfo(struct_size=ctypes.sizeof(TableInfo))
        self.check(self.lib.engram_table_get_info(self.table, ctypes.byref(self.info)))
        self.out = ctypes.create_string_buffer(ROWS * self.info.row_bytes)

    def error(self):
        return ctypes.string_at(self.lib.engram_last_error()).decode()

    def check(self, status):
        if status != 0:
            raise SystemExit(self.error())

    def read(self, ids):
        """The rows, or None."""
        array = (ctypes.c_int64 * ROWS)(*ids)
        rows = RowsOptions(ctypes.sizeof(RowsOptions), ctypes.addressof(array), ROWS, 1, -1)
        ctypes.memset(self.out, 0xee, len(self.out))
        status = self.lib.engram_table_read_rows(self.table, ctypes.byref(rows), self.out, len(self.out), None,
                                                 ctypes.c_uint64(DEADLINE_NS))
        return self.out.raw if status == 0 else None


def learn(replica, path):
    rng = random.Random(1)
    batches = []
    for _ in range(BATCHES):
        ids = [rng.randrange(replica.info.rows) for _ in range(ROWS)]
        rows = replica.read(ids)
        if rows is None:
            raise SystemExit(replica.error())
        batches.append((ids, rows))
    path.write_bytes(pickle.dumps(batches))


def replay(replica, path, stop):
    batches = pickle.loads(path.read_bytes())
    rng = random.Random()
    said = time.monotonic()
    line = {"reads": 0, "failed": 0, "wrong": 0, "longest_ms": 0.0, "why": ""}
    while not stop.is_set():
        ids, expected = rng.choice(batches)
        start = time.monotonic()
        rows = replica.read(ids)
        now = time.monotonic()
        line["reads"] += 1
        line["longest_ms"] = max(line["longest_ms"], (now - start) * 1000)
        if rows is None:
            line["failed"] += 1
            line["why"] = replica.error()
        elif rows != expected:
            line["wrong"] += 1
        if now - said >= 1:
            print(json.dumps({"at": now, **line}), flush=True)
            said = now
            line = {"reads": 0, "failed": 0, "wrong": 0, "longest_ms": 0.0, "why": ""}
        time.sleep(0.005)
    print(json.dumps({"at": time.monotonic(), **line}), flush=True)


def main():
    library, endpoints, table, rows = sys.argv[1:5]
    replica = Replica(library, endpoints, table)
    if "--learn" in sys.argv:
        learn(replica, pathlib.Path(rows))
        return
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    replay(replica, pathlib.Path(rows), stop)


if __name__ == "__main__":
    main()
