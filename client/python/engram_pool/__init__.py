"""Client of the Engram memory pool.

    pool = engram_pool.connect("127.0.0.1:7700")
    table = pool.table("deepseek-v4.1@1")
    rows = table.read([22898, 19737, 270])  # uint8 [3, layers, columns, row_bytes]
"""
from ._abi import library as _library
from ._errors import (DataLoss, DeadlineExceeded, EngramError, FailedPrecondition, Internal, InvalidArgument, NotFound,
                      PermissionDenied, ResourceExhausted, Unavailable)
from ._pool import Column, Layer, Plane, Pool, Table, connect
from ._step import Step

__version__ = _library.engram_version().decode()
__all__ = ["Column", "DataLoss", "DeadlineExceeded", "EngramError", "FailedPrecondition", "Internal", "InvalidArgument",
           "Layer", "NotFound", "PermissionDenied", "Plane", "Pool", "ResourceExhausted", "Step", "Table", "Unavailable", "connect"]
