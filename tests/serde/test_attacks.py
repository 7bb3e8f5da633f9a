"""Stored data that an attacker wrote: it is data or an error, and never does anything."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import traps
from hostile import forms, legacy, packed, run, typed, watched, written
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage

import holdfast.serde
from holdfast.errors import HoldfastError, Unreadable
from holdfast.serde import CheckpointSerializer, ClassRegistry
from holdfast.serde.shapes import fingerprint

SOURCE = Path(holdfast.serde.__file__).parent
LAB = Path(__file__).parents[1] / "lab"
SERDE = CheckpointSerializer(classes=ClassRegistry())
HARM: list[dict[str, Any]] = [
    {},
    {"x": "harm"},
    {"x": {"x": 1}},
    {"args": ["touch", "harm"]},
    {"name": "?", "value": 6},
]


# --- names

NAMES = [
    ("antigravity", "geohash"),
    ("this", "s"),
    ("xmlrpc.server", "SimpleXMLRPCServer"),
    ("wsgiref.simple_server.WSGIServer", "x"),
    ("os", "system"),
    ("os", "_Environ"),
    ("os", "environ"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "__import__"),
    ("builtins", "type"),
    ("subprocess", "Popen"),
    ("subprocess", "CompletedProcess"),
    ("pathlib", "Path.unlink"),
    ("importlib", "import_module"),
    ("pickle", "loads"),
    ("langchain_core.load.load", "loads"),
    ("langchain_core.language_models.fake_chat_models", "FakeListChatModel"),
    ("langgraph.types", "interrupt"),
    ("holdfast.serde.serializer", "CheckpointSerializer"),
    ("", ""),
    (".", "."),
    ("os.", ".path"),
    ("traps\0", "ActsAfterInit"),
]

IN_A_FRESH_PROCESS = """
import json, pickle, subprocess, sys
import langchain_core.language_models.fake_chat_models, langchain_core.load.load, pydantic.root_model
from hostile import forms, watched
from holdfast.errors import HoldfastError
from holdfast.serde import CheckpointSerializer

names, harm = json.load(sys.stdin)
serdes = [CheckpointSerializer(), CheckpointSerializer(on_unknown="keep"), CheckpointSerializer(strict=True)]
serdes[0].loads_typed(("hf1:msgpack", b"\\x01"))
for codec in ("msgpack", "json"):  # what is loaded when it is first needed, for the application itself
    import numpy
    serde = CheckpointSerializer(codec=codec)
    serde.loads_typed(serde.dumps_typed(numpy.zeros(1)))
before, read, refused = set(sys.modules), 0, 0
with watched() as seen:
    for module, name in names:
        for data in harm:
            for stored in forms(module, name, data):
                for serde in serdes:
                    try:
                        serde.loads_typed(stored)
                        read += 1
                    except HoldfastError:
                        refused += 1
print(json.dumps({"seen": seen, "imported": sorted(set(sys.modules) - before), "read": read, "refused": refused}))
"""


def test_names_of_modules_and_callables_are_data(tmp_path: Path) -> None:
    """Nothing is imported, opened, compiled, started or connected to, in any form that has names."""
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS],
        input=json.dumps([NAMES, HARM]),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(LAB), "PATH": ""},
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    outcome = json.loads(ended.stdout)
    assert (outcome["seen"], outcome["imported"]) == ([], [])
    assert outcome["refused"] > 1000
    assert outcome["read"] > 50  # placeholders, and plain data
    assert list(tmp_path.iterdir()) == []


def test_the_watch_sees() -> None:
    """What the other tests rely on to see nothing does see something."""
    with watched() as seen:
        compile("1", "x", "eval")
        Path(__file__).open().close()
    assert [event.split()[0] for event in seen] == ["compile", "open"]


@pytest.mark.parametrize(("module", "name"), traps.TRAPS)
@pytest.mark.parametrize("is_exact", [False, True])
def test_no_code_of_a_class_that_nobody_registered_runs(module: str, name: str, is_exact: bool) -> None:  # noqa: FBT001
    """Not that of a class, of its metaclass, of its fields' types, of an object or a module that is looked at."""
    cls = vars(traps).get(name)
    shape = (
        fingerprint(cls) if is_exact and isinstance(cls, type) and cls.__module__ == "traps" and _is_plain(cls) else b""
    )
    with traps.lazy_modules():
        traps.sprung.clear()
        for data in HARM:
            for stored in forms(module, name, data, shape=shape):
                try:
                    SERDE.loads_typed(stored)
                except HoldfastError:
                    continue
                assert traps.sprung == [], stored
    assert traps.sprung == []


