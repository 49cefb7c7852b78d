"""Pool and Table: NumPy in, NumPy out, over the C ABI. ctypes releases the GIL around every call."""
import ctypes as c
import weakref
from collections import namedtuple

import numpy as np

from . import _abi
from ._abi import check, library
from ._errors import InvalidArgument

Layer = namedtuple("Layer", "layer first_row rows")
Column = namedtuple("Column", "layer order head first_row rows")
Plane = namedtuple("Plane", "name dtype offset bytes")


def _ns(seconds):
    if seconds is None:
        return 0
    if not seconds > 0:
        raise InvalidArgument(f"timeout is {seconds}; it must be a number of seconds above 0")
    return min(int(seconds * 1e9), 2**63)


def _text(value):
    return value.encode() if value is not None else None


def _ids(values, name):
    """A one-dimensional contiguous int64 array of whatever holds integers (NumPy, buffer protocol, DLPack, lists)."""
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        values = np.from_dlpack(values)
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidArgument(f"{name} is {array.dtype} with shape {array.shape}; give a one-dimensional array of integers")
    if array.dtype == np.uint64 and array.size and array.max() > np.uint64(2**63 - 1):
        raise InvalidArgument(f"{name} holds {array.max()}; the largest id is {2**63 - 1}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _flags(values, count, name):
    if values is None:
        return None
    array = np.ascontiguousarray(np.asarray(values, dtype=bool), dtype=np.uint8)
    if array.shape != (count,):
        raise InvalidArgument(f"{name} has shape {array.shape}; it needs one flag for each of {count} tokens")
    return array


def _pointer(array):
    return array.ctypes.data if array is not None and array.size else None


class _TokenArguments:
    """Keeps the arrays alive that a Tokens struct points to."""

    def __init__(self, tokens, dead, lookback, lookback_dead):
        self.tokens = _ids(tokens, "tokens")
        self.lookback = _ids(lookback, "lookback")
        self.dead = _flags(dead, self.tokens.size, "dead")
        self.lookback_dead = _flags(lookback_dead, self.lookback.size, "lookback_dead")
        self.struct = _abi.Tokens(tokens=_pointer(self.tokens), count=self.tokens.size, dead=_pointer(self.dead),
                                  lookback=_pointer(self.lookback), lookback_count=self.lookback.size,
                                  lookback_dead=_pointer(self.lookback_dead))


class Pool:
    """A connection to a pool; thread-safe. Use `connect`."""

    def __init__(self, endpoint=None, *, client_name=None, tenant=None, fabric=None, timeout=None):
        endpoints = ",".join(endpoint) if isinstance(endpoint, (list, tuple)) else endpoint
        options = _abi.PoolOptions(endpoints=_text(endpoints), client_name=_text(client_name), tenant=_text(tenant),
                                   fabric=_text(fabric), connect_timeout_ns=_ns(timeout))
        handle = c.c_void_p()
        check(library.engram_pool_open(c.byref(options), c.byref(handle)))
        self._handle = handle
        self._tables = weakref.WeakSet()
        self._finalizer = weakref.finalize(self, library.engram_pool_close, handle)

    def table(self, name, *, spec_digest=None, content_digest=None, timeout=None):
        """Opens `name@version`; digests that are given must match."""
        return Table(self, name, spec_digest, content_digest, timeout)

    def close(self):
        """Closes the tables, then says goodbye to every node. Idempotent."""
        for table in list(self._tables):
            table.close()
        self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Table:
    """One version of a table; thread-safe.

    layers, columns, planes: named tuples; rows, row_bytes, lookback: numbers; digest: of the content; spec_digest, uid, name.
    """

    def __init__(self, pool, name, spec_digest, content_digest, timeout):
        options = _abi.TableOptions(expected_spec_digest=_text(spec_digest), expected_content_digest=_text(content_digest),
                                    open_timeout_ns=_ns(timeout))
        handle = c.c_void_p()
        check(library.engram_table_open(pool._handle, _text(name), c.byref(options), c.byref(handle)))
        self._pool, self._handle = pool, handle
        self._finalizer = weakref.finalize(self, library.engram_table_close, handle)
        pool._tables.add(self)
        self._describe()

    def _get(self, function, struct, *arguments):
        check(function(self._handle, *arguments, c.byref(struct)))
        return struct

    def _describe(self):
        info = self._get(library.engram_table_get_info, _abi.TableInfo())
        self.name = f"{info.name.decode()}@{info.version.decode()}"
        self.uid, self.digest, self.spec_digest = (v.decode() for v in (info.table_uid, info.content_digest, info.spec_digest))
        self.rows, self.row_bytes, self.lookback = info.rows, info.row_bytes, info.lookback
        layers = [self._get(library.engram_table_get_layer, _abi.LayerInfo(), i) for i in range(info.layers)]
        self.layers = tuple(Layer(x.layer, x.first_row, x.rows) for x in layers)
        columns = [self._get(library.engram_table_get_column, _abi.ColumnInfo(), i)
                   for i in range(info.layers * info.columns_per_layer)]
        self.columns = tuple(Column(x.layer, x.order, x.head, x.first_row, x.rows) for x in columns)
        planes = [self._get(library.engram_table_get_plane, _abi.PlaneInfo(), i) for i in range(info.planes)]
        self.planes = tuple(Plane(x.name.decode(), x.dtype.decode(), x.offset, x.bytes) for x in planes)
        self._columns_per_layer = info.columns_per_layer

    def _layer_index(self, layer):
        if layer is None:
            return -1
        for index, known in enumerate(self.layers):
            if known.layer == layer:
                return index
        raise InvalidArgument(f"layer {layer} has no table; the layers are {[x.layer for x in self.layers]}")

    def _output(self, out, shape):
        if out is None:
            return np.empty(shape, np.uint8)
        if isinstance(out, np.ndarray):
            array = out
        else:
            array = np.from_dlpack(out) if hasattr(out, "__dlpack__") else np.frombuffer(out, np.uint8)
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InvalidArgument("out must be C-contiguous and writable")
        need = int(np.prod(shape))
        if array.nbytes != need:
            raise InvalidArgument(f"out has {array.nbytes} bytes; shape {tuple(shape)} needs {need}")
        return array.reshape(-1).view(np.uint8).reshape(shape)

    def read_rows(self, rows, *, layer=None, out=None, timeout=None):
        """uint8 [n, row_bytes]. Row numbers of the whole table, or of one layer's own table; negative = zeros.

        Raises Unavailable, DeadlineExceeded or DataLoss when rows failed; the exception then carries `rows` (failed ones
        poisoned) and `row_status` (uint8 [n], 0 = good).
        """
        ids = _ids(rows, "rows")
        result = self._output(out, (ids.size, self.row_bytes))
        status = np.zeros(ids.size, np.uint8)
        request = _abi.Rows(ids=_pointer(ids), count=ids.size, id_type=1, layer_index=self._layer_index(layer))
        check(library.engram_table_read_rows(self._handle, c.byref(request), _pointer(result), result.nbytes,
                                             _pointer(status), _ns(timeout)), rows=result, row_status=status)
        return result

    def read(self, tokens, *, dead=None, lookback=(), lookback_dead=None, out=None, timeout=None):
        """uint8 [T, layers, columns, row_bytes]: the rows of every position. Errors as in read_rows."""
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        shape = (arguments.tokens.size, len(self.layers), self._columns_per_layer)
        result = self._output(out, shape + (self.row_bytes,))
        status = np.zeros(shape, np.uint8)
        check(library.engram_table_read_tokens(self._handle, c.byref(arguments.struct), _pointer(result), result.nbytes,
                                               _pointer(status), _ns(timeout)), rows=result, row_status=status)
        return result

    def addresses(self, tokens, dead=None, lookback=(), lookback_dead=None):
        """int64 [T, layers, columns]: rows of each layer's own table."""
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        result = np.empty((arguments.tokens.size, len(self.layers), self._columns_per_layer), np.int64)
        check(library.engram_table_addresses(self._handle, c.byref(arguments.struct), _pointer(result), result.size))
        return result

    def stats(self):
        """Totals since the table was opened, by name."""
        stats = self._get(library.engram_table_get_stats, _abi.Stats())
        return {name: getattr(stats, name) for name in _abi.Stats.COUNTERS}

    def close(self):
        """Idempotent."""
        self._finalizer()
        self._handle = None


def connect(endpoint=None, **options):
    """Connects to a pool: "host:port", a list of them, or nothing for the current context.

    Options: client_name, tenant, fabric ("mapped", "stream", "ofi"), timeout in seconds.
    """
    return Pool(endpoint, **options)
