"""What must hold whatever the stored data is, and valid data of every form to begin with.

An input is a byte, which chooses a type tag, and the data stored under it.
"""

import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import traps
from hostile import watched
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send
from pydantic import RootModel, SecretBytes, SecretStr

from holdfast.errors import HoldfastError, Unserializable
from holdfast.serde import CheckpointSerializer, Keys

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, zoneinfo.ZoneInfo("Europe/Berlin"))
MESSAGES = [
    SystemMessage("be brief"),
    HumanMessage("hi", id="1"),
    AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}]),
    ToolMessage("3", tool_call_id="c", artifact=(1, {2})),
]
VALUES: list[Any] = [
    None, True, 7, -(2**70), 0.5, float("nan"), "text", "\ud800", b"bytes", bytearray(b"more"), [1, [2, [3]]],
    {"a": {"b": None}}, {1: "one", (2, 3): "pair"}, {"_type": "tuple", "_data": [1], "_version": 0}, (1, (2,)),
    {3, 1, 2}, frozenset({"x", ("y",)}), deque([1, 2], 5), 1 + 2j, MOMENT, MOMENT.replace(tzinfo=None), MOMENT.date(),
    MOMENT.timetz(), dt.timedelta(1, 2, 3), dt.timezone(dt.timedelta(hours=2), "here"), MOMENT.tzinfo,
    decimal.Decimal("1.50"), uuid.UUID(int=5), pathlib.Path("/a/b"), pathlib.PureWindowsPath("C:/x"),
    re.compile("a+[b-d]", re.IGNORECASE), ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"),
    np.arange(6, dtype="<i4").reshape(2, 3), np.zeros(2, np.dtype([("a", "<i4"), ("b", "<f8", (2,))])),
    np.float32(1.5), SecretStr("s"), SecretBytes(b"s"), OrderedDict(a=1), defaultdict(list, a=[1]), Counter("aab"),
    range(1, 9, 2), slice(1, None), fractions.Fraction(2, 3), traps.Pair(5), traps.HasSetter(1), traps.Holder(),
    traps.Box[int](x=1), traps.Missing.X, traps.MissingFlag.X, traps.Validated(x=1), RootModel[list[int]]([1]),
    MESSAGES, [MESSAGES[1]] * 3, Document("d", metadata={"p": 1}), Send("node", {"a": MESSAGES[1]}),
    Interrupt("why", "7"), Command(update={"a": [1]}, goto=Send("n", 1)),
    Item(value={"v": 1}, key="k", namespace=("a", "b"), created_at=MOMENT, updated_at=MOMENT), _DeltaSnapshot([1, 2]),
    {"state": [{"deep": (MESSAGES[1], {"more": {traps.Missing.X}})}], 5: traps.Pair([traps.Pair(None)])},
]  # fmt: skip

TAGS = ("hf1:msgpack", "hf1:json", "msgpack", "json", "hf1:msgpack:zstd", "hf1:json:zstd", "hf1:msgpack:aes:k",
        "hf1:json:zstd:aes:k", "bytes", "bytearray", "null", "pickle", "hf2:msgpack", "")  # fmt: skip

_KEYS = Keys({"k": bytes(32)})
_READERS = (
    CheckpointSerializer(),
    CheckpointSerializer(codec="json", on_unknown="keep"),
    CheckpointSerializer(strict=True),
    CheckpointSerializer(keys=_KEYS, plaintext=True),
)
_WRITERS = (CheckpointSerializer(on_unknown="keep"), CheckpointSerializer(codec="json", on_unknown="keep"))


def seeds() -> list[bytes]:
    """Each value in each form."""
    writers: list[Any] = [
        *_WRITERS,
        *(CheckpointSerializer(codec=codec, compress=True, keys=_KEYS) for codec in ("msgpack", "json")),
    ]
    made = [writer.dumps_typed(value) for writer in writers for value in VALUES]
    old = JsonPlusSerializer()
    for value in VALUES:
        if isinstance(value, traps.Box | RootModel):  # it stores the module where they were first used
            continue
        try:
            made.append(old.dumps_typed(value))
        except (TypeError, ValueError):
            continue
    made += [("json", text) for text in OLD_JSON]
    made += [
        ("hf1:msgpack:zstd", CheckpointSerializer(compress=True).dumps_typed(list(range(2000)))[1]),
        ("hf1:json:zstd", CheckpointSerializer(codec="json", compress=True).dumps_typed(["a" * 99] * 99)[1]),
    ]
    return [bytes([TAGS.index(tag)]) + data for tag, data in made if tag in TAGS]


OLD_JSON = (
    b'{"lc":2,"type":"constructor","id":["uuid","UUID"],"args":["00000000000000000000000000000005"]}',
    b'{"lc":2,"type":"constructor","id":["datetime","datetime"],"method":"fromisoformat","args":["2026-01-02"]}',
    b'{"lc":2,"type":"constructor","id":["traps","Validated"],"method":[null,"construct"],"kwargs":{"x":1}}',
    b'{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"a"}}',
    b'{"lc":2,"type":"constructor","id":["builtins","set"],"args":[[1,2,[3]]]}',
)


class Broken(AssertionError):
    """The invariant does not hold."""


def check(data: bytes) -> bool:
    """Read stored data in several ways: a value that can be stored again, or a named error; whether it was a value."""
    if not data:
        return False
    stored = TAGS[data[0] % len(TAGS)], data[1:]
    was_read = False
    for reader in _READERS:
        before = len(sys.modules)
        traps.sprung.clear()
        with watched() as seen:
            try:
                value = reader.loads_typed(stored)
            except HoldfastError:
                continue
            finally:
                harm = [event for event in seen if not _is_allowed(event)]
                if harm or traps.sprung or len(sys.modules) != before:
                    message = f"{stored}: {harm} {traps.sprung} {[*sys.modules][before:]}"
                    raise Broken(message)
        was_read = True
        _write(value, stored)
    return was_read


def _write(value: Any, stored: Any) -> None:
    """What could be read can be written, in both codecs, and read again."""
    for writer in _WRITERS:
        try:
            written = writer.dumps_typed(value)
        except Unserializable as error:
            if "deep" in str(error) or "Recursion" in str(error):
                continue
            raise
        again = writer.dumps_typed(writer.loads_typed(written))
        if again != written:
            message = f"{stored}: {written} is {again} when written again"
            raise Broken(message)


def _is_allowed(event: str) -> bool:
    """A time zone is looked up in the system's database and in tzdata; a class's annotations are evaluated."""
    return "zoneinfo" in event or "tzdata" in event or event.startswith(("compile", "exec", "os.listdir"))