def _is_plain(cls: type) -> bool:
    return holdfast.serde.shapes.kind_of(cls) is not None


def test_a_chat_model_is_not_made_to_run_code() -> None:
    """A class with validators, of a module that is imported, is filled without them."""
    with watched() as seen:
        made = SERDE.loads_typed(typed(f"{FakeListChatModel.__module__}:FakeListChatModel", {"responses": ["a"]}))
    assert (FakeListChatModel, ["a"], []) == (type(made), made.responses, seen)


# --- attributes

ODD = ["__class__", "__dict__", "__module__", "__doc__", "__slots__", "__pydantic_private__", "__pydantic_extra__"]
ODD += ["__pydantic_fields_set__", "model_config", "model_dump", "save", "command", "_secret", "__init__", ""]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("cls", [traps.HasSetter, traps.Validated, traps.Pair, traps.Box, HumanMessage])
@pytest.mark.parametrize("is_exact", [False, True])
def test_data_does_not_become_what_belongs_to_the_class(cls: Any, odd: str, is_exact: bool) -> None:  # noqa: FBT001
    """A stored name sets a field or what else an instance has: it replaces no method, no dict, no class."""
    shape = fingerprint(cls) if is_exact else b""
    fields = {"content": "x", "type": "human"} if cls is HumanMessage else {"x": 1}
    name = "langchain.HumanMessage" if cls is HumanMessage else f"traps:{cls.__qualname__}"
    evil: dict[str, Any] = {"save": "evil", "model_dump": "evil"}
    for stored in (
        typed(name, {**fields, odd: evil}, shape=shape),
        typed(name, fields, shape=shape, rest={odd: evil}),
        typed(name, fields, shape=shape, given=[odd]),
        run(name, {**fields, odd: evil}, shape=shape),
        written(name, {**fields, odd: evil}, shape=shape),
        written(name, fields, shape=shape, rest={odd: evil}),
    ):
        traps.sprung.clear()
        try:
            made = SERDE.loads_typed(stored)
        except HoldfastError:
            continue
        made = made[0] if type(made) is list else made
        assert type(made) is cls
        assert (traps.sprung, getattr(made, "x", 1)) == ([], 1)
        for method in {"save", "model_dump", "__init__"} & set(dir(cls)):
            assert callable(getattr(made, method))
        assert isinstance(getattr(made, "model_config", {}), dict)
        assert type(getattr(made, "__dict__", {})) is dict
        assert evil != getattr(made, "__dict__", {})
        SERDE.dumps_typed(made)


def test_what_a_message_always_has_is_never_missing() -> None:
    """A message without content is refused, not handed on to fail elsewhere."""
    with pytest.raises(Unreadable):
        SERDE.loads_typed(typed("langchain.HumanMessage", {}, shape=fingerprint(HumanMessage)))


# --- codecs


