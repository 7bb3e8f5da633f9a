"""What a transaction of etcd is made of: questions, operations and conditions."""

from collections.abc import Sequence
from typing import Any

from holdfast.backends.etcd.keys import Span
from holdfast.backends.etcd.messages import Compare, Delete, Operation, Put, Range, Txn

OPERATIONS = 120
"""In one transaction; etcd takes 128 unless it is told otherwise."""

_EQUAL, _GREATER = range(2)
_VERSION, _CREATED, _CHANGED, _VALUE, _LEASE = range(5)


# Questions.


def ranged(span: Span, *, limit: int = 0, keys_only: bool = False, count_only: bool = False) -> Any:
    """The keys of a range, with their values, in order."""
    return Operation(
        range=Range(key=span.start, range_end=span.stop, limit=limit, keys_only=keys_only, count_only=count_only)
    )


def check(*compares: Any) -> Any:
    """Whether conditions hold."""
    return Operation(txn=Txn(compare=compares))


# Operations.


def put(key: bytes, value: bytes, lease: int) -> Any:
    """Put a value under a key, whatever is there."""
    return Operation(put=Put(key=key, value=value, lease=lease))


def delete(span: Span) -> Any:
    """Delete the keys of a range."""
    return Operation(delete=Delete(key=span.start, range_end=span.stop))


def unless(compares: Sequence[Any], operation: Any) -> Any:
    """Do something unless all conditions hold."""
    return Operation(txn=Txn(compare=compares, failure=[operation]))


def when(compares: Sequence[Any], operation: Any) -> Any:
    """Do something if all conditions hold."""
    return Operation(txn=Txn(compare=compares, success=[operation]))


# Conditions. A key that is not there has a version, revisions and a lease of 0.


def is_free(span: Span) -> Any:
    """None of these keys is there."""
    return Compare(result=_EQUAL, target=_CREATED, key=span.start, range_end=span.stop, create_revision=0)


def is_there(key: bytes) -> Any:
    """A key is there."""
    return Compare(result=_GREATER, target=_CREATED, key=key, create_revision=0)


def has_value(key: bytes) -> Any:
    """A key is there, and something is in it."""
    return Compare(result=_GREATER, target=_VALUE, key=key, value=b"")


def has_lease(key: bytes, lease: int) -> Any:
    """A key belongs to a lease, or to none."""
    return Compare(result=_EQUAL, target=_LEASE, key=key, lease=lease)


def was_changed_at(key: bytes, revision: int) -> Any:
    """A key was last changed at a moment, and is there; with 0, it is not there."""
    return Compare(result=_EQUAL, target=_CHANGED, key=key, mod_revision=revision)


def has_version(key: bytes, created: int, version: int) -> list[Any]:
    """A key was put so many times since it was created at a moment; with 0 and 0, it is not there."""
    return [
        Compare(result=_EQUAL, target=_CREATED, key=key, create_revision=created),
        Compare(result=_EQUAL, target=_VERSION, key=key, version=version),
    ]
