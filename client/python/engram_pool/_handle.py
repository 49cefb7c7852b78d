"""A handle of the C ABI that may be closed while other threads use it: it is freed after its last use."""
import os
import threading

from ._errors import FailedPrecondition, InvalidArgument


class Handle:
    """Use it as a context manager around each call; `close` is idempotent and does not wait.

    `parent` is a handle that must outlive this one. In a forked child every use raises FailedPrecondition and `close`
    does nothing: the threads that serve the handle are the parent's. Thread-safe.
    """

    def __init__(self, what, pointer, free, parent=None):
        self._what, self._pointer, self._free, self._parent = what, pointer, free, parent
        self._lock = threading.Lock()
        self._uses, self._closed, self._process = 0, False, os.getpid()
        if parent is not None:
            parent.__enter__()

    def __enter__(self):
        if os.getpid() != self._process:
            raise FailedPrecondition(f"{self._what} belongs to process {self._process}, the parent of this forked one: "
                                     "connect after the last fork, or start the process anew (spawn) instead of forking it")
        with self._lock:
            if self._closed:
                raise InvalidArgument(f"{self._what} is closed: open it again")
            self._uses += 1
        return self._pointer

    def __exit__(self, *_):
        with self._lock:
            self._uses -= 1
            last = self._closed and self._uses == 0
        if last:
            self._release()

    @property
    def closed(self):
        return self._closed

    def close(self):
        if os.getpid() != self._process:
            return
        with self._lock:
            first, self._closed = not self._closed, True
            idle = self._uses == 0
        if first and idle:
            self._release()

    def _release(self):
        self._free(self._pointer)
        if self._parent is not None:
            self._parent.__exit__()
