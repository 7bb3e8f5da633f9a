"""What can't be used is refused at once, by an error that says what can."""

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from texts import checkpoint_of, put, texts_in

import holdfast
from holdfast.errors import BadConfig, BadURL
from holdfast.serde import CheckpointSerializer
from lab import config_of


class Untyped:
    """A serializer of the kind that LangGraph had first."""

    def dumps(self, value: Any) -> bytes:
        return JsonPlusSerializer().dumps_typed(value)[1]

    def loads(self, data: bytes) -> Any:
        return JsonPlusSerializer().loads_typed(("msgpack", data))


@pytest.mark.parametrize("serde", ["json", 5, object(), CheckpointSerializer, JsonPlusSerializer, Untyped])
def test_what_is_no_serializer_is_refused(serde: Any) -> None:
    with pytest.raises(BadConfig, match=r"serde must be a serializer, such as .*, not (the class )?\w+"):
        holdfast.Saver("memory://", serde=serde)


@pytest.mark.parametrize("serde", [CheckpointSerializer(), JsonPlusSerializer(), Untyped()])
def test_any_serializer_that_langgraph_takes_is_one(serde: Any) -> None:
    with holdfast.Saver("memory://", serde=serde) as saver:
        assert texts_in(saver.get_tuple(put(saver, "a", "kept"))) == ["kept"]


def test_a_serializer_may_be_assigned_later() -> None:
    with holdfast.Saver("memory://") as saver:
        saver.serde = JsonPlusSerializer()
        assert texts_in(saver.get_tuple(put(saver, "a", "kept"))) == ["kept"]


def test_a_saver_is_shown_with_its_store() -> None:
    class Mine(holdfast.Saver):
        pass

    assert repr(holdfast.Saver("sqlite:///agent.db")) == "<holdfast.Saver sqlite:///agent.db>"
    assert repr(holdfast.Saver("memory://", namespace="app")) == "<holdfast.Saver memory://?namespace=app>"
    assert repr(Mine("memory://")) == f"<{__name__.partition('.')[0]}.Mine memory://>"
    with closing(sqlite3.connect(":memory:")) as connection:
        assert repr(holdfast.Saver(connection)) == "<holdfast.Saver on a sqlite3.Connection>"


def test_a_saver_shows_no_password() -> None:
    saver = holdfast.Saver("postgresql://app:secret@db.example/agents?sslpassword=secret")
    assert repr(saver) == "<holdfast.Saver postgresql://db.example/agents>"


def test_a_namespace_is_text() -> None:
    with pytest.raises(BadURL, match="namespace must be text, not int"):
        holdfast.Saver("memory://", namespace=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", ["thread", 5, ["thread"], {"configurable": "thread"}])
def test_a_config_is_a_mapping(config: Any) -> None:
    with holdfast.Saver("memory://") as saver:
        for call in (
            lambda: saver.get_tuple(config),
            lambda: list(saver.list(config)),
            lambda: list(saver.list(None, before=config)),
            lambda: saver.put(config, checkpoint_of("a"), {}, {}),
            lambda: saver.put_writes(config, [("a", 1)], "task"),
            lambda: asyncio.run(saver.aget_tuple(config)),
        ):
            with pytest.raises(BadConfig, match="the config needs"):
                call()


def test_an_id_says_what_it_may_be() -> None:
    with (
        holdfast.Saver("memory://") as saver,
        pytest.raises(BadConfig, match="thread_id must be text, a whole number or a UUID, not bytes"),
    ):
        saver.get_tuple(config_of(b"a"))  # type: ignore[arg-type]