def test_a_failure_never_selects_another_codec() -> None:
    """What isn't readable in the form that its tag names isn't tried in any other."""
    message = HumanMessage("lone surrogate \ud800")
    blobs = {codec: CheckpointSerializer(codec=codec).dumps_typed([message]) for codec in ("msgpack", "json")}
    assert {codec: tag for codec, (tag, _) in blobs.items()} == {"msgpack": "hf1:msgpack", "json": "hf1:json"}
    pickled = b"\x80\x04\x95\x00"
    wrong = [
        ("hf1:msgpack", blobs["json"][1]),
        ("hf1:json", blobs["msgpack"][1]),
        ("msgpack", blobs["json"][1]),
        ("json", blobs["msgpack"][1]),
        *((tag, pickled) for tag in ("hf1:msgpack", "hf1:json", "msgpack", "json", "pickle", "")),
        ("hf1:pickle", pickled),
        ("hf2:msgpack", b"\x01"),
        ("hf1:msgpack:zstd", blobs["msgpack"][1]),
        ("hf1:msgpack:zstd:zstd", b"\x01"),
        ("msgpack:zstd", b"\x01"),
        ("HF1:MSGPACK", b"\x01"),
        ("hf1:msgpack ", b"\x01"),
        ("hf1:msgpack\0", b"\x01"),
        ("hf1:json", b'"\\ud800"'),
        ("hf1:json", b'"\xed\xa0\x80"'),
        ("hf1:msgpack", b"\xa3\xed\xa0\x80"),
    ]
    with watched() as seen:
        for stored in wrong:
            with pytest.raises(Unreadable):
                SERDE.loads_typed(stored)
    assert seen == []


BANNED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "runpy", "code", "codeop", "ctypes"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "load_module",
    "exec_module",
    "execfile",
    "find_spec",
}
AT_START_UP = {
    ("known.py", "load"),
    ("registry.py", "scan"),
    ("migrations/base.py", "_loaded"),
    ("migrations/base.py", "steps_of_package"),
}
"""Where modules are imported, by the package's own list or the application's: never for the sake of stored data."""


def test_the_source_has_nothing_to_run_code_with() -> None:
    """No pickle, no eval, no import by name outside what runs when a serializer is made."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for scope in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = path.relative_to(SOURCE).as_posix()
            if isinstance(scope, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in scope.names}
                names |= {(getattr(scope, "module", None) or "").partition(".")[0]}
                assert not names & BANNED, where
                assert not {alias.name for alias in scope.names} & {"JsonPlusSerializer"}, where
            if isinstance(scope, ast.FunctionDef):
                found |= {(where, scope.name) for call in ast.walk(scope) if _names(call) & CALLS}
    assert found == AT_START_UP


def _names(node: ast.AST) -> set[str]:
    """What a call calls; `re.compile` is not among it."""
    if not isinstance(node, ast.Call):
        return set()
    if isinstance(node.func, ast.Attribute):
        is_regex = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        return set() if is_regex else {node.func.attr}
    return {node.func.id} if isinstance(node.func, ast.Name) else set()


# --- values


def test_text_is_never_a_number_that_takes_for_ever() -> None:
    """Numbers come in the one form that they were stored in."""
    for stored in (
        packed(ormsgpack.Ext(29, ormsgpack.packb(["1e999999999", 1]))),
        packed(ormsgpack.Ext(17, ormsgpack.packb(5))),
        packed(ormsgpack.Ext(10, ormsgpack.packb(["1", "2"]))),
        legacy(0, "decimal", "Decimal", [1]),
        legacy(0, "fractions", "Fraction", "1e999999999"),
    ):
        with pytest.raises(HoldfastError):
            SERDE.loads_typed(stored)


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "/etc/passwd", "a.b", "os", "..", "", "\0", "a\n", "UTC\n", "x" * 5000]
)
def test_a_time_zone_is_no_path(key: str) -> None:
    """A zone's name opens nothing outside the database of zones, and imports nothing."""
    before = set(sys.modules)
    with watched() as seen, pytest.raises(HoldfastError):
        SERDE.loads_typed(packed(ormsgpack.Ext(16, ormsgpack.packb(key))))
    # For a name that the system doesn't have, zoneinfo looks for its package of data along sys.path.
    seen = [event for event in seen if not event.startswith("os.listdir")]
    assert [event for event in seen if "zoneinfo" not in event and "tzdata" not in event] == []
    assert {
        name for name in set(sys.modules) - before if not name.startswith(("tzdata", "importlib", "zoneinfo"))
    } == set()
