"""Pool and Table: NumPy in, NumPy out, over the C ABI. ctypes releases the GIL around every call."""
import ctypes as c
import os
import threading
import weakref
from collections import namedtuple

import numpy as np

from . import _abi
from ._abi import check, library
from ._buffers import flags, ids, output, pointer
from ._errors import InvalidArgument
from ._handle import Handle
from ._step import KINDS, Step
from ._step import needed_in as _needed_in

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


class _TokenArguments:
    """Keeps the arrays alive that a Tokens struct points to."""

    def __init__(self, tokens, dead, lookback, lookback_dead):
        self.tokens = ids(tokens, "tokens")
        self.lookback = ids(lookback, "lookback")
        self.dead = flags(dead, self.tokens.size, "dead")
        self.lookback_dead = flags(lookback_dead, self.lookback.size, "lookback_dead")
        self.struct = _abi.Tokens(tokens=pointer(self.tokens), count=self.tokens.size, dead=pointer(self.dead),
                                  lookback=pointer(self.lookback), lookback_count=self.lookback.size,
                                  lookback_dead=pointer(self.lookback_dead))


class Pool:
    """A connection to a pool; thread-safe. Use `connect`."""

    def __init__(self, endpoint=None, *, client_name=None, tenant=None, fabric=None, timeout=None):
        endpoints = ",".join(endpoint) if isinstance(endpoint, (list, tuple)) else endpoint
        options = _abi.PoolOptions(endpoints=_text(endpoints), client_name=_text(client_name), tenant=_text(tenant),
                                   fabric=_text(fabric), connect_timeout_ns=_ns(timeout))
        handle = c.c_void_p()
        check(library.engram_pool_open(c.byref(options), c.byref(handle)))
        self._handle = Handle(f"the pool at {endpoints or 'the current context'}", handle, library.engram_pool_close)
        self._tables = weakref.WeakSet()
        weakref.finalize(self, self._handle.close)

    def table(self, name, *, spec_digest=None, content_digest=None, timeout=None, cache_bytes=0, host_cache=False,
              pinned=None):
        """Opens `name@version`; digests that are given must match.

        cache_bytes: of a cache of the rows that `prefetch` reads; 0: none. Rows that are mapped are not cached. host_cache: it
        is one of all processes of this user and tenant on this host; for tables with seals. pinned: a
        file of Table.dump_hot, whose n-grams are read with the first step or hint and stay in the cache.
        """
        return Table(self, name, spec_digest, content_digest, timeout, cache_bytes, host_cache, pinned)

    def close(self):
        """Closes the tables, then says goodbye to every node. Idempotent."""
        for table in list(self._tables):
            table.close()
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Table:
    """One version of a table; thread-safe.

    layers, columns, planes: named tuples; rows, row_bytes, lookback: numbers; digest: of the content; spec_digest, uid, name.
    """

    def __init__(self, pool, name, spec_digest, content_digest, timeout, cache_bytes=0, host_cache=False, pinned=None):
        options = _abi.TableOptions(expected_spec_digest=_text(spec_digest), expected_content_digest=_text(content_digest),
                                    open_timeout_ns=_ns(timeout))
        handle = c.c_void_p()
        with pool._handle as opener:
            check(library.engram_table_open(opener, _text(name), c.byref(options), c.byref(handle)))
            self._handle = Handle(f"table {name}", handle, library.engram_table_close, parent=pool._handle)
        self._pool = pool
        self._cache = {"cache_bytes": cache_bytes, "host_cache": int(bool(host_cache)),
                       "pinned_file": os.fsencode(pinned) if pinned is not None else None}
        self._prefetcher_lock, self._prefetcher = threading.Lock(), None
        weakref.finalize(self, self._handle.close)
        pool._tables.add(self)
        self._describe()

    def _get(self, function, struct, *arguments):
        self._call(function, *arguments, c.byref(struct))
        return struct

    def _call(self, function, *arguments, **attributes):
        with self._handle as handle:
            check(function(handle, *arguments), **attributes)

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

    def read_rows(self, rows, *, layer=None, out=None, timeout=None):
        """uint8 [n, row_bytes]. Row numbers of the whole table, or of one layer's own table; negative = zeros.

        Raises Unavailable, DeadlineExceeded or DataLoss when rows failed; the exception then carries `rows` (failed ones
        poisoned) and `row_status` (uint8 [n]: 0 good, 1 failed, 2 timed out, 3 corrupt, 4 skipped).
        """
        wanted = ids(rows, "rows")
        result = output(out, (wanted.size, self.row_bytes))
        status = np.zeros(wanted.size, np.uint8)
        request = _abi.Rows(ids=pointer(wanted), count=wanted.size, id_type=1, layer_index=self._layer_index(layer))
        self._call(library.engram_table_read_rows, c.byref(request), pointer(result), result.nbytes, pointer(status),
                   _ns(timeout), rows=result, row_status=status)
        return result

    def read(self, tokens, *, dead=None, lookback=(), lookback_dead=None, out=None, timeout=None):
        """uint8 [T, layers, columns, row_bytes]: the rows of every position. Errors as in read_rows."""
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        shape = (arguments.tokens.size, len(self.layers), self._columns_per_layer)
        result = output(out, shape + (self.row_bytes,))
        status = np.zeros(shape, np.uint8)
        self._call(library.engram_table_read_tokens, c.byref(arguments.struct), pointer(result), result.nbytes,
                   pointer(status), _ns(timeout), rows=result, row_status=status)
        return result

    def addresses(self, tokens, dead=None, lookback=(), lookback_dead=None):
        """int64 [T, layers, columns]: rows of each layer's own table."""
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        result = np.empty((arguments.tokens.size, len(self.layers), self._columns_per_layer), np.int64)
        self._call(library.engram_table_addresses, c.byref(arguments.struct), pointer(result), result.size)
        return result

    def prefetch(self, tokens, *, out=None, dead=None, lookback=(), lookback_dead=None, kind="decode", needed_in=None,
                 timeout=None):
        """Starts the reads of all layers at once; returns a Step whose rows are uint8 [T, layers, columns, row_bytes].

        kind: "decode", "verify" or "prefill" (served after the others). needed_in: {layer: seconds}; a layer that is not
        there by then is late, and another replica is asked as well. timeout: of the step, in seconds (1). Raises
        ResourceExhausted when 64 steps are open: close some.
        """
        if kind not in KINDS:
            raise InvalidArgument(f"kind is {kind!r}; the kinds are {sorted(KINDS)}")
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        result = output(out, (arguments.tokens.size, len(self.layers), self._columns_per_layer, self.row_bytes))
        needed = _needed_in(needed_in, self.layers)
        request = _abi.Step(kind=KINDS[kind], tokens=c.addressof(arguments.struct), out=pointer(result),
                            out_bytes=result.nbytes, needed_in_ns=c.addressof(needed) if needed is not None else None,
                            timeout_ns=_ns(timeout))
        return Step(self, self._steps(), request, result, timeout, (arguments, needed))

    def hint(self, tokens, *, dead=None, lookback=(), lookback_dead=None):
        """The tokens' rows may be wanted soon: they are cached while no step is under way. Returns how many rows were not
        dropped at once; 0 without cache_bytes and where rows are mapped."""
        arguments = _TokenArguments(tokens, dead, lookback, lookback_dead)
        return self._hint(library.engram_prefetcher_hint_tokens, arguments.struct)

    def hint_rows(self, rows, *, layer=None):
        """As hint, by row numbers as read_rows takes them."""
        wanted = ids(rows, "rows")
        return self._hint(library.engram_prefetcher_hint, _abi.Rows(ids=pointer(wanted), count=wanted.size, id_type=1,
                                                                    layer_index=self._layer_index(layer)))

    def _hint(self, function, request):
        taken = c.c_uint64()
        with self._steps() as handle:
            check(function(handle, c.byref(request), c.byref(taken)))
        return taken.value

    def dump_hot(self, file, max_ngrams=100_000):
        """Writes the n-grams that the cache gave most often to a text file, for `pinned` of a later Pool.table."""
        with self._steps() as handle:
            check(library.engram_dump_hot(handle, os.fsencode(file), max_ngrams))

    def _steps(self):
        """The handle of the table's prefetcher, opened with the first step."""
        with self._prefetcher_lock:
            if self._prefetcher is None:
                handle = c.c_void_p()
                with self._handle as table:
                    options = _abi.PrefetcherOptions(steps=64, poller=1, **self._cache)
                    check(library.engram_prefetcher_open(table, c.byref(options), c.byref(handle)))
                    self._prefetcher = Handle(f"the prefetcher of table {self.name}", handle,
                                              library.engram_prefetcher_close, parent=self._handle)
                weakref.finalize(self, self._prefetcher.close)
            return self._prefetcher

    def stats(self):
        """Totals since the table was opened, by name."""
        stats = self._get(library.engram_table_get_stats, _abi.Stats())
        return {name: getattr(stats, name) for name in _abi.Stats.COUNTERS}

    def close(self):
        """Idempotent; reads under way on other threads end first, steps that are open are cancelled."""
        with self._prefetcher_lock:
            if self._prefetcher is not None:
                self._prefetcher.close()
        self._handle.close()


def connect(endpoint=None, **options):
    """Connects to a pool: "host:port", a list of them, or nothing for the current context.

    Options: client_name, tenant, fabric ("mapped", "stream", "ofi", "ucx"), timeout in seconds. "ofi" takes the libfabric provider
    that ENGRAM_OFI_PROVIDER names (tcp;ofi_rxm) at the address ENGRAM_OFI_HOST (127.0.0.1); "ucx" the transports
    that ENGRAM_UCX_TLS names (UCX chooses) on the devices ENGRAM_UCX_DEVICES (lo).
    """
    return Pool(endpoint, **options)
