from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

__version__: str
Ids = Union[Sequence[int], npt.NDArray[np.integer[Any]], Any]  # or anything with DLPack
Flags = Optional[Union[Sequence[bool], npt.NDArray[np.bool_]]]

class EngramError(Exception): ...
class InvalidArgument(EngramError, ValueError): ...
class NotFound(EngramError, LookupError): ...
class FailedPrecondition(EngramError): ...
class PermissionDenied(EngramError): ...
class ResourceExhausted(EngramError): ...
class Internal(EngramError): ...

class Unavailable(EngramError):
    rows: npt.NDArray[np.uint8]
    row_status: npt.NDArray[np.uint8]

class DeadlineExceeded(EngramError, TimeoutError):
    rows: npt.NDArray[np.uint8]
    row_status: npt.NDArray[np.uint8]

class DataLoss(EngramError):
    rows: npt.NDArray[np.uint8]
    row_status: npt.NDArray[np.uint8]

class Layer(NamedTuple):
    layer: int
    first_row: int
    rows: int

class Column(NamedTuple):
    layer: int
    order: int
    head: int
    first_row: int
    rows: int

class Plane(NamedTuple):
    name: str
    dtype: str
    offset: int
    bytes: int

class Table:
    name: str
    uid: str
    digest: str
    spec_digest: str
    rows: int
    row_bytes: int
    lookback: int
    layers: Tuple[Layer, ...]
    columns: Tuple[Column, ...]
    planes: Tuple[Plane, ...]
    def read_rows(self, rows: Ids, *, layer: Optional[int] = ..., out: Any = ..., timeout: Optional[float] = ...) -> npt.NDArray[np.uint8]: ...
    def read(self, tokens: Ids, *, dead: Flags = ..., lookback: Ids = ..., lookback_dead: Flags = ..., out: Any = ..., timeout: Optional[float] = ...) -> npt.NDArray[np.uint8]: ...
    def addresses(self, tokens: Ids, dead: Flags = ..., lookback: Ids = ..., lookback_dead: Flags = ...) -> npt.NDArray[np.int64]: ...
    def stats(self) -> Dict[str, int]: ...
    def close(self) -> None: ...

class Pool:
    def __init__(self, endpoint: Union[None, str, Sequence[str]] = ..., *, client_name: Optional[str] = ..., tenant: Optional[str] = ..., fabric: Optional[str] = ..., timeout: Optional[float] = ...) -> None: ...
    def table(self, name: str, *, spec_digest: Optional[str] = ..., content_digest: Optional[str] = ..., timeout: Optional[float] = ...) -> Table: ...
    def close(self) -> None: ...
    def __enter__(self) -> Pool: ...
    def __exit__(self, *exc: object) -> None: ...

def connect(endpoint: Union[None, str, Sequence[str]] = ..., *, client_name: Optional[str] = ..., tenant: Optional[str] = ..., fabric: Optional[str] = ..., timeout: Optional[float] = ...) -> Pool: ...
