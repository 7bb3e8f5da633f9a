"""numpy's arrays and scalars. Imported only where numpy is."""

import math
import re
import sys
from typing import Any, Literal

import numpy as np

from holdfast.errors import Unserializable
from holdfast.serde.kinds import Kind

# What a dtype calls itself: byte order, kind, size, unit of time. Kinds that hold pointers aren't among them.
_DTYPE = re.compile(r"[<>|=][?biufcSUVmM][0-9]{0,9}(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?")
_MOST_DIMENSIONS = 64
# Items may be without any bytes, and then nothing else says that there can't be so many.
_MOST_ITEMS = 1 << 40
_MOST_EMPTY = 1 << 20


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
        by_name: Any = dtype.fields or {}
        fields = [by_name[name] for name in dtype.names]
        described = {
            "names": list(dtype.names),
            "formats": [_describe(kind) for kind, *_ in fields],
            "offsets": [offset for _, offset, *_ in fields],
            "itemsize": dtype.itemsize,
            "align": dtype.isalignedstruct,
        }
        titles = [title[0] if title else None for _, _, *title in fields]
        return {**described, "titles": titles} if any(titles) else described
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_describe(base), list(shape)]
    return dtype.str


def _dtype(stored: Any) -> np.dtype[Any]:
    if isinstance(stored, dict):
        kinds = [_dtype(kind) for kind in stored["formats"]]
        fields: Any = {
            **{key: stored[key] for key in ("names", "offsets", "titles", "itemsize") if key in stored},
            "formats": kinds,
        }
        dtype: np.dtype[Any] = np.dtype(fields, align=bool(stored["align"]))
    elif isinstance(stored, list):
        base, shape = stored
        dtype = np.dtype((_dtype(base), tuple(shape)))
    elif type(stored) is str and _DTYPE.fullmatch(stored):
        dtype = np.dtype(stored)
    else:
        msg = "an array of no type that can be stored"
        raise ValueError(msg)
    if dtype.hasobject:
        msg = "an array of Python objects"
        raise ValueError(msg)
    return dtype


def _take_array(array: np.ndarray[Any, Any]) -> list[Any]:
    order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if array.dtype.names:  # what lies between the fields is whatever was in memory
        whole = np.zeros(array.shape, array.dtype, order=order)
        for name in array.dtype.names:
            whole[name] = array[name]
        array = whole
    return [_describe(array.dtype), list(array.shape), order, array.tobytes(order=order)]


def _build_array(stored: list[Any]) -> np.ndarray[Any, Any]:
    kind, shape, order, data = stored
    dtype = _dtype(kind)
    if type(data) is not bytes or len(data) != dtype.itemsize * _size(shape):
        msg = f"an array of type {dtype} doesn't fit its data"
        raise ValueError(msg)
    if not dtype.itemsize and _size(shape) > _MOST_EMPTY:
        msg = f"an array of more than {_MOST_EMPTY} empty items"
        raise ValueError(msg)
    array = np.frombuffer(bytearray(data), dtype) if data else np.zeros(_size(shape), dtype)
    return array.reshape(shape, order="F" if order == "F" else "C")


def _size(shape: Any) -> int:
    """How many items an array of a shape has."""
    is_shape = type(shape) is list and len(shape) <= _MOST_DIMENSIONS
    if not is_shape or not all(type(length) is int and 0 <= length <= sys.maxsize for length in shape):
        msg = "an array has no such shape"
        raise ValueError(msg)
    size = int(math.prod(shape))
    if size > _MOST_ITEMS:
        msg = f"an array of {size} items"
        raise ValueError(msg)
    return size


def _take_scalar(value: np.generic) -> list[Any]:
    return [_describe(value.dtype), value.tobytes()]


def _build_scalar(stored: list[Any]) -> Any:
    kind, data = stored
    dtype = _dtype(kind)
    return np.frombuffer(data, dtype, count=1)[0] if dtype.itemsize else np.zeros(1, dtype)[0]


ARRAY = Kind("ndarray", 22, (), _take_array, _build_array)
SCALAR = Kind("numpy", 30, (), _take_scalar, _build_scalar)
