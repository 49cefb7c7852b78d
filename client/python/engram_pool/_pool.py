"""Pool: a connection, and the tables that it opens. ctypes releases the GIL around every call."""
import ctypes as c
import math
import os
import weakref

from . import _abi
from ._abi import check, library
from ._arguments import nanoseconds, text
from ._errors import ResourceExhausted
from ._handle import Handle
from ._table import Table

NEVER_BLOCK = 2**64 - 1


class Pool:
    """A connection to a pool; thread-safe. Use `connect`."""

    def __init__(self, endpoint=None, *, client_name=None, tenant=None, fabric=None, timeout=None, spin=None,
                 tls_cert=None, tls_key=None, tls_ca=None):
        endpoints = ",".join(endpoint) if isinstance(endpoint, (list, tuple)) else endpoint
        options = _abi.PoolOptions(endpoints=text(endpoints), client_name=text(client_name), tenant=text(tenant),
                                   fabric=text(fabric), connect_timeout_ns=nanoseconds(timeout),
                                   spin_ns=NEVER_BLOCK if spin == math.inf else nanoseconds(spin, "spin"))
        tls = _abi.TlsFiles(cert=text(tls_cert), key=text(tls_key), ca=text(tls_ca))
        handle = c.c_void_p()
        check(library.engram_pool_open_tls(c.byref(options), c.byref(tls), c.byref(handle)))
        self._handle = Handle(f"the pool at {endpoints or 'the current context'}", handle, library.engram_pool_close)
        self._tables = weakref.WeakSet()
        weakref.finalize(self, self._handle.close)

    def table(self, name, *, spec_digest=None, content_digest=None, timeout=None, cache_bytes=0, host_cache=False,
              pinned=None, poller=True):
        """Opens `name@version` or `name@alias`; digests that are given must match.

        cache_bytes: of a cache of the rows that `prefetch` reads; 0: none. Rows that are mapped are not cached. host_cache: it
        is one of all processes of this user and tenant on this host; for tables with seals. pinned: a
        file of Table.dump_hot, whose n-grams are read with the first step or hint and stay in the cache. poller: a thread of
        the library serves the steps; else the threads that wait for a step, or ask for its state, do.
        """
        prefetcher = {"cache_bytes": cache_bytes, "host_cache": int(bool(host_cache)), "poller": int(bool(poller)),
                      "pinned_file": os.fsencode(pinned) if pinned is not None else None}
        return Table(self, name, spec_digest, content_digest, timeout, prefetcher)

    def close(self):
        """Closes the tables, then says goodbye to every node. Idempotent."""
        for table in list(self._tables):
            table.close()
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def metrics():
    """What every open table of this process has read, as Prometheus text, for an engine that serves it beside its own."""
    needed = c.c_size_t()
    while True:
        check(library.engram_metrics(None, 0, c.byref(needed)))
        out = c.create_string_buffer(needed.value + needed.value // 4)
        try:
            check(library.engram_metrics(out, len(out), c.byref(needed)))
            return out.value.decode()
        except ResourceExhausted:  # a table was opened meanwhile
            pass


def connect(endpoint=None, **options):
    """Connects to a pool: "host:port", a list of them, or nothing for the current context.

    Options: client_name, tenant, fabric ("mapped", "stream", "ofi", "ucx"), timeout in seconds; spin: data-plane waits spin for
    so many seconds (50e-6), then block; math.inf: they never do. "ofi" takes the libfabric provider
    that ENGRAM_OFI_PROVIDER names (tcp;ofi_rxm) at the address ENGRAM_OFI_HOST (127.0.0.1); "ucx" the transports
    that ENGRAM_UCX_TLS names (UCX chooses) on the devices ENGRAM_UCX_DEVICES (lo). tls_cert, tls_key, tls_ca: PEM files, or
    ENGRAM_TLS_CERT, ENGRAM_TLS_KEY, ENGRAM_TLS_CA; with them the tenant is that of the certificate.
    """
    return Pool(endpoint, **options)
