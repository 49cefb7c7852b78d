"""The exceptions of the package: one a status of the C ABI."""


class EngramError(Exception):
    """Anything the pool or the library reports; the message names the thing, the value, the limit and the next step."""


class InvalidArgument(EngramError, ValueError):
    """The caller's mistake."""


class NotFound(EngramError, LookupError):
    """No such table, version, layer or column."""


class FailedPrecondition(EngramError):
    """A digest differs, a table is not ready, or this is a child that was forked while a pool was open."""


class Unavailable(EngramError):
    """The pool or a node cannot be reached; rows of it are poisoned and marked in `row_status`."""


class DeadlineExceeded(EngramError, TimeoutError):
    """Some rows were not there in time."""


class DataLoss(EngramError):
    """A row failed its seal on every replica."""


class ResourceExhausted(EngramError):
    """Memory, descriptors, or a bound of the library."""


class PermissionDenied(EngramError):
    """The pool refuses this client."""


class Internal(EngramError):
    """A bug of the library."""


BY_STATUS = {
    1: InvalidArgument,
    2: NotFound,
    3: FailedPrecondition,
    4: Unavailable,
    5: DeadlineExceeded,
    6: DataLoss,
    7: ResourceExhausted,
    8: PermissionDenied,
    9: Internal,
}

SOME_ROWS_FAILED = (Unavailable, DeadlineExceeded, DataLoss)
