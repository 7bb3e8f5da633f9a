"""A migration that isn't pure is refused when the registry is made, with the file, the line and the reason."""

import datetime as dt
import os
import re
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from random import random
from typing import Any
from uuid import uuid4 as new_id

import pytest

from holdfast.errors import BadRegistry
from holdfast.serde.migrations import BaseMigration, MigrationRegistry, Typed
from holdfast.serde.migrations.purity import PURE

HEAD = "from holdfast.serde.migrations import BaseMigration\n"


@pytest.fixture
def registry(tmp_path: Any, monkeypatch: Any) -> Any:
    """Makes a registry of one migration, from the top of its file and the body of its method."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / f"pure_{tmp_path.name}".replace("-", "_")
    folder.mkdir()

    def make(top: str = "", body: str = "", method: str = "") -> MigrationRegistry:
        default = "    def migrate_data(self, data, type_hint, context):\n{}        return data, type_hint\n"
        inner = textwrap.indent(textwrap.dedent(body).strip() + "\n", " " * 8) if body else ""
        rest = textwrap.indent(textwrap.dedent(method), "    ")
        text = f"{HEAD}{textwrap.dedent(top)}\n\nclass One(BaseMigration):\n{rest}\n{default.format(inner)}"
        (folder / "_0001_one.py").write_text(text)
        return MigrationRegistry(folder.name)

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "top",
    [
        "import os",
        "import sys",
        "import time",
        "import random",
        "import secrets",
        "import logging",
        "import socket",
        "import pathlib",
        "import importlib",
        "import json, os",
        "import pydantic",
        "import os.path as json",
        "from os import environ",
        "from urllib import request",
        "from langchain_core.messages import HumanMessage",
        "from holdfast import Saver",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os",
        "from math import *",
        "from uuid import uuid4",
        "from uuid import uuid1 as five",
        "from decimal import getcontext",
        "from datetime import datetime\nSTART = datetime.now()",
        "def helper(x):\n    return open(x)",
        "FIRST = print",
        "async def helper(): ...",
    ],
)
def test_impure_files(registry: Any, top: Any) -> None:
    """What a file may not import or do, also outside of the migration's class."""
    with pytest.raises(BadRegistry, match="must be pure"):
        registry(top)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        *[
            (f"{name}(data)", name)
            for name in (
                *("open", "input", "print", "exec", "eval", "compile", "__import__", "hash", "id"),
                *("getattr", "setattr", "delattr", "globals", "locals", "vars"),
            )
        ],
        ("breakpoint()", "breakpoint"),
        ("write = print\nwrite(1)", "print"),
        ("list(map(print, data))", "print"),
        ("import os", "import of os"),
        ("from . import other", "import of ."),
        ("global SEEN\nSEEN = 1", "global SEEN"),
        ("n = 0\ndef f():\n    nonlocal n\n    n = 1\nf()", "nonlocal n"),
        ("self.seen = 1", "a change of self.seen"),
        ("self.seen += 1", "a change of self.seen"),
        ("self.seen: int = 1", "a change of self.seen"),
        ("del self.seen", "a change of self.seen"),
        ("data['a'], self.seen = 1, 2", "a change of self.seen"),
        ("for self.seen in data: pass", "a change of self.seen"),
        ("self.seen['x'] = 1", "a change of self.seen['x']"),
        ("self.seen.append(1)", "a change of self.seen.append"),
        ("type(self).seen = 1", "a change of type(self).seen"),
        ("SEEN['x'] = 1", "a change of SEEN['x']"),
        ("SEEN.append(1)", "a change of SEEN.append"),
        ("SEEN.get('x').append(1)", "a change of SEEN.get('x').append"),
        ("One.seen = 1", "a change of One.seen"),
        ("datetime.datetime.now()", "now"),
        ("datetime.datetime.utcnow()", "utcnow"),
        ("datetime.date.today()", "today"),
        ("clock = datetime.datetime.now", "now"),
        ("uuid.uuid1()", "uuid1"),
        ("data['id'] = uuid.uuid4()", "uuid4"),
        ("datetime.datetime.fromtimestamp(data['at'])", "fromtimestamp without a zone"),
        ("data['at'].astimezone()", "astimezone without a zone"),
        ("().__class__.__subclasses__()", "__subclasses__"),
        ("async def f(): await g()", "async def f"),
    ],
)
def test_impure_bodies(registry: Any, body: Any, what: Any) -> None:
    """What a migration may not do; the message names the file, the very line, the thing, and a way out."""
    with pytest.raises(BadRegistry) as caught:
        registry("import datetime, uuid\nSEEN = {}", "marker = 1\n" + body)
    expected = re.compile(rf"_0001_one\.py:(\d+): {re.escape(what)} [^;\n]+; [^\n]+")
    lines = [int(match[1]) for match in expected.finditer(str(caught.value))]
    first = 8  # the line of `marker`
    assert [line for line in lines if first < line <= first + 1 + body.count("\n")], str(caught.value)


