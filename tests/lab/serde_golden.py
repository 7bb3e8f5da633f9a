"""What the golden files hold. Neither the classes nor the values are ever changed; new ones are added."""

import datetime as dt
import decimal
import enum
import fractions
import gc
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretBytes, SecretStr
from pydantic import v1 as old

from holdfast.serde import BaseMigration, CheckpointContext, CheckpointSerializer, Keys, MigrationRegistry

KEYS = Keys({"golden": b"a key that protects no secrets !"})
PLACE = CheckpointContext("thread", "", "checkpoint", "channel", bound=("golden", 1))

Value = TypeVar("Value")


class Model(BaseModel):
    name: str = "x"
    value: Any = None


class Box(BaseModel, Generic[Value]):
    value: Value


class Root(RootModel[list[int]]):
    pass


class Full(BaseModel):
    """Everything besides fields: extras, a private attribute, an excluded field."""

    model_config = ConfigDict(extra="allow")
    shown: int = 1
    hidden: int = Field(default=2, exclude=True)
    _private: Any = PrivateAttr(default=None)


class OldModel(old.BaseModel):
    name: str = "x"
    value: Any = None


@dataclass
class Record:
    value: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


class Row(NamedTuple):
    left: Any
    right: Any = 2


class Mood(enum.Enum):
    GOOD = "good"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class FirstStep(BaseMigration):
    """Is there to have a number."""

    def migrate_data(self, data: Any, type_hint: str, context: CheckpointContext) -> tuple[Any, str]:  # noqa: ARG002
        return data, type_hint


class SecondStep(FirstStep):
    """Another one."""


def _full() -> Full:
    value = Full.model_validate({"shown": 3, "extra": (1,)})
    value.hidden = 5
    value._private = {1: 2}
    return value


MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
CET = dt.timezone(dt.timedelta(hours=1), "CET")

KINDS: dict[str, Any] = {
    "tuple": [(), (1, ("a", None))],
    "set": [set(), {1, 2, 3}, {"a", b"a", None, (1, frozenset("ab"))}],
    "frozenset": [frozenset(), frozenset({frozenset("ab"), frozenset("c")})],
    "deque": [deque([1, (2,)]), deque([1, 2], 5)],
    "dict": [{1: "a", None: {(1, 2): 3}}, {"_type": "tuple", "_data": [1]}],
    "int": [1 << 64, -(1 << 100)],
    "text": ["a lone \ud800 surrogate", {"\udfff": "in a key"}],
    "bytearray": bytearray(b"\0\xff"),
    "complex": [complex(1, -0.0)],
    "datetime": [
        MOMENT, MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=CET), MOMENT.replace(tzinfo=BERLIN),
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    ],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "time": [dt.time(12, 30), dt.time(1, 2, 3, 4, tzinfo=dt.UTC), dt.time(2, 30, tzinfo=BERLIN, fold=1)],
    "timedelta": [dt.timedelta(-1, 5, 7), dt.timedelta(weeks=9)],
    "timezone": [dt.UTC, CET, dt.timezone(dt.timedelta(hours=-3, minutes=-30))],
    "zone": [BERLIN],
    "decimal": [decimal.Decimal("1.50"), decimal.Decimal("NaN"), decimal.Decimal("-1E+400")],
    "uuid": [uuid.UUID(int=7)],
    "path": [pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("C:/a"), pathlib.Path("x")],
    "pattern": [re.compile("a(b)", re.IGNORECASE), re.compile(b"\\d+")],
    "ip": [
        ipaddress.ip_address("10.0.0.1"), ipaddress.ip_interface("10.0.0.1/8"), ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_address("::1"), ipaddress.ip_interface("::1/64"), ipaddress.ip_network("2001:db8::/32"),
    ],
    "secret": [SecretStr("no secret"), SecretBytes(b"no secret")],
    "OrderedDict": [OrderedDict([("b", 1), (1, 2)])],
    "defaultdict": [defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2})],
    "Counter": [Counter({"a": 2, 1: -1})],
    "range": [range(1, 10, 3)],
    "slice": [slice(None, 5), slice(1, 2, -3)],
    "fraction": [fractions.Fraction(-1, 3)],
    "float": [float("nan"), float("inf"), float("-inf"), -0.0, 1e300],
    "bytes": [b"", b"\0\xff"],
    "ndarray": [
        np.arange(6, dtype="<i4").reshape(2, 3), np.asfortranarray(np.arange(4, dtype=">f8").reshape(2, 2)),
        np.array(5, dtype="<u2"), np.zeros((0, 2), "<f4"), np.array(["a", "bc"], "<U2"),
        np.array(["2024-01-01", "NaT"], "<M8[D]"),
        np.array([(1, [2.0, 3.0])], dtype=[("a", "<i4"), ("b", "<f8", (2,))]),
    ],
    "numpy": [np.float64(1.5), np.bool_(1), np.str_("ab"), np.datetime64("2024-01-01", "s"), np.int16(-3)],
}  # fmt: skip

