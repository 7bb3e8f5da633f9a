"""Reading what JsonPlusSerializer wrote: everything it can store, and nothing that it can be made to do."""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import importlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

import ormsgpack
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Send

from holdfast.errors import Unreadable
from holdfast.serde import legacy
from holdfast.serde.legacy import read
from holdfast.serde.regexes import LONGEST_PATTERN, MOST_HIGH_RANGES
from holdfast.serde.tree import Typed

GOLDEN = Path(__file__).parents[1] / "golden" / "legacy"
INDEX = json.loads((GOLDEN / "index.json").read_text("utf-8"))


class Invoice(pydantic.BaseModel):
    number: int
    due: dt.date
    token: pydantic.SecretStr


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    label: str = ""


class Pair(NamedTuple):
    left: Any
    right: Any


def packed(*parts: Any, code: int) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts, option=ormsgpack.OPT_NON_STR_KEYS)))


def envelope(form: int, path: str, **parts: Any) -> bytes:
    return json.dumps({"lc": form, "type": "constructor", "id": path.split("."), **parts}).encode()


def through_jsonplus(value: Any) -> Any:
    return read(*JsonPlusSerializer().dumps_typed(value))


def modules() -> set[str]:
    """What is imported; numpy is, for any array, and so it comes first."""
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")
    return set(sys.modules)


# --- what was stored can be read


@pytest.mark.parametrize("name", INDEX)
def test_golden(name: str) -> None:
    """A form that some version of JsonPlusSerializer wrote reads as the same tree for ever."""
    if "-array" in name:
        pytest.importorskip("numpy")
    tree = read(INDEX[name]["tag"], (GOLDEN / f"{name}.bin").read_bytes())
    assert INDEX[name]["tree"] == repr(tree)


def test_every_golden_file_is_read() -> None:
    assert {f"{name}.bin" for name in INDEX} == {path.name for path in GOLDEN.glob("*.bin")}


def test_classes_of_an_application() -> None:
    """An instance is its class's module and name, and its fields as they were; those need no class to be read."""
    tree = through_jsonplus(
        {
            "list": [Invoice(number=1, due=dt.date(2026, 1, 2), token=pydantic.SecretStr("s3cret"))],
            "enum": Size.SMALL,
            "nested": Pair(Point(1, "a"), {"deep": [Pair(Size.SMALL, None)]}),
        }
    )
    invoice = tree["list"][0]
    assert invoice.data["token"].get_secret_value() == "s3cret"
    assert f"Typed('{__name__}:Invoice', " in repr(invoice)
    assert {"number": 1, "due": dt.date(2026, 1, 2)} == {key: invoice.data[key] for key in ("number", "due")}
    size = Typed(f"{__name__}:Size", {"value": 1})
    pair = Typed(f"{__name__}:Pair", {"left": size, "right": None})
    point = Typed(f"{__name__}:Point", {"x": 1, "label": "a"})
    assert repr(size) == repr(tree["enum"])
    assert repr(Typed(f"{__name__}:Pair", {"left": point, "right": {"deep": [pair]}})) == repr(tree["nested"])


def test_a_conversation() -> None:
    """Messages, sends, interrupts and commands have the names of LangChain's and LangGraph's classes."""
    messages = [SystemMessage("be"), HumanMessage("hi", id="1"), AIMessage("yes"), ToolMessage("3", tool_call_id="c")]
    tree = through_jsonplus([*messages, Send("n", messages[1]), Interrupt("why", "7"), Command(resume=1)])
    assert [item.name for item in tree] == [
        "langchain_core.messages.system:SystemMessage",
        "langchain_core.messages.human:HumanMessage",
        "langchain_core.messages.ai:AIMessage",
        "langchain_core.messages.tool:ToolMessage",
        "langgraph.types:Send",
        "langgraph.types:Interrupt",
        "langgraph.types:Command",
    ]
    assert [message.model_dump() for message in messages] == [item.data for item in tree[:4]]
    assert messages[1].model_dump() == tree[4].data["arg"].data


