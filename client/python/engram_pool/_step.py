"""Step: rows on their way, waited for layer by layer. Made by Table.prefetch."""
import asyncio
import ctypes as c
import time
import weakref

import numpy as np

from . import _abi
from ._abi import check, library
from ._buffers import pointer
from ._errors import DeadlineExceeded, InvalidArgument

KINDS = {"decode": 0, "verify": 1, "prefill": 2}
STATES = ("pending", "ready", "failed", "cancelled", "unknown")
NS_MOST = 2**63


def needed_in(needed, layers):
    """One time a layer, in nanoseconds (0: none), of {layer: seconds}; None for nothing."""
    if not needed:
        return None
    known = [x.layer for x in layers]
    unknown = [layer for layer in needed if layer not in known]
    if unknown:
        raise InvalidArgument(f"needed_in names layer {unknown[0]}; the layers are {known}")
    return (c.c_uint64 * len(known))(*(max(1, min(int(needed[x] * 1e9), NS_MOST)) if x in needed else 0 for x in known))


class Step:
    """The rows of one step. `rows` is the output: what `wait` has returned for is in place. Thread-safe.

    With a layout, `rows` is uint8 [layers, tokens, columns, row bytes], or, split, a tuple of one such array a plane.

    The step keeps its output alive; `close`, or the end of the object, cancels what is pending first.
    """

    def __init__(self, version, numbers, request, rows, timeout, keep):
        """`numbers`: the model's layer of each layer of the step. `keep`: the memory that the reads land in."""
        self.rows = rows
        self._numbers, self._prefetcher = numbers, version.prefetcher()
        ticket = c.c_uint64()
        with self._prefetcher as handle:
            check(library.engram_prefetcher_submit(handle, c.byref(request), c.byref(ticket)))
        version.begin_step()
        self._ticket = ticket.value
        self._end = time.monotonic() + (timeout if timeout is not None else 1.0)
        self._finalizer = weakref.finalize(self, _release, version, self._prefetcher, ticket.value, (rows, keep))

    def wait(self, layer=None, timeout=None):
        """Returns `rows` when the layer (None: every layer) is there.

        Raises DeadlineExceeded when it is not there after `timeout` seconds (None: the step's own); the reads go on until
        the step's. Raises Unavailable, DeadlineExceeded or DataLoss when rows failed: they are poisoned in `rows`.
        """
        if timeout is None:
            timeout = max(self._end - time.monotonic(), 0) + 1.0
        if not timeout >= 0:
            raise InvalidArgument(f"timeout is {timeout}; it must be a number of seconds, 0 or more")
        with self._prefetcher as handle:
            check(library.engram_prefetcher_wait(handle, self._ticket, self._index(layer),
                                                 max(1, min(int(timeout * 1e9), NS_MOST))), rows=self.rows)
        return self.rows

    def state(self, layer):
        """"pending", "ready", "failed", "cancelled", or "unknown" after close. Never blocks."""
        return STATES[self._poll(layer)[0]]

    def late(self, layer):
        """Whether the layer was not ready at its `needed_in` time."""
        return bool(self._poll(layer)[1])

    def done(self):
        """Whether no layer is pending."""
        return all(self.state(layer) != "pending" for layer in self._numbers)

    def row_status(self, layer):
        """uint8, one a row of a layer that is not pending: 0 good, 1 failed, 2 timed out, 3 corrupt, 4 skipped."""
        rows = c.c_size_t()
        with self._prefetcher as handle:
            library.engram_prefetcher_row_status(handle, self._ticket, self._index(layer), None, 0, c.byref(rows))
            status = np.empty(rows.value, np.uint8)
            check(library.engram_prefetcher_row_status(handle, self._ticket, self._index(layer), pointer(status), rows.value,
                                                       c.byref(rows)))
        return status

    def cancel(self, layer=None):
        """Ends the reads of the layer (None: of every layer) that are not there yet; their rows are poison."""
        with self._prefetcher as handle:
            check(library.engram_prefetcher_cancel(handle, self._ticket, self._index(layer)))

    def close(self):
        """Cancels what is pending and gives the step back. Idempotent."""
        self._finalizer()

    def __await__(self):
        return self._wait_async().__await__()

    async def _wait_async(self):
        pause = 20e-6
        while not self.done():
            if time.monotonic() > self._end + 1.0:
                raise DeadlineExceeded("the step is not there a second after its timeout")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1e-3)
        return self.wait(timeout=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _index(self, layer):
        if layer is None:
            return -1
        if layer not in self._numbers:
            raise InvalidArgument(f"the step has no layer {layer}; its layers are {list(self._numbers)}")
        return self._numbers.index(layer)

    def _poll(self, layer):
        state, late = c.c_int(), c.c_int()
        with self._prefetcher as handle:
            check(library.engram_prefetcher_poll(handle, self._ticket, self._index(layer), c.byref(state), c.byref(late)))
        return state.value, late.value


def _release(version, prefetcher, ticket, kept):
    """`kept` is the output: the memory outlives the reads."""
    try:
        with prefetcher as handle:
            library.engram_prefetcher_release(handle, ticket)
    except _abi._errors.EngramError:
        pass  # the table was closed, or this is a forked child: nothing lands any more
    version.end_step()
    del kept
