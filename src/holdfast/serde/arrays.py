"""numpy's arrays and scalars. Imported only where numpy is."""

import math
from typing import Any

import numpy as np

from holdfast.errors import Unserializable
from holdfast.serde.kinds import Kind


def kind_for_numpy(cls: type) -> Kind | None:
    """The kind of a type of numpy's. An array that carries more than its numbers, such as a mask, has none."""
    if cls in (np.ndarray, np.matrix, np.recarray, np.memmap):
        return ARRAY
    if issubclass(cls, np.ndarray):
        msg = f"a {cls.__qualname__} can't be stored: store its parts as plain arrays"
        raise Unserializable(msg)
    return SCALAR if issubclass(cls, np.generic) else None


def _describe(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        msg = f"an array of {dtype} holds Python objects: store a list of them instead"
        raise Unserializable(msg)
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names] if dtype.fields else []
        return {
            "names": list(dtype.names),
            "formats": [_describe(kind) for kind, *_ in fields],
            "offsets": [offset for _, offset, *_ in fields],
            "itemsize": dtype.itemsize,
            "align": dtype.isalignedstruct,
        }
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_describe(base), list(shape)]
    return dtype.str


def _dtype(stored: Any) -> np.dtype[Any]:
    if isinstance(stored, dict):
        kinds = [_dtype(kind) for kind in stored["formats"]]
        fields: Any = {**{key: stored[key] for key in ("names", "offsets", "itemsize")}, "formats": kinds}
        dtype: np.dtype[Any] = np.dtype(fields, align=bool(stored["align"]))
    elif isinstance(stored, list):
        base, shape = stored
        dtype = np.dtype((_dtype(base), tuple(shape)))
    else:
        dtype = np.dtype(str(stored))
    if dtype.hasobject:
        msg = "an array of Python objects"
        raise ValueError(msg)
    return dtype


def _take_array(array: np.ndarray[Any, Any]) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return [_describe(array.dtype), list(array.shape), order, array.tobytes(order=order)]  # type: ignore[arg-type]


def _build_array(stored: list[Any]) -> np.ndarray[Any, Any]:
    kind, shape, order, data = stored
    dtype = _dtype(kind)
    if any(length < 0 for length in shape) or len(data) != dtype.itemsize * math.prod(shape):
        msg = f"an array of shape {shape} and type {dtype} in {len(data)} bytes"
        raise ValueError(msg)
    array = np.frombuffer(data, dtype) if dtype.itemsize else np.empty(math.prod(shape), dtype)
    return array.reshape(shape, order="F" if order == "F" else "C").copy(order="K")


def _take_scalar(value: np.generic) -> list[Any]:
    return [_describe(value.dtype), value.tobytes()]


def _build_scalar(stored: list[Any]) -> Any:
    kind, data = stored
    dtype = _dtype(kind)
    return np.frombuffer(data, dtype, count=1)[0] if dtype.itemsize else np.zeros(1, dtype)[0]


ARRAY = Kind("ndarray", 22, (), _take_array, _build_array)
SCALAR = Kind("numpy", 30, (), _take_scalar, _build_scalar)
