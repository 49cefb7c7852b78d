"""The caller's arrays as the C ABI takes them: ids and flags in, a writable buffer out."""
import ctypes as c

import numpy as np

from ._errors import InvalidArgument

MAX_ID = 2**63 - 1
# DLPack's numbers of memory that this process can touch: host, and host or managed memory of CUDA and ROCm.
HOST_DEVICES = (1, 3, 11, 13)


def ids(values, name):
    """A one-dimensional contiguous int64 array of whatever holds integers (NumPy, buffer protocol, DLPack, lists)."""
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        array = _from_dlpack(values, name)
    else:
        array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidArgument(f"{name} is {array.dtype} with shape {array.shape}; give a one-dimensional array of integers, "
                              f"none above {MAX_ID}")
    if array.dtype == np.uint64 and array.size and array.max() > MAX_ID:
        raise InvalidArgument(f"{name} holds {array.max()}; the largest id is {MAX_ID}")
    return np.ascontiguousarray(array, dtype=np.int64)


def flags(values, count, name):
    """None, or one byte for each of `count` tokens."""
    if values is None:
        return None
    array = np.ascontiguousarray(np.asarray(values, dtype=bool), dtype=np.uint8)
    if array.shape != (count,):
        raise InvalidArgument(f"{name} has shape {array.shape}; it needs one flag for each of {count} tokens")
    return array


def memory(out, need=None):
    """The memory of `out` as uint8, one-dimensional; it is at least `need` bytes, contiguous and writable."""
    if isinstance(out, np.ndarray):
        array = out
    elif hasattr(out, "__dlpack__"):
        array = _writable(_from_dlpack(out, "out"), out)
    else:
        array = _from_buffer(out)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise InvalidArgument("out must be C-contiguous and writable")
    if need is not None and array.nbytes < need:
        raise InvalidArgument(f"out has {array.nbytes} bytes; the layout needs {need}")
    return array.reshape(-1).view(np.uint8)


def output(out, shape):
    """uint8 of `shape`: new, or the memory of `out`, which must have that many bytes."""
    if out is None:
        return np.empty(shape, np.uint8)
    array = memory(out)
    need = int(np.prod(shape))
    if array.nbytes != need:
        raise InvalidArgument(f"out has {array.nbytes} bytes; shape {tuple(shape)} needs {need}")
    return array.reshape(shape)


def row_ids(values, dimensions):
    """int32 or int64 of `dimensions`, with strides of whole ids that go forwards; copied only where that is needed."""
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        array = _from_dlpack(values, "rows")
    else:
        array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise InvalidArgument(f"rows is {array.dtype} with shape {array.shape}; give integers in {dimensions} dimensions")
    if array.dtype == np.uint64 and array.size and array.max() > MAX_ID:
        raise InvalidArgument(f"rows holds {array.max()}; the largest id is {MAX_ID}")
    if array.dtype not in (np.int32, np.int64):
        array = array.astype(np.int64)
    if any(count > 1 and (stride <= 0 or stride % array.itemsize) for count, stride in zip(array.shape, array.strides)):
        array = np.ascontiguousarray(array)
    return array


def pointer(array):
    """Its address; None for nothing."""
    return array.ctypes.data if array is not None and array.size else None


def _from_dlpack(values, name):
    try:
        if values.__dlpack_device__()[0] not in HOST_DEVICES:
            raise BufferError(f"it is on DLPack device {tuple(values.__dlpack_device__())}")
        return np.from_dlpack(values)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{name} cannot be taken through DLPack ({error}); give memory of this host, with a dtype "
                              "that NumPy knows") from error


def _from_buffer(out):
    try:
        return np.frombuffer(out, np.uint8)
    except (BufferError, TypeError, ValueError) as error:
        raise InvalidArgument(f"out cannot be written ({error}); give a C-contiguous writable array or buffer") from error


def _writable(array, producer):
    """NumPy takes arrays of the older DLPack, which cannot say whether they are read-only, for read-only ones."""
    if array.flags.writeable or not array.flags.c_contiguous or not array.size:
        return array
    try:
        capsule = producer.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = None
    versioned = c.pythonapi.PyCapsule_IsValid(c.py_object(capsule), b"dltensor_versioned")
    if capsule is not None and versioned:
        return array
    view = np.ctypeslib.as_array((c.c_uint8 * array.nbytes).from_address(array.ctypes.data))
    return view.view(array.dtype).reshape(array.shape)