def test_helpers_are_checked_too(registry: Any) -> None:
    """A method beside migrate_data may keep nothing either."""
    with pytest.raises(BadRegistry, match=r"a change of this\.seen"):
        registry(method="def help(this, x):\n    this.seen = x\n")


def test_init_is_checked_too(registry: Any) -> None:
    with pytest.raises(BadRegistry, match=r"a change of self\.seen"):
        registry(method="def __init__(self):\n    self.seen = []\n")


def test_all_faults_are_told_at_once(registry: Any) -> None:
    with pytest.raises(BadRegistry) as caught:
        registry("import os", "print(data)\nself.x = 1")
    assert re.findall(r"\.py:\d+: (import of os|print|a change of self\.x) ", str(caught.value)) == [
        "import of os",
        "print",
        "a change of self.x",
    ]


def test_every_module_on_the_list_can_be_imported(registry: Any) -> None:
    made = registry("\n".join(f"import {name}" for name in sorted(PURE - {"__future__"})))
    assert made.latest == 1


@pytest.mark.parametrize(
    "body",
    [
        "id = data.pop('id', None)\ndata['key'] = id",
        "for input in data.values(): input",
        "data['open'] = data.pop('print', None)",
        "data.setdefault('a', {})['b'] = 1",
        "data['tags'].append('x') if 'tags' in data else None",
        "child = Typed('A', {})\nchild.name = 'B'\nchild.data['x'] = 1\ndata['child'] = child",
        "counts = collections.Counter()\ncounts.update(data)",
        "collections.deque().append(1)",
        "data['d'] = self.helper(data).append(1)",
        "self.update(data)",
        "data['at'] = datetime.datetime.fromtimestamp(0, tz=datetime.timezone.utc)",
        "data['id'] = str(uuid.uuid5(uuid.NAMESPACE_URL, 'a'))",
        "data['kind'] = type(data).__name__",
        "data['n'] = (lambda hash: hash)(1)",
        "data['n'] = [id for id in data]",
        "match data:\n    case {'a': vars}: data['b'] = vars",
        "data['w'] = list(walk(data))",
        "data['x'] = TABLE.get(type_hint)",
    ],
)
def test_pure_bodies(registry: Any, body: Any) -> None:
    """What a migration needs to do is not in the way of the check."""
    top = """
    import collections, datetime, uuid
    from collections import abc
    from urllib import parse
    from holdfast import serde
    from holdfast.serde.migrations import Typed
    TABLE = {"A": 1}
    TABLE["B"] = 2
    def walk(data):
        yield from data
    """
    method = "def helper(self, x): return []\ndef update(self, x): x['u'] = 1\n"
    assert registry(top, body, method).latest == 1


def outside(value: object) -> object:
    return os.fspath(str(value))


def inside(value: object) -> object:
    return re.sub("a", "b", str(value))


class Live:
    here = True


TABLE = {"a": Decimal(1)}
FOLDER = Path()


def faults_of(migration: type[BaseMigration]) -> str:
    with pytest.raises(BadRegistry) as caught:
        MigrationRegistry(migrations=[migration])
    return str(caught.value)


