"""Where the rows of a step land: Layout, Slot and Destination, made by Table.layout, slot and register."""
import ctypes as c
import weakref
from collections import namedtuple

import numpy as np

from . import _abi
from ._abi import check, library
from ._buffers import memory, pointer
from ._errors import EngramError, InvalidArgument

ORDERS = {"token": 0, "column": 1}
PlanePlace = namedtuple("PlanePlace", "offset layer_stride token_stride column_stride bytes")


def _columns(columns, have):
    """(first, count, step) of None, a range, a slice or a sequence of column numbers."""
    if columns is None:
        return 0, 0, 1
    if isinstance(columns, slice):
        columns = range(have)[columns]
    numbers = [int(column) for column in columns]
    steps = {after - before for before, after in zip(numbers, numbers[1:])} or {1}
    if not numbers or len(steps) > 1 or min(steps) < 1 or numbers[0] < 0:
        raise InvalidArgument(f"columns are {numbers}; give columns of 0 to {have - 1} that rise in equal steps: range(first, end, step)")
    return numbers[0], len(numbers), steps.pop()


class Layout:
    """One block a layer of rows [token][column] ("token") or [column][token] ("column"), packed or one array a plane.

    bytes: of the whole destination; planes: of named tuples (offset, layer_stride, token_stride, column_stride, bytes).
    Immutable.
    """

    def __init__(self, version, max_tokens, order, split, columns):
        if order not in ORDERS:
            raise InvalidArgument(f"order is {order!r}; the orders are {sorted(ORDERS)}")
        first, count, step = _columns(columns, version.columns_per_layer)
        if not 0 < max_tokens < 2**32:
            raise InvalidArgument(f"max_tokens is {max_tokens}; it is 1 or more")
        self.struct = _abi.Layout(max_tokens=max_tokens, order=ORDERS[order], split_planes=int(bool(split)), first_column=first,
                                  columns=count, column_step=step)
        infos = [version.get(library.engram_table_get_layout, _abi.LayoutInfo(), c.byref(self.struct), 0)]
        infos += [version.get(library.engram_table_get_layout, _abi.LayoutInfo(), c.byref(self.struct), plane)
                  for plane in range(1, infos[0].planes)]
        self.bytes, self.max_tokens = infos[0].bytes, max_tokens
        self.columns = range(first, first + step * infos[0].columns, step)
        self.planes = tuple(PlanePlace(x.offset, x.layer_stride, x.token_stride, x.column_stride, x.plane_bytes) for x in infos)
        self._layers = infos[0].layers

    def views(self, buffer, tokens=None):
        """uint8 [layers, tokens, columns, plane bytes] of each plane over `buffer`; packed rows have one plane."""
        tokens = self.max_tokens if tokens is None else tokens
        whole = memory(buffer, self.bytes)
        return tuple(np.lib.stride_tricks.as_strided(
            whole[plane.offset:], (self._layers, tokens, len(self.columns), plane.bytes),
            (plane.layer_stride, plane.token_stride, plane.column_stride, 1)) for plane in self.planes)


class Slot:
    """A place that is checked once and used by one step after the other: its addresses never change. Made by Table.slot.

    memory: what the rows land in. Its steps are closed one before the next; it serves as long as its version is open.
    """

    def __init__(self, version, layout, out, destination):
        if out is None:
            out = destination.memory if destination is not None else np.empty(layout.bytes, np.uint8)
        self.memory, self.layout, self.version = memory(out, layout.bytes), layout, version
        options = _abi.SlotOptions(layout=c.addressof(layout.struct), out=pointer(self.memory), out_bytes=self.memory.nbytes,
                                   destination=destination.number if destination is not None else 0)
        number = c.c_uint32()
        with version.prefetcher() as handle:
            check(library.engram_prefetcher_add_slot(handle, c.byref(options), c.byref(number)))
        self.number = number.value


class Destination:
    """Memory that rows land in directly on every fabric. `close`, or the end of the object, unregisters it.

    Keeps the memory alive. Steps that use it are closed first: else `close` raises FailedPrecondition.
    """

    def __init__(self, version, buffer):
        self.memory = memory(buffer)
        number = c.c_uint64()
        version.call(library.engram_table_register_destination, pointer(self.memory), self.memory.nbytes, c.byref(number))
        self.number, self._version = number.value, version
        self._finalizer = weakref.finalize(self, _unregister, version, number.value, self.memory)

    def close(self):
        """Idempotent."""
        if self._finalizer.alive and not self._version.handle.closed:
            self._version.call(library.engram_table_unregister_destination, self.number)
        self._finalizer.detach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _unregister(version, number, kept):
    """`kept` is the memory: it outlives the registration."""
    try:
        with version.handle as handle:
            library.engram_table_unregister_destination(handle, number)
    except EngramError:
        pass  # the table was closed, and its destinations with it
    del kept