def test_a_set_of_tuples_is_one_again() -> None:
    """JsonPlusSerializer itself gives a list of lists for it."""
    assert {(1, (2, 3)), "a"} == through_jsonplus({(1, (2, 3)), "a"})
    assert {frozenset({(1,)})} == through_jsonplus({frozenset({(1,)})})


def test_a_path_of_the_other_system() -> None:
    """A path that this system can't open is a pure one."""
    if os.name == "nt":
        pytest.skip("a Windows path is a path here")
    assert PureWindowsPath("C:/a") == read("msgpack", packed("pathlib", "WindowsPath", ["C:\\", "a"], code=1))


def test_a_callable_that_is_no_plain_type() -> None:
    """What an unknown callable was to be called with is kept, however that was."""
    assert repr(read("msgpack", packed("m", "N", [1, 2], code=1))) == "Typed('m:N', {'args': [1, 2]}, version=0)"
    expected = "Typed('pandas:Timestamp', {'value': '2026', 'method': 'fromisoformat'}, version=0)"
    assert expected == repr(read("msgpack", packed("pandas", "Timestamp", "2026", "fromisoformat", code=3)))
    assert repr(read("msgpack", packed("m", "N", {1: 2}, "", code=5))) == "Typed('m:N', {'root': {1: 2}}, version=0)"


def test_numbers_do_not_depend_on_the_context() -> None:
    """Text that is no number is an error, also where the application has decimal pass it as NaN."""
    with decimal.localcontext(decimal.Context(prec=2, traps=[])):
        assert decimal.Decimal("1.2345") == read("msgpack", packed("decimal", "Decimal", "1.2345", code=0))
        with pytest.raises(Unreadable, match="Decimal"):
            read("msgpack", packed("decimal", "Decimal", "one", code=0))


