"""Table: NumPy in, NumPy out."""
import asyncio
import ctypes as c
import os
import weakref

import numpy as np

from . import _abi
from ._abi import check, library
from ._arguments import RowArguments, TokenArguments, nanoseconds, text
from ._buffers import ids, memory, output, pointer
from ._errors import InvalidArgument
from ._layout import Destination, Layout, Slot
from ._step import KINDS, Step
from ._step import needed_in as _needed_in
from ._version import Version

NAME_BYTES = 128


class Table:
    """A table, at one version at a time; thread-safe.

    name, uid, digest (of the content), spec_digest; layers, columns, planes: named tuples; rows, row_bytes, lookback: numbers.
    A table that was opened by an alias stays at its version until `adopt`.
    """

    def __init__(self, pool, name, spec_digest, content_digest, timeout, prefetcher):
        options = _abi.TableOptions(expected_spec_digest=text(spec_digest), expected_content_digest=text(content_digest),
                                    open_timeout_ns=nanoseconds(timeout))
        self._asked, self._pool, self._prefetcher_options = name, pool, prefetcher
        handle = c.c_void_p()
        with pool._handle as opener:
            check(library.engram_table_open(opener, text(name), c.byref(options), c.byref(handle)))
            version = Version(handle, f"table {name}", pool._handle, prefetcher)
        self._finalizer = None
        self._take(version)
        pool._tables.add(self)

    def _take(self, version):
        self._version, self._handle = version, version.handle
        self.name, self.uid, self.digest, self.spec_digest = version.name, version.uid, version.digest, version.spec_digest
        self.rows, self.row_bytes, self.lookback = version.rows, version.row_bytes, version.lookback
        self.layers, self.columns, self.planes = version.layers, version.columns, version.planes
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, version.retire)

    @property
    def pending(self):
        """"name@version" that the alias names now, if the table was opened by one and it is another version; else None."""
        name = c.create_string_buffer(NAME_BYTES)
        self._version.call(library.engram_table_pending, name, NAME_BYTES)
        return name.value.decode() or None

    async def moved(self):
        """Returns `pending` as soon as something is; no thread waits and nothing is asked over the network meanwhile."""
        loop = asyncio.get_running_loop()
        while (name := self.pending) is None:
            fd, ready = c.c_int(), loop.create_future()
            self._version.call(library.engram_table_pending_fd, c.byref(fd))
            own = os.dup(fd.value)  # others may wait, too, and the table may be closed
            loop.add_reader(own, lambda ready=ready: ready.done() or ready.set_result(None))
            try:
                await ready
            finally:
                loop.remove_reader(own)
                os.close(own)
        return name

    def adopt(self, *, spec_digest=None, content_digest=None, timeout=None):
        """Goes over to what is pending, between two steps; False if nothing is.

        Steps that are open go on reading the old version, which is closed with the last of them. A version with another
        spec digest is refused (FailedPrecondition) unless `spec_digest` names it. Layouts and destinations are the old
        version's: make them anew.
        """
        if self.pending is None:
            return False
        options = _abi.TableOptions(expected_spec_digest=text(spec_digest), expected_content_digest=text(content_digest),
                                    open_timeout_ns=nanoseconds(timeout))
        handle, old = c.c_void_p(), self._version
        old.call(library.engram_table_adopt, c.byref(options), c.byref(handle))
        self._take(Version(handle, f"table {self._asked}", self._pool._handle, self._prefetcher_options))
        old.retire()
        return True

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
        self._version.call(library.engram_table_read_rows, c.byref(request), pointer(result), result.nbytes, pointer(status),
                           nanoseconds(timeout), rows=result, row_status=status)
        return result

    def read(self, tokens, *, dead=None, lookback=(), lookback_dead=None, out=None, timeout=None):
        """uint8 [T, layers, columns, row_bytes]: the rows of every position. Errors as in read_rows."""
        arguments = TokenArguments(tokens, dead, lookback, lookback_dead)
        shape = (arguments.tokens.size, len(self.layers), self._version.columns_per_layer)
        result = output(out, shape + (self.row_bytes,))
        status = np.zeros(shape, np.uint8)
        self._version.call(library.engram_table_read_tokens, c.byref(arguments.struct), pointer(result), result.nbytes,
                           pointer(status), nanoseconds(timeout), rows=result, row_status=status)
        return result

    def addresses(self, tokens, dead=None, lookback=(), lookback_dead=None):
        """int64 [T, layers, columns]: rows of each layer's own table."""
        arguments = TokenArguments(tokens, dead, lookback, lookback_dead)
        result = np.empty((arguments.tokens.size, len(self.layers), self._version.columns_per_layer), np.int64)
        self._version.call(library.engram_table_addresses, c.byref(arguments.struct), pointer(result), result.size)
        return result

    def layout(self, max_tokens, *, order="token", split=False, columns=None):
        """Where the rows of a step land: a block a layer of [token][column] (or order="column": [column][token]) rows.

        split: values and scales in arrays of their own. columns: a range or slice of those of each layer, side by side or in
        steps: rank r of n takes range(r, 24, n).
        """
        return Layout(self._version, max_tokens, order, split, columns)

    def register(self, buffer):
        """Registers memory that steps land in (NumPy, torch, DLPack, buffer protocol; aligned to 16 bytes): a Destination."""
        return Destination(self._version, buffer)

    def slot(self, layout, *, out=None, destination=None):
        """A place for the `slot` of prefetch and prefetch_rows: memory of layout.bytes (new, `out`, or that of the destination)."""
        return Slot(self._version, layout, out, destination)

    def prefetch(self, tokens, *, out=None, dead=None, lookback=(), lookback_dead=None, kind="decode", needed_in=None,
                 timeout=None, layout=None, destination=None, slot=None):
        """Starts the reads of all layers at once; returns a Step whose rows are uint8 [T, layers, columns, row_bytes].

        kind: "decode", "verify" or "prefill" (served after the others). needed_in: {layer: seconds}; a layer that is not
        there by then is late, and another replica is asked as well. timeout: of the step, in seconds (1). layout: rows land
        as it says in `out`, which has layout.bytes. destination: a Destination that holds `out`, or is it. slot: a Slot, in
        place of these three. Raises ResourceExhausted when 64 steps are open, or the slot's last one is: close some.
        """
        arguments = TokenArguments(tokens, dead, lookback, lookback_dead)
        needed = _needed_in(needed_in, self.layers)
        result, rows, place = self._place(out, layout, destination, slot, arguments.tokens.size, self._version.columns_per_layer)
        request = self._request(kind, timeout, place)
        request.tokens = c.addressof(arguments.struct)
        request.needed_in_ns = c.addressof(needed) if needed is not None else None
        return Step(self._version, [x.layer for x in self.layers], request, rows, timeout, result)

    def prefetch_rows(self, rows, *, out=None, kind="decode", needed_in=None, timeout=None, layout=None, destination=None,
                      slot=None, fail_bad_ids=False):
        """As prefetch, by row ids [T, layers, columns] of each layer's own table; int32 or int64, any strides; -1 = zeros.

        With a layout, the ids are those of all columns, of which it takes its own. Without, there may be any number of
        columns, and the step's rows are uint8 [T, layers, columns, row_bytes]. An id beyond its layer raises
        InvalidArgument here; with fail_bad_ids only its row fails, poisoned and marked, and `wait` raises it.
        """
        needed = _needed_in(needed_in, self.layers)
        arguments = RowArguments(rows, range(len(self.layers)), needed)
        result, rows, place = self._place(out, layout, destination, slot, arguments.tokens, arguments.columns)
        request = self._request(kind, timeout, place)
        request.fail_bad_ids = int(bool(fail_bad_ids))
        if layout is None and slot is None:
            arguments.land(result, self.row_bytes)
            request.out, request.out_bytes = None, 0
        request.layer_rows, request.layers = c.addressof(arguments.array), len(arguments.array)
        return Step(self._version, [x.layer for x in self.layers], request, rows, timeout, result)

    def hint(self, tokens, *, dead=None, lookback=(), lookback_dead=None):
        """The tokens' rows may be wanted soon: they are cached while no step is under way. Returns how many rows were not
        dropped at once; 0 without cache_bytes and where rows are mapped."""
        arguments = TokenArguments(tokens, dead, lookback, lookback_dead)
        return self._hint(library.engram_prefetcher_hint_tokens, arguments.struct)

    def hint_rows(self, rows, *, layer=None):
        """As hint, by row numbers as read_rows takes them."""
        wanted = ids(rows, "rows")
        return self._hint(library.engram_prefetcher_hint, _abi.Rows(ids=pointer(wanted), count=wanted.size, id_type=1,
                                                                    layer_index=self._layer_index(layer)))

    def _hint(self, function, request):
        taken = c.c_uint64()
        with self._version.prefetcher() as handle:
            check(function(handle, c.byref(request), c.byref(taken)))
        return taken.value

    def dump_hot(self, file, max_ngrams=100_000):
        """Writes the n-grams that the cache gave most often to a text file, for `pinned` of a later Pool.table."""
        with self._version.prefetcher() as handle:
            check(library.engram_dump_hot(handle, os.fsencode(file), max_ngrams))

    def _place(self, out, layout, destination, slot, tokens, columns):
        """The memory, how the caller sees its rows, and how the request says where they land."""
        if slot is not None:
            if any(given is not None for given in (out, layout, destination)):
                raise InvalidArgument("slot is given, and out, layout or destination, too: they are the slot's")
            if slot.version is not self._version:
                raise InvalidArgument(f"the slot is of {slot.version.name}, the table is {self.name} now: make its slots anew")
            return slot.memory, _rows(slot.layout, slot.memory, tokens), {"slot": slot.number}
        if out is None and destination is not None:
            out = destination.memory
        if layout is None:
            result = rows = output(out, (tokens, len(self.layers), columns, self.row_bytes))
        else:
            result = np.empty(layout.bytes, np.uint8) if out is None else memory(out, layout.bytes)
            rows = _rows(layout, result, tokens)
        return result, rows, {"out": pointer(result), "out_bytes": result.nbytes,
                              "layout": c.addressof(layout.struct) if layout is not None else None,
                              "destination": destination.number if destination is not None else 0}

    def _request(self, kind, timeout, place):
        if kind not in KINDS:
            raise InvalidArgument(f"kind is {kind!r}; the kinds are {sorted(KINDS)}")
        return _abi.Step(kind=KINDS[kind], timeout_ns=nanoseconds(timeout), table_uid=text(self.uid), **place)

    def stats(self):
        """Totals since the version was opened, by name."""
        stats = self._version.get(library.engram_table_get_stats, _abi.Stats())
        return {name: getattr(stats, name) for name in _abi.Stats.COUNTERS}

    def close(self):
        """Idempotent; reads under way on other threads end first, steps that are open are cancelled."""
        self._version.close()


def _rows(layout, memory, tokens):
    views = layout.views(memory, min(tokens, layout.max_tokens))
    return views[0] if len(views) == 1 else views