def test_handed_in_and_clean() -> None:
    """A migration beside other code is judged by what it uses itself, not by what the file imports."""

    class Clean(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            _ = context
            data["x"] = inside(TABLE.get("a"))
            data["child"] = Typed("Child", {"cls": Clean.__name__})
            return data, type_hint

    assert MigrationRegistry(migrations=[Clean]).latest == 1


def test_handed_in_with_a_builtin() -> None:
    class Prints(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            print(context)  # noqa: T201
            return data, type_hint

    assert re.search(r"test_purity\.py:\d+: print reads or writes", faults_of(Prints))


def test_handed_in_with_a_module() -> None:
    class Reaches(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "home": os.environ, "in": context}, type_hint

    assert "import of os" in faults_of(Reaches)


def test_handed_in_with_a_clock_of_another_name() -> None:
    class Ticks(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "id": new_id(), "in": context}, type_hint

    class Dices(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "n": random(), "in": context}, type_hint

    class Dates(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "at": dt.datetime.now(tz=dt.UTC), "in": context}, type_hint

    assert "new_id is different at each read" in faults_of(Ticks)
    assert "random (of random) ties it" in faults_of(Dices)
    assert "now is different at each read" in faults_of(Dates)


def test_handed_in_with_live_code() -> None:
    """Classes and objects of the application change after the migration was written."""

    class Leans(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "here": Live.here, "in": context}, type_hint

    class Holds(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "here": FOLDER, "in": context}, type_hint

    assert "Live (of " in faults_of(Leans)
    assert "FOLDER (of pathlib" in faults_of(Holds)


def test_handed_in_with_an_impure_helper() -> None:
    """Functions of the same file are followed."""

    class Helped(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "x": outside(context)}, type_hint

    assert "import of os" in faults_of(Helped)


def test_handed_in_with_a_closure() -> None:
    """What the function around it holds can't be kept in."""
    seen = []

    class Keeps(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            seen.append(context)
            return data, type_hint

    class Impure(BaseMigration):
        helper = staticmethod(outside)

        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            return {**data, "x": self.helper(context)}, type_hint

    assert "a change of seen.append" in faults_of(Keeps)
    assert "import of os" in faults_of(Impure)


def test_inherited_methods_are_checked() -> None:
    class Parent(BaseMigration):
        def migrate_data(self, data: Any, type_hint: Any, context: Any) -> Any:
            print(context)  # noqa: T201
            return data, type_hint

    class Child(Parent):
        pass

    assert "print reads or writes" in faults_of(Child)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("open('x')", "open"),
        ("print(1)", "print"),
        ("import os", "import of os"),
        ("from time import time", "import of time"),
        ("json.os", None),
        ("os.getcwd()", "import of os"),
        ("global x; x = 1", "a change of x"),
        ("self.x = 1", "a change of self.x"),
        ("data['x'].now()", "now"),
        ("f = lambda: [eval(x) for x in data]", "eval"),
    ],
)
def test_without_source(body: Any, what: Any) -> None:
    """Where there's no source to read, the compiled code is."""
    scope: dict[str, Any] = {
        "BaseMigration": BaseMigration,
        "os": os,
        "json": __import__("json"),
        "__name__": "typed_in",
    }
    text = (
        f"class One(BaseMigration):\n def migrate_data(self, data, type_hint, context):\n  {body}\n  return data, 'x'\n"
    )
    exec(text, scope)
    if what is None:
        assert MigrationRegistry(migrations=[scope["One"]]).latest == 1
    else:
        assert re.search(rf"<string>:3: {re.escape(what)} [^;]+; ", faults_of(scope["One"]))


def test_file_without_source(tmp_path: Any, monkeypatch: Any) -> None:
    """A package that was shipped compiled is checked as well as can be."""
    import py_compile  # noqa: PLC0415

    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "compiled_only_migrations"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    source = tmp_path / "one.py"
    for name, line in (("_0001_good", "pass"), ("_0002_bad", "print(1)")):
        method = f" def migrate_data(self, data, type_hint, context):\n  {line}\n  return data, type_hint\n"
        source.write_text(f"{HEAD}class One(BaseMigration):\n{method}")
        py_compile.compile(str(source), cfile=str(folder / f"{name}.pyc"), dfile="gone.py", doraise=True)
    with pytest.raises(BadRegistry, match=r"_0002_bad.*\n.*print reads or writes"):
        MigrationRegistry("compiled_only_migrations")