def test_flags_of_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern that was compiled with flags for debugging prints nothing, and warns of nothing, when it is read."""
    flags = int(re.DEBUG | re.IGNORECASE) | 1
    assert re.compile("b+", re.IGNORECASE) == read("msgpack", packed("re", "compile", ["b+", flags], code=1))
    assert capsys.readouterr().out == ""


def test_data_that_resembles_an_instance() -> None:
    """A dict is taken for an instance only if it has all the marks of one."""
    whole = {"lc": 1, "type": "constructor", "id": ["a", "b"]}
    assert type(read("json", json.dumps(whole).encode())) is Typed
    others: list[Any] = [{"lc": True}, {"lc": 3}, {"lc": "1"}, {"type": []}, {"type": "other"}, {"id": None}]
    for other in others:
        data = whole | other
        assert data == read("json", json.dumps(data).encode())


def test_arrays() -> None:
    """An array can be written to, and has the order of its memory."""
    np = pytest.importorskip("numpy")
    array = read("msgpack", packed("<i4", [2, 2], "F", bytes(range(16)), code=6))
    assert (array.flags.writeable, array.flags.f_contiguous, array.shape) == (True, True, (2, 2))
    np.testing.assert_array_equal(np.frombuffer(bytes(range(16)), "<i4").reshape((2, 2), order="F"), array)


def test_an_array_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is missing."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "holdfast.serde.arrays", raising=False)
    with pytest.raises(Unreadable, match="numpy isn't installed"):
        read("msgpack", packed("<f8", [1], "C", bytes(8), code=6))


# --- what can't have been stored is an error with a name


@pytest.mark.parametrize(
    ("tag", "data", "message"),
    [
        ("pickle", b"cos\nsystem\n(S'true'\ntR.", "read it with that serializer once"),
        ("msgpack+aes", b"", "type tag 'msgpack\\+aes'"),
        ("hf1:msgpack", b"\x01", "type tag"),
        ("", b"", "type tag"),
        ("null", b"\x01", "isn't empty"),
        ("msgpack", b"", "malformed"),
        ("msgpack", b'{"a": 1}', "more data follows"),
        ("msgpack", b"\x01\xc4\x07the en", "more data follows"),
        ("msgpack", b"\x01\xc0", "more data follows"),
        ("msgpack", packed(code=9), "extension type 9"),
        ("msgpack", b"\xd4\xff\xc0", "extension type -1"),
        ("msgpack", packed("uuid", "UUID", code=0), "3 parts"),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, b"\x01\x02")), "more data follows"),
        ("msgpack", packed("uuid", "UUID", 7, code=0), "uuid.UUID.*str expected, not int"),
        ("msgpack", packed("uuid", "UUID", "seven", code=0), "uuid.UUID"),
        ("msgpack", packed("uuid", "UUID", 7, 7, code=1), "3 parts"),
        ("msgpack", packed("uuid", "UUID", "0" * 32, code=1), "arguments"),
        ("msgpack", packed("builtins", "set", [{"a": 1}], code=0), "builtins.set"),
        ("msgpack", packed("builtins", "set", "abc", code=0), "list expected, not str"),
        ("msgpack", packed("builtins", "bytearray", 2**40, code=0), "bytes expected, not int"),
        ("msgpack", packed("datetime", "date", [2026, 13, 1], code=1), "datetime.date"),
        ("msgpack", packed("datetime", "date", [2026, True, 1], code=1), "int expected, not bool"),
        ("msgpack", packed("datetime", "date", [2026], code=1), "datetime.date"),
        ("msgpack", packed("datetime", "time", {"hour": 1, "tzinfo": 5}, code=2), "time zone expected"),
        ("msgpack", packed("datetime", "time", {"hour": 1, "os": 5}, code=2), "datetime.time"),
        ("msgpack", packed("zoneinfo", "ZoneInfo", "../../etc/passwd", code=0), "no time zone"),
        ("msgpack", packed("zoneinfo", "ZoneInfo", "Nowhere/At_All", code=0), "zoneinfo.ZoneInfo"),
        ("msgpack", packed("zoneinfo", "ZoneInfo", "Europe", code=0), "zoneinfo.ZoneInfo"),
        ("msgpack", packed("re", "compile", ["(", 0], code=1), "re.compile"),
        ("msgpack", packed("re", "compile", ["(" * 50_000, 0], code=1), "re.compile"),
        ("msgpack", packed("re", "compile", ["a", 1 << 40], code=1), "re.compile"),
        ("msgpack", packed("re", "compile", ["a" * (LONGEST_PATTERN + 1), 0], code=1), "longer than"),
        ("msgpack", packed("re", "compile", ["[\0-\uffff]" * (MOST_HIGH_RANGES + 1), 2], code=1), "beyond ASCII"),
        ("msgpack", packed("re", "compile", ["[\\0-\\uffff]" * (MOST_HIGH_RANGES + 1), 2], code=1), "beyond ASCII"),
        ("msgpack", packed("re", "compile", ["[[a]&&b]", 0], code=1), "Possible"),
        ("msgpack", packed("pathlib", "Path", ["a", b"b"], code=1), "str expected, not bytes"),
        ("msgpack", packed("pydantic.types", "SecretStr", 1, code=0), "str expected, not int"),
        ("msgpack", packed("m", "N", {1: 2}, code=2), "have no names"),
        ("msgpack", packed("m", "N", [1], code=2), "wrong type"),
        ("msgpack", packed("", "N", 1, code=0), "module or a name"),
        ("msgpack", packed("m", None, 1, code=0), "module or a name"),
        ("msgpack", packed("m", ["N"], {}, "", code=5), "module or a name"),
        ("msgpack", packed("m:n", "N", 1, code=0), "no module"),
        ("msgpack", packed("langgraph.types", "Interrupt", {"value": 1, "ns": [1]}, code=2), "namespace"),
        ("json", b"", "malformed"),
        ("json", b"\x82\xa1a\x01", "malformed"),
        ("json", "\ufeff1".encode(), "malformed"),
        ("json", '"a"'.encode("utf-16"), "malformed"),
        ("json", b"[" * 100_000, "malformed"),
        ("json", b"1" * 5_000, "malformed"),
        ("json", b"1 2", "malformed"),
        ("json", b'{"lc": 1, "type": "not_implemented", "id": ["app", "Tool"], "repr": "x"}', "app.Tool .* is lost"),
        ("json", b'{"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]}', "OPENAI_API_KEY .* by name only"),
        ("json", b'{"lc": 1, "type": "constructor", "id": "os.system"}', "for a name"),
        ("json", b'{"lc": 1, "type": "constructor", "id": []}', "module or a name"),
        ("json", b'{"lc": 2, "type": "constructor", "id": ["system"]}', "module or a name"),
        ("json", b'{"lc": 1, "type": "constructor", "id": ["m", "N"], "kwargs": [1]}', "have no names"),
        ("json", envelope(2, "m.N", args=[1], kwargs={"a": 1}), "both positional and named"),
        ("json", envelope(2, "m.N", args={"a": 1}), "wrong type"),
    ],
)  # fmt: skip
def test_malformed(tag: str, data: bytes, message: str) -> None:
    """Data that was never stored like that is refused, and the error says why."""
    with pytest.raises(Unreadable, match=message):
        read(tag, data)


@pytest.mark.parametrize(
    ("dtype", "shape", "order", "buffer"),
    [
        ("|O", [1], "C", bytes(8)),
        ("|O8", [1], "C", bytes(8)),
        ("<i4,O", [1], "C", bytes(12)),
        ("O", [0], "C", b""),
        ("<i4,<i4", [1], "C", bytes(8)),
        ("|T16", [1], "C", bytes(16)),
        ("os.system", [1], "C", bytes(8)),
        ("<i3", [1], "C", bytes(3)),
        ("<i4", [2], "C", bytes(4)),
        ("<i4", [1], "C", bytes(8)),
        ("<i4", [-1, -1], "C", bytes(4)),
        ("<i4", [0, 2**62, 2**62], "C", b""),
        ("<i4", [1] * 100, "C", bytes(4)),
        ("<i4", [True], "C", bytes(4)),
        ("<i4", 1, "C", bytes(4)),
        ("<i4", [1], "A", bytes(4)),
        ("<i4", [4], "C", "text" * 4),
        ("|V999999999", [1], "C", b""),
    ],
)
def test_malformed_arrays(dtype: str, shape: Any, order: str, buffer: Any) -> None:
    """An array of objects, or of another size than its shape, is refused."""
    pytest.importorskip("numpy")
    with pytest.raises(Unreadable):
        read("msgpack", packed(dtype, shape, order, buffer, code=6))


# --- hostile data

DANGEROUS = [
    ("os", "system"),
    ("posix", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "__import__"),
    ("builtins", "getattr"),
    ("subprocess", "Popen"),
    ("importlib", "import_module"),
    ("pickle", "loads"),
    ("antigravity", "open"),
    ("this", "d"),
    ("datetime", "datetime"),
    ("langchain_core.load.load", "loads"),
]


@pytest.mark.parametrize(("module", "name"), DANGEROUS)
def test_nothing_is_called_or_imported(module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a callable is data, in every form that has one."""
    monkeypatch.chdir(tmp_path)
    harm = "touch harm"
    arguments: list[Any] = [harm, [harm], {"command": harm}, {}]
    parts: list[tuple[int, tuple[Any, ...]]] = [
        *[(code, (module, name, arg)) for code in (0, 1, 2, 4) for arg in arguments],
        *[(code, (module, name, arg, "run")) for code in (3, 5) for arg in arguments],
        (6, (f"{module}.{name}", [1], "C", b"harm")),
        (7, (module, name, harm)),
    ]
    forms = [("msgpack", packed(*stored, code=code)) for code, stored in parts]
    rests: list[Any] = [{"args": [harm]}, {"kwargs": {"command": harm}}, {"args": [harm], "method": "run"}, {}]
    forms += [("json", envelope(form, f"{module}.{name}", **rest)) for form in (1, 2) for rest in rests]
    before = modules()
    typed = 0
    for tag, data in forms:
        try:
            tree = read(tag, data)
        except Unreadable:
            continue
        assert type(tree) is Typed
        assert tree.name in (f"{module}:{name}", "langgraph.DeltaSnapshot")
        typed += 1
    assert typed > 10
    assert before == modules()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", range(8))
