"""What the caller gives, as structs of the C ABI and the arrays that these point to."""
import ctypes as c

import numpy as np

from . import _abi
from ._buffers import flags, ids, pointer, row_ids
from ._errors import InvalidArgument


def nanoseconds(seconds, name="timeout"):
    if seconds is None:
        return 0
    if not seconds > 0:
        raise InvalidArgument(f"{name} is {seconds}; it must be a number of seconds above 0")
    return max(1, min(int(seconds * 1e9), 2**63))


def text(value):
    return value.encode() if value is not None else None


class TokenArguments:
    """Keeps the arrays alive that a Tokens struct points to."""

    def __init__(self, tokens, dead, lookback, lookback_dead):
        self.tokens = ids(tokens, "tokens")
        self.lookback = ids(lookback, "lookback")
        self.dead = flags(dead, self.tokens.size, "dead")
        self.lookback_dead = flags(lookback_dead, self.lookback.size, "lookback_dead")
        self.struct = _abi.Tokens(tokens=pointer(self.tokens), count=self.tokens.size, dead=pointer(self.dead),
                                  lookback=pointer(self.lookback), lookback_count=self.lookback.size,
                                  lookback_dead=pointer(self.lookback_dead))


class RowArguments:
    """The LayerRows of ids [token, layer, column], rows of each layer's own table; negative ids are skipped."""

    def __init__(self, rows, layers, needed):
        self.ids = row_ids(rows, 3)
        self.tokens, given, self.columns = self.ids.shape
        if given != len(layers):
            raise InvalidArgument(f"rows has shape {self.ids.shape}; it is [tokens, {len(layers)} layers, columns]")
        token, layer, column = (stride // self.ids.itemsize for stride in self.ids.strides)
        self.array = (_abi.LayerRows * given)()
        for index, entry in enumerate(self.array):
            entry.struct_size = c.sizeof(_abi.LayerRows)
            entry.ids = self.ids.ctypes.data + index * layer * self.ids.itemsize if self.ids.size else None
            entry.runs, entry.columns = self.tokens, self.columns
            # 0 has a meaning of its own; of one run, or one column, the stride does not matter.
            entry.id_stride, entry.column_id_stride = max(token, 1), max(column, 1)
            entry.id_type = int(self.ids.dtype == np.int64)
            entry.layer_index = layers[index]
            entry.needed_in_ns = needed[index] if needed is not None else 0

    def land(self, out, row_bytes):
        """`out` is [token, layer, column, row bytes]."""
        for index, entry in enumerate(self.array):
            entry.out = out.ctypes.data + index * out.strides[1] if out.size else None
            entry.out_bytes = max(out.nbytes - index * out.strides[1], 0)
            entry.row_stride, entry.run_stride = row_bytes, out.strides[0]
