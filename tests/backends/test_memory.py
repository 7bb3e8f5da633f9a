"""Stores in memory: private without a name, shared with one."""

import pytest
from texts import put, texts_in

import holdfast
from holdfast.errors import BadURL
from lab import config_of


def test_without_a_name_each_is_its_own() -> None:
    one, other = holdfast.Saver("memory://"), holdfast.Saver("memory://")
    put(one, "a", "hello")
    assert other.get_tuple(config_of("a")) is None


def test_with_a_name_it_is_shared() -> None:
    one, other = holdfast.Saver("memory://shared-by-two"), holdfast.Saver("memory://shared-by-two")
    put(one, "a", "hello")
    assert texts_in(other.get_tuple(config_of("a"))) == ["hello"]


def test_another_name_is_another_store() -> None:
    one, other = holdfast.Saver("memory://first-name"), holdfast.Saver("memory://second-name")
    put(one, "a", "hello")
    assert other.get_tuple(config_of("a")) is None


def test_namespaces_share_a_name_and_nothing_else() -> None:
    one, other = holdfast.Saver("memory://apps?namespace=one"), holdfast.Saver("memory://apps", namespace="other")
    put(one, "a", "hello")
    assert other.get_tuple(config_of("a")) is None
    assert texts_in(holdfast.Saver("memory://apps", namespace="one").get_tuple(config_of("a"))) == ["hello"]


def test_a_named_store_outlives_its_savers() -> None:
    with holdfast.Saver("memory://outlives") as saver:
        put(saver, "a", "hello")
    with holdfast.Saver("memory://outlives") as saver:
        assert texts_in(saver.get_tuple(config_of("a"))) == ["hello"]


@pytest.mark.parametrize("url", ["memory://?timeout=1", "memory://a?synchronous=full"])
def test_unknown_options_are_refused(url: str) -> None:
    with pytest.raises(BadURL, match="no option"):
        holdfast.Saver(url)


def test_a_name_in_the_wrong_place_is_refused() -> None:
    """A third slash would silently give everybody a store of their own."""
    with pytest.raises(BadURL):
        holdfast.Saver("memory:///name")
