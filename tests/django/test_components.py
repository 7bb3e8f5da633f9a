"""The components of the versioned serializer, by name, as a Django project has them."""

import json
import subprocess
import sys
from typing import Any

import pytest
from django.test import override_settings
from djangolab import Corner, apart, checkpointer, database
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from talk.state import Ticket

from holdfast.django import DjangoCheckpointer, conf
from holdfast.django.checkpointer import serializer_of
from holdfast.errors import BadRegistry, NewerVersion, UnknownType
from holdfast.serde import BaseMigration, ClassRegistry, MigrationRegistry
from holdfast.testing.half import checkpoint_of, config_of, name


class Renamed(BaseMigration):
    """The class has another name, and one field more."""

    types = ("OldTicket",)

    def migrate_data(self, data: dict[str, Any], type_hint: str, context: Any) -> tuple[dict[str, Any], str | None]:
        return {"subject": data.get("title", "none")}, "Ticket"


def serializer(**settings: Any) -> Any:
    found, wrong = conf.read({"REGISTRY": ["talk.state"], **settings})
    assert wrong == []
    return serializer_of(found)


def test_checkpoint_serializer_writes_versioned_json() -> None:
    """`_type`, `_version`, `_data`: readable, and without any module's path."""
    tag, stored = serializer().dumps_typed([Ticket(subject="fire")])
    written = json.loads(stored)
    assert tag == "hf1:json"
    assert "talk.state" not in stored.decode()
    assert _find(written, "_type") == "Ticket"
    assert _find(written, "_version") == 0
    assert _find(written, "_data") == {"subject": "fire"}


def test_checkpoint_serializer_migrates_what_is_nested() -> None:
    serde = serializer()
    serde._use(type(serde._types)(serde.classes, MigrationRegistry(migrations=[Renamed]), strict=False))
    old = b'{"deep":[{"_type":"OldTicket","_version":0,"_data":{"title":"fire"}}]}'
    assert serde.loads_typed(("hf1:json", old)) == {"deep": [Ticket(subject="fire")]}


def test_checkpoint_serializer_reads_legacy_msgpack() -> None:
    """What JsonPlusSerializer wrote, with module paths in it, is found by them and never imported."""
    assert serializer().loads_typed(JsonPlusSerializer().dumps_typed(Ticket(subject="fire"))) == Ticket(subject="fire")


def test_class_registry_finds_classes_of_modules() -> None:
    classes = serializer().classes
    assert classes.find("Ticket") is Ticket
    assert isinstance(classes, ClassRegistry)


def test_class_registry_falls_back_loudly() -> None:
    """An unknown type is an error, or a placeholder that is written back as it was; never a silent dict."""
    stored = ("hf1:json", b'{"_type":"Gone","_version":0,"_data":{"a":1}}')
    with pytest.raises(UnknownType, match="Gone"):
        serializer().loads_typed(stored)
    keeping = serializer(ON_UNKNOWN="keep")
    assert json.loads(keeping.dumps_typed(keeping.loads_typed(stored))[1]) == json.loads(stored[1])


def test_migration_registry_has_the_files_of_a_package(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_NNNN_description.py`; the version is in the name."""
    package = tmp_path / "steps_of_a_project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_0001_first.py").write_text(_STEP)
    monkeypatch.syspath_prepend(tmp_path)
    assert serializer(MIGRATIONS="steps_of_a_project").migrations.latest == 1
    with pytest.raises(NewerVersion):
        serializer().loads_typed(("hf1:json", b'{"_type":"Ticket","_version":1,"_data":{"subject":"x"}}'))


def test_base_migration_is_pure() -> None:
    class Reads(BaseMigration):
        def migrate_data(self, data: dict[str, Any], type_hint: str, context: Any) -> Any:
            return json.load(open("somewhere")), type_hint  # noqa: PTH123 - what must not be

    with pytest.raises(BadRegistry, match="pure"):
        MigrationRegistry(migrations=[Reads])


def test_checkpoint_context_has_the_fields_of_the_project(tmp_path: Any) -> None:
    with database("sqlite", tmp_path) as alias, override_settings(HOLDFAST={"CONTEXT": {"team": "talk__team__name"}}):
        saver = DjangoCheckpointer(using=alias)
        context = saver.serde._completed(conf_context())  # type: ignore[attr-defined]
    assert (context.thread_id, context.team, context._replace(graph="g").team) == ("t", None, None)
    with pytest.raises(AttributeError, match="CONTEXT"):
        _ = context.teem


def test_django_checkpointer_keeps_the_public_api(tmp_path: Any) -> None:
    """All that LangGraph asks of a checkpointer, and what its server looks for."""
    with database("sqlite", tmp_path) as alias:
        saver = checkpointer(apart(alias)())
        checkpoint = checkpoint_of(name(1), {"ticket": Ticket(subject="fire")})
        config = saver.put(config_of("t"), checkpoint, {"step": 1}, checkpoint["channel_versions"])
        saver.put_writes(config, [("ticket", Ticket(subject="later"))], "task")
        saver.copy_thread("t", "u")
        for thread in ("t", "u"):
            found = saver.get_tuple(config_of(thread))
            assert found.checkpoint["channel_values"]["ticket"] == Ticket(subject="fire")
            assert found.pending_writes == [("task", "ticket", Ticket(subject="later"))]
        saver.prune(["u"], strategy="delete")
        saver.delete_thread("t")
        assert list(saver.threads()) == []
        assert Corner(alias, saver.namespace).alias == saver.alias


def test_nobody_else_imports_django() -> None:
    code = "import sys, holdfast, holdfast.saver; sys.exit('django' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def conf_context() -> Any:
    from holdfast.serde import CheckpointContext

    return CheckpointContext(thread_id="t")


def _find(tree: Any, key: str) -> Any:
    """The first value of this key, wherever it is."""
    if isinstance(tree, dict):
        if key in tree:
            return tree[key]
        tree = list(tree.values())
    if isinstance(tree, list):
        return next((found for each in tree if (found := _find(each, key)) is not None), None)
    return None


_STEP = """
from holdfast.serde import BaseMigration

class First(BaseMigration):
    types = ("Ticket",)

    def migrate_data(self, data, type_hint, context):
        return data, type_hint
"""