def test_values_nested_too_deep(code: int) -> None:
    """A bomb of nested values ends in an error; unpacked without measure, it ends the process."""
    bomb = b"\x01"
    for _ in range(20):
        bomb = b"\x91" * 1_000 + ormsgpack.packb(ormsgpack.Ext(code, bomb))
    source = "import sys; from holdfast.serde.legacy import read; read('msgpack', sys.stdin.buffer.read())"
    ended = subprocess.run([sys.executable, "-c", source], input=bomb, capture_output=True, check=False)
    assert (ended.returncode, b"holdfast.errors.Unreadable" in ended.stderr) == (1, True), ended.stderr[-300:]


def test_values_nested_in_one_another() -> None:
    """Some depth is fine, any depth is not."""

    def nested(depth: int) -> bytes:
        data = b"\x01"
        for _ in range(depth):
            data = ormsgpack.packb(ormsgpack.Ext(7, data))
        return data

    tree = read("msgpack", nested(100))
    for _ in range(100):
        tree = tree.data["value"]
    assert tree == 1
    with pytest.raises(Unreadable, match="deep"):
        read("msgpack", nested(10_000))


def test_much_data_inside_many_values() -> None:
    """Memory for reading is a small multiple of what was stored: each value around some data costs a copy of it."""
    data = ormsgpack.packb(bytes(1_000_000))
    for _ in range(14):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    assert read("msgpack", data).name == "langgraph.DeltaSnapshot"
    for _ in range(40):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    with pytest.raises(Unreadable, match="much data"):
        read("msgpack", data)


