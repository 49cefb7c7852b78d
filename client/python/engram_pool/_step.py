"""Step: rows on their way, waited for layer by layer. Made by Table.prefetch."""
import asyncio
import ctypes as c
import time
import weakref

from . import _abi
from ._abi import check, library
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

    The step keeps its output alive; `close`, or the end of the object, cancels what is pending first.
    """

    def __init__(self, table, prefetcher, request, rows, timeout, keep):
        self.rows = rows
        self._table, self._prefetcher, self._keep = table, prefetcher, keep
        ticket = c.c_uint64()
        with prefetcher as handle:
            check(library.engram_prefetcher_submit(handle, c.byref(request), c.byref(ticket)))
        self._ticket = ticket.value
        self._end = time.monotonic() + (timeout if timeout is not None else 1.0)
        self._finalizer = weakref.finalize(self, _release, prefetcher, ticket.value, rows)

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
        return all(self.state(x.layer) != "pending" for x in self._table.layers)

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
        return self._table._layer_index(layer)

    def _poll(self, layer):
        state, late = c.c_int(), c.c_int()
        with self._prefetcher as handle:
            check(library.engram_prefetcher_poll(handle, self._ticket, self._index(layer), c.byref(state), c.byref(late)))
        return state.value, late.value


def _release(prefetcher, ticket, rows):
    """`rows` is here so that the memory outlives the reads."""
    try:
        with prefetcher as handle:
            library.engram_prefetcher_release(handle, ticket)
    except _abi._errors.EngramError:
        pass  # the table was closed, or this is a forked child: nothing lands any more
