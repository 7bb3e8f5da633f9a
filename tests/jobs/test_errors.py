"""Errors come back from a process pool as they were."""

import pickle
from typing import Any

import pytest

import holdfast.errors
from holdfast.jobs import errors
from holdfast.jobs.telling import NotPermitted

ERRORS = [
    errors.CheckpointStoreError("what"),
    errors.CheckpointNotFoundError("c1"),
    errors.CheckpointSaveError("what"),
    errors.CheckpointLoadError("what"),
    errors.CheckpointDeleteError("what"),
    errors.CheckpointVersionMismatchError("1.0.0", "2.0.0", "go back"),
    errors.CheckpointConfigMismatchError("changed", {"a": (1, 2)}),
    errors.JobLocked("who"),
    errors.JobTaken("who"),
    NotPermitted("no"),
]


def test_all_of_them_are_here() -> None:
    def below(kind: type[Any]) -> set[type[Any]]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    assert {type(error) for error in ERRORS} == below(errors.CheckpointStoreError)


OTHERS = [holdfast.errors.MissingExtra("redis://", "redis-py", "redis"), holdfast.errors.Conflict("parent")]


@pytest.mark.parametrize("error", [*ERRORS, *OTHERS], ids=lambda error: type(error).__name__)
def test_they_survive_pickle(error: Exception) -> None:
    error.add_note("more")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