SAMPLE = {
    "messages": [HumanMessage("hi", id="1"), AIMessage("yes", id="2")],
    "plain": [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), decimal.Decimal("1.1"), {1, 2}, re.compile("a+"), Path("/a")],
    "send": Send("n", Point(1)),
    7: (None, True, 1.5, b"raw"),
}


def test_every_prefix_is_refused() -> None:
    """Truncated data is never taken for a shorter value."""
    tag, data = JsonPlusSerializer().dumps_typed(SAMPLE)
    sent = json.dumps([{"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["0" * 32]}]).encode()
    for tag_, whole in ((tag, data), ("json", sent)):
        read(tag_, whole)
        for length in range(len(whole)):
            with pytest.raises(Unreadable):
                read(tag_, whole[:length])


def test_flipped_bytes() -> None:
    """Damaged data is some other data or a named error, and imports nothing."""
    _, data = JsonPlusSerializer().dumps_typed(SAMPLE)
    sent = (GOLDEN / "json-time.bin").read_bytes()
    chance = random.Random(3)
    before = modules()
    outcomes = {"msgpack": [0, 0], "json": [0, 0]}
    for tag, whole in (("msgpack", data), ("json", sent)):
        for _ in range(5_000):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            try:
                read(tag, bytes(damaged))
                outcomes[tag][0] += 1
            except Unreadable:
                outcomes[tag][1] += 1
    assert all(count > 20 for counts in outcomes.values() for count in counts), outcomes
    assert before == modules()


def test_an_interrupt_is_no_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops the program while a value is read is not taken for damage."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(legacy, "_typed", stop)
    with pytest.raises(KeyboardInterrupt):
        read("msgpack", packed("m", "N", {}, code=2))
