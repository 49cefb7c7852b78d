"""One open version of a table: its handles, its steps and what it says of itself."""
import ctypes as c
import threading
from collections import namedtuple

from . import _abi
from ._abi import check, library
from ._handle import Handle

Layer = namedtuple("Layer", "layer first_row rows")
Column = namedtuple("Column", "layer order head first_row rows")
Plane = namedtuple("Plane", "name dtype offset bytes")


class Version:
    """Closed by `close`, or, once it was retired, with its last step. Thread-safe."""

    def __init__(self, handle, what, pool_handle, options):
        """`options`: of the prefetcher."""
        self.handle = Handle(what, handle, library.engram_table_close, parent=pool_handle)
        self._lock = threading.Lock()
        self._prefetcher, self._steps, self._retired, self._options = None, 0, False, options
        self._describe()

    def call(self, function, *arguments, **attributes):
        with self.handle as handle:
            check(function(handle, *arguments), **attributes)

    def get(self, function, struct, *arguments):
        self.call(function, *arguments, c.byref(struct))
        return struct

    def _describe(self):
        info = self.get(library.engram_table_get_info, _abi.TableInfo())
        self.name = f"{info.name.decode()}@{info.version.decode()}"
        self.uid, self.digest, self.spec_digest = (v.decode() for v in (info.table_uid, info.content_digest, info.spec_digest))
        self.rows, self.row_bytes, self.lookback = info.rows, info.row_bytes, info.lookback
        layers = [self.get(library.engram_table_get_layer, _abi.LayerInfo(), i) for i in range(info.layers)]
        self.layers = tuple(Layer(x.layer, x.first_row, x.rows) for x in layers)
        columns = [self.get(library.engram_table_get_column, _abi.ColumnInfo(), i)
                   for i in range(info.layers * info.columns_per_layer)]
        self.columns = tuple(Column(x.layer, x.order, x.head, x.first_row, x.rows) for x in columns)
        planes = [self.get(library.engram_table_get_plane, _abi.PlaneInfo(), i) for i in range(info.planes)]
        self.planes = tuple(Plane(x.name.decode(), x.dtype.decode(), x.offset, x.bytes) for x in planes)
        self.columns_per_layer = info.columns_per_layer

    def prefetcher(self):
        """The handle of the prefetcher, opened with the first step."""
        with self._lock:
            if self._prefetcher is None:
                handle = c.c_void_p()
                with self.handle as table:
                    options = _abi.PrefetcherOptions(steps=64, **self._options)
                    check(library.engram_prefetcher_open(table, c.byref(options), c.byref(handle)))
                    self._prefetcher = Handle(f"the prefetcher of table {self.name}", handle,
                                              library.engram_prefetcher_close, parent=self.handle)
            return self._prefetcher

    def begin_step(self):
        with self._lock:
            self._steps += 1

    def end_step(self):
        with self._lock:
            self._steps -= 1
            last = self._retired and self._steps == 0
        if last:
            self.close()

    def retire(self):
        """Closes it when no step is open any more."""
        with self._lock:
            self._retired = True
            idle = self._steps == 0
        if idle:
            self.close()

    def close(self):
        """Idempotent; cancels the steps that are open."""
        with self._lock:
            prefetcher = self._prefetcher
        if prefetcher is not None:
            prefetcher.close()
        self.handle.close()