TYPED: dict[str, Any] = {
    "plain": {"text": "käse\0", "numbers": [0, -1, 2**63, 1.5], "none": None, "yes": True, "empty": [[], {}]},
    "model": Model(value=(1, Model(name="y"))),
    "model-full": _full(),
    "model-generic": Box[list[Model]](value=[Model()]),
    "model-root": Root([1, 2]),
    "model-v1": OldModel(value=OldModel(name="y")),
    "dataclass": Record({1: Record(None)}),
    "dataclass-slots": Slotted((1,)),
    "namedtuple": Row(1),
    "enum": [Mood.GOOD, {Mood.GOOD: 1}],
    "flag": [Rights.READ, Rights.READ | Rights.WRITE, Rights(0)],
    "document": Document("text", metadata={"page": 1}, id="d1"),
    "send": [Send("node", {"x": (1,)}), Send("node", None, timeout=5)],
    "interrupt": Interrupt({"question": "sure?"}, id="i1"),
    "command": Command(update={"x": 1}, goto=[Send("node", 1)], resume={"i1": True}),
    "item": Item(value={"a": 1}, key="k", namespace=("a", "b"), created_at=MOMENT, updated_at=MOMENT),
    "delta": _DeltaSnapshot([HumanMessage("a", id="1")]),
    "messages": [
        SystemMessage("be kind", id="0"),
        HumanMessage([{"type": "text", "text": "hi"}], id="1", name="ann"),
        AIMessage(
            "",
            id="2",
            tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        ),
        ToolMessage("2", id="3", tool_call_id="c1", artifact=Record((1, 2))),
    ],
}
LONG = {"text": "a text that can be made shorter " * 30, "model": Model(value=(1,))}
VALUES: dict[str, Any] = {**KINDS, **TYPED, "long": LONG}
STAGES: dict[str, dict[str, Any]] = {
    "zstd": {"compress": True},
    "aes": {"keys": KEYS},
    "zstd-aes": {"compress": True, "keys": KEYS},
}
GONE = "golden_gone:Gone"
"""A class that is in no module: what stands for it is a placeholder."""


def serializer(**options: Any) -> CheckpointSerializer:
    return CheckpointSerializer(on_unknown="keep", **options)


def versioned(codec: Any) -> CheckpointSerializer:
    """One that has had two migrations."""
    return serializer(codec=codec, migrations=MigrationRegistry(migrations=[FirstStep, SecondStep]))


def forms() -> Iterator[tuple[str, str, tuple[str, bytes]]]:
    """Each stored form: its name, the name of the value, and what is stored today."""
    for codec in ("msgpack", "json"):
        plain = serializer(codec=codec)
        for name, value in (KINDS | TYPED).items():
            yield f"{codec}-{name}", name, plain.dumps_in(PLACE, value)
        yield f"{codec}-message", "messages", plain.dumps_in(PLACE, TYPED["messages"][0])
        yield f"{codec}-versioned", "model", versioned(codec).dumps_in(PLACE, TYPED["model"])
        for suffix, options in STAGES.items():
            yield f"{codec}-{suffix}", "long", serializer(codec=codec, **options).dumps_in(PLACE, LONG)


def placeholders() -> Iterator[tuple[str, str, tuple[str, bytes]]]:
    """Values of the class that is gone, by themselves, in a list and in a run, also written by the other codec."""
    gone = type("Gone", (Model,), {"__module__": "golden_gone", "__qualname__": "Gone"})
    stored = {
        f"{codec}-placeholder-{name}": serializer(codec=codec).dumps_in(PLACE, value)
        for codec in ("msgpack", "json")
        for name, value in {"alone": gone(value=(1,)), "nested": {"a": [1, gone()]}, "run": [Model(), gone()]}.items()
    }
    del gone
    gc.collect()
    for name, data in stored.items():
        yield name, "placeholder", data
    for codec, other in (("msgpack", "json"), ("json", "msgpack")):
        kept = serializer().loads_in(PLACE, stored[f"{other}-placeholder-alone"])
        yield f"{codec}-placeholder-foreign", "placeholder", serializer(codec=codec).dumps_in(PLACE, kept)
