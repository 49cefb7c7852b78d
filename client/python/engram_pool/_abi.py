"""client/include/engram/engram.h as ctypes: structs, prototypes, and status -> exception."""
import ctypes as c
import os
import pathlib

from . import _errors


class Sized(c.Structure):
    """A struct of the ABI that starts with its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(type(self)), **fields)


LogFunction = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


class PoolOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("endpoints", c.c_char_p), ("client_name", c.c_char_p),
                ("tenant", c.c_char_p), ("fabric", c.c_char_p), ("connect_timeout_ns", c.c_uint64),
                ("spin_ns", c.c_uint64)]


class TlsFiles(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("cert", c.c_char_p), ("key", c.c_char_p), ("ca", c.c_char_p)]


class TableOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("expected_spec_digest", c.c_char_p),
                ("expected_content_digest", c.c_char_p), ("open_timeout_ns", c.c_uint64)]


class TableInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("version", c.c_char_p), ("table_uid", c.c_char_p),
                ("spec_digest", c.c_char_p), ("content_digest", c.c_char_p), ("rows", c.c_uint64),
                ("layers", c.c_uint32), ("columns_per_layer", c.c_uint32), ("row_bytes", c.c_uint32),
                ("planes", c.c_uint32), ("lookback", c.c_uint32), ("reserved", c.c_uint32)]


class LayerInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("layer", c.c_uint32), ("reserved", c.c_uint32),
                ("first_row", c.c_uint64), ("rows", c.c_uint64)]


class ColumnInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("layer", c.c_uint32), ("order", c.c_uint32), ("head", c.c_uint32),
                ("reserved", c.c_uint32), ("first_row", c.c_uint64), ("rows", c.c_uint64)]


class PlaneInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_char_p), ("offset", c.c_uint32),
                ("bytes", c.c_uint32)]


class Tokens(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("tokens", c.c_void_p), ("count", c.c_size_t), ("dead", c.c_void_p),
                ("lookback", c.c_void_p), ("lookback_count", c.c_size_t), ("lookback_dead", c.c_void_p)]


class Rows(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("ids", c.c_void_p), ("count", c.c_size_t), ("id_type", c.c_uint32),
                ("layer_index", c.c_int32)]


class PrefetcherOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("steps", c.c_uint32), ("max_step_rows", c.c_uint32),
                ("poller", c.c_uint32), ("check_memory", c.c_uint32), ("cache_bytes", c.c_uint64),
                ("pinned_file", c.c_char_p), ("host_cache", c.c_uint32), ("reserved", c.c_uint32)]


class Layout(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("max_tokens", c.c_uint32), ("order", c.c_uint32), ("split_planes", c.c_uint32),
                ("first_column", c.c_uint32), ("columns", c.c_uint32), ("column_step", c.c_uint32)]


class LayoutInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("bytes", c.c_size_t), ("layer_stride", c.c_size_t), ("offset", c.c_size_t),
                ("token_stride", c.c_size_t), ("column_stride", c.c_size_t), ("plane_bytes", c.c_uint32),
                ("planes", c.c_uint32), ("layers", c.c_uint32), ("columns", c.c_uint32)]


class LayerRows(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("ids", c.c_void_p), ("runs", c.c_size_t), ("id_stride", c.c_size_t),
                ("columns", c.c_uint32), ("id_type", c.c_uint32), ("layer_index", c.c_int32), ("reserved", c.c_uint32),
                ("out", c.c_void_p), ("out_bytes", c.c_size_t), ("row_stride", c.c_size_t), ("run_stride", c.c_size_t),
                ("needed_in_ns", c.c_uint64), ("column_id_stride", c.c_size_t)]


class Step(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("kind", c.c_uint32), ("layers", c.c_uint32), ("tokens", c.c_void_p),
                ("out", c.c_void_p), ("out_bytes", c.c_size_t), ("needed_in_ns", c.c_void_p),
                ("layer_rows", c.c_void_p), ("timeout_ns", c.c_uint64), ("layout", c.c_void_p),
                ("destination", c.c_uint64), ("table_uid", c.c_char_p), ("slot", c.c_uint32), ("fail_bad_ids", c.c_uint32)]


class SlotOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("layout", c.c_void_p), ("out", c.c_void_p), ("out_bytes", c.c_size_t),
                ("destination", c.c_uint64)]


class Stats(Sized):
    COUNTERS = ("rows_ok", "rows_failed", "rows_skipped", "rows_duplicate", "rows_retried", "seal_failures",
                "bytes_read", "batches", "rows_mapped", "rows_stream", "rows_ofi", "layers_ready", "layers_failed",
                "layers_cancelled", "layers_late", "rows_late", "hedges_started", "hedges_won", "rows_joined",
                "leases_expired", "peers_abandoned", "cache_hits", "cache_misses", "cache_evictions", "cache_bytes",
                "rows_hinted", "tenant_budget_rows_per_second", "tenant_rows_per_second")
    _fields_ = [("struct_size", c.c_size_t)] + [(name, c.c_uint64) for name in COUNTERS]


def _open(given):
    path = pathlib.Path(given) if given else pathlib.Path(__file__).with_name("libengram.so")
    source = "ENGRAM_LIBRARY names it" if given else "the wheel carries it"
    advice = "install the package with `pip install ./client/python`, or set ENGRAM_LIBRARY to the path of libengram.so"
    if not path.is_file():
        raise ImportError(f"engram_pool needs libengram.so, but {path} is not there ({source}); {advice}")
    try:
        # Local symbols: another gRPC or protobuf in this process stays apart.
        return c.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise ImportError(f"engram_pool cannot load {path} ({source}): {error}; {advice}") from error


def _load():
    library = _open(os.environ.get("ENGRAM_LIBRARY"))
    handle, out = c.c_void_p, c.POINTER(c.c_void_p)
    prototypes = {
        "engram_version": (c.c_char_p, []),
        "engram_last_error": (c.c_char_p, []),
        "engram_set_log": (None, [LogFunction, c.c_void_p]),
        "engram_metrics": (c.c_int, [c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t)]),
        "engram_pool_open": (c.c_int, [c.POINTER(PoolOptions), out]),
        "engram_pool_open_tls": (c.c_int, [c.POINTER(PoolOptions), c.POINTER(TlsFiles), out]),
        "engram_pool_close": (None, [handle]),
        "engram_table_open": (c.c_int, [handle, c.c_char_p, c.POINTER(TableOptions), out]),
        "engram_table_close": (None, [handle]),
        "engram_table_get_info": (c.c_int, [handle, c.POINTER(TableInfo)]),
        "engram_table_get_layer": (c.c_int, [handle, c.c_uint32, c.POINTER(LayerInfo)]),
        "engram_table_get_column": (c.c_int, [handle, c.c_uint32, c.POINTER(ColumnInfo)]),
        "engram_table_get_plane": (c.c_int, [handle, c.c_uint32, c.POINTER(PlaneInfo)]),
        "engram_table_addresses": (c.c_int, [handle, c.POINTER(Tokens), c.c_void_p, c.c_size_t]),
        "engram_table_read_rows": (c.c_int, [handle, c.POINTER(Rows), c.c_void_p, c.c_size_t, c.c_void_p, c.c_uint64]),
        "engram_table_read_tokens": (c.c_int, [handle, c.POINTER(Tokens), c.c_void_p, c.c_size_t, c.c_void_p,
                                               c.c_uint64]),
        "engram_table_get_stats": (c.c_int, [handle, c.POINTER(Stats)]),
        "engram_prefetcher_open": (c.c_int, [handle, c.POINTER(PrefetcherOptions), out]),
        "engram_prefetcher_close": (None, [handle]),
        "engram_prefetcher_add_slot": (c.c_int, [handle, c.POINTER(SlotOptions), c.POINTER(c.c_uint32)]),
        "engram_prefetcher_submit": (c.c_int, [handle, c.POINTER(Step), c.POINTER(c.c_uint64)]),
        "engram_prefetcher_wait": (c.c_int, [handle, c.c_uint64, c.c_int32, c.c_uint64]),
        "engram_prefetcher_poll": (c.c_int, [handle, c.c_uint64, c.c_uint32, c.POINTER(c.c_int), c.POINTER(c.c_int)]),
        "engram_prefetcher_cancel": (c.c_int, [handle, c.c_uint64, c.c_int32]),
        "engram_prefetcher_release": (c.c_int, [handle, c.c_uint64]),
        "engram_prefetcher_hint": (c.c_int, [handle, c.POINTER(Rows), c.POINTER(c.c_uint64)]),
        "engram_prefetcher_hint_tokens": (c.c_int, [handle, c.POINTER(Tokens), c.POINTER(c.c_uint64)]),
        "engram_dump_hot": (c.c_int, [handle, c.c_char_p, c.c_uint64]),
        "engram_prefetcher_row_status": (c.c_int, [handle, c.c_uint64, c.c_uint32, c.c_void_p, c.c_size_t, c.c_void_p]),
        "engram_table_get_layout": (c.c_int, [handle, c.POINTER(Layout), c.c_uint32, c.POINTER(LayoutInfo)]),
        "engram_table_register_destination": (c.c_int, [handle, c.c_void_p, c.c_size_t, c.POINTER(c.c_uint64)]),
        "engram_table_unregister_destination": (c.c_int, [handle, c.c_uint64]),
        "engram_table_pending": (c.c_int, [handle, c.c_char_p, c.c_size_t]),
        "engram_table_pending_fd": (c.c_int, [handle, c.POINTER(c.c_int)]),
        "engram_table_adopt": (c.c_int, [handle, c.POINTER(TableOptions), out]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{library._name} has no {name}: it is another version of libengram.so than this package needs; "
                              "install them together with `pip install ./client/python`")
        function.restype, function.argtypes = result, arguments
    return library


library = _load()


def check(status, **attributes):
    """Raises the exception of a status that is not OK; `attributes` are set on it where rows were read and some failed."""
    if status == 0:
        return
    error = _errors.BY_STATUS.get(status, _errors.Internal)(library.engram_last_error().decode(errors="replace"))
    if isinstance(error, _errors.SOME_ROWS_FAILED):
        for name, value in attributes.items():
            setattr(error, name, value)
    raise error
