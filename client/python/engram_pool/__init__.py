"""Client of the Engram memory pool.

    pool = engram_pool.connect("127.0.0.1:7700")
    table = pool.table("deepseek-v4.1@1")
    rows = table.read([22898, 19737, 270])  # uint8 [3, layers, columns, row_bytes]
"""
from ._abi import library as _library
from ._errors import (DataLoss, DeadlineExceeded, EngramError, FailedPrecondition, Internal, InvalidArgument, NotFound,
                      PermissionDenied, ResourceExhausted, Unavailable)
from ._layout import Destination, Layout, PlanePlace, Slot
from ._log import set_log
from ._pool import Pool, connect, metrics
from ._step import Step
from ._table import Table
from ._version import Column, Layer, Plane

__version__ = _library.engram_version().decode()
__all__ = ["Column", "DataLoss", "DeadlineExceeded", "Destination", "EngramError", "FailedPrecondition", "Internal", "InvalidArgument",
           "Layer", "Layout", "NotFound", "PermissionDenied", "Plane", "PlanePlace", "Pool", "ResourceExhausted", "Slot", "Step", "Table",
           "Unavailable", "connect", "metrics", "set_log"]
