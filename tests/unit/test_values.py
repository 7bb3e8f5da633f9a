"""Values decode when they are touched, once, and only what is touched."""

import copy
import pickle
from typing import Any

import ormsgpack
import pytest

from holdfast.engine.values import WAITING, Values


@pytest.fixture
def decoded() -> Any:
    return []


@pytest.fixture
def values(decoded: Any) -> Any:
    def decode(channel: Any) -> Any:
        decoded.append(channel)
        return [channel]

    return Values({"a": WAITING, "b": WAITING, "c": 3}, {"a", "b"}, decode)


def test_nothing_is_decoded_before_it_is_touched(values: Any, decoded: Any) -> None:
    assert (len(values), "a" in values, list(values), list(values.keys())) == (
        3,
        True,
        ["a", "b", "c"],
        ["a", "b", "c"],
    )
    assert values["c"] == values.get("c") == 3
    assert values.get("x") is None
    assert decoded == []


def test_only_what_is_touched_and_once(values: Any, decoded: Any) -> None:
    assert values["a"] is values["a"] is values.get("a")
    assert decoded == ["a"]


@pytest.mark.parametrize(
    "touch",
    [
        lambda v: v.items(),
        lambda v: v.values(),
        lambda v: v.copy(),
        dict,
        lambda v: {**v},
        lambda v: v | {},
        lambda v: {} | v,
        repr,
        lambda v: v == {},
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda v: v.popitem(),
    ],
)
def test_what_shows_all_decodes_all(values: Any, decoded: Any, touch: Any) -> None:
    touch(values)
    assert sorted(decoded) == ["a", "b"]


def test_what_is_replaced_is_not_decoded(values: Any, decoded: Any) -> None:
    values["a"] = 1
    values.update(b=2)
    assert values == {"a": 1, "b": 2, "c": 3}
    del values["a"]
    assert decoded == []


def test_removed_is_removed(values: Any) -> None:
    assert values.pop("a") == ["a"]
    del values["b"]
    assert values == {"c": 3}
    with pytest.raises(KeyError):
        values["a"]
    with pytest.raises(KeyError):
        values.pop("a")


def test_update_takes_whatever_dict_takes(values: Any) -> None:
    values.update([("a", 1)], d=4)
    values.update(iter([("b", 2)]))
    values |= Values({"e": WAITING}, {"e"}, lambda channel: f"decoded {channel}")
    assert values == {"a": 1, "b": 2, "c": 3, "d": 4, "e": "decoded e"}


def test_an_error_leaves_the_value_waiting() -> None:
    """What can't be read now may be read later, with another serializer."""
    answers = [ValueError("no"), "yes"]

    def decode(_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    values = Values({"a": WAITING}, {"a"}, decode)
    with pytest.raises(ValueError, match="no"):
        values["a"]
    assert values["a"] == "yes"


def test_two_that_look_at_once_get_the_same_object() -> None:
    """What one of them changes in it, the other one sees, as in any dict."""
    looked: list[Any] = []

    def decode(channel: str) -> Any:
        if not looked:  # as if another thread came first, while this one decodes
            looked.append(None)
            looked.append(read[channel])
        return [channel]

    read = Values({"a": WAITING}, {"a"}, decode)
    assert read["a"] is looked[1] is read["a"]


def test_copies_are_plain_dicts(values: Any) -> None:
    for made in (
        values.copy(),
        copy.copy(values),
        copy.deepcopy(values),
        pickle.loads(pickle.dumps(values)),
        values | {},
    ):
        assert type(made) is dict


def test_what_waits_is_never_stored_by_mistake() -> None:
    """Code that reaches past the methods of dict gets an error, and no lost value."""
    with pytest.raises(TypeError):
        pickle.dumps(WAITING)
    with pytest.raises(TypeError):
        ormsgpack.packb({"a": WAITING})
