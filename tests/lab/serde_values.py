"""Generated values of every type that a graph's state may hold."""

import datetime as dt
import decimal
import ipaddress
import pathlib
import re
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import serde_models as models
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import SecretBytes, SecretStr

Strategy = st.SearchStrategy[Any]

ZONES = tuple(map(zoneinfo.ZoneInfo, ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Etc/GMT+12")))


def made(make: Any, *args: Strategy, **named: Strategy) -> Strategy:
    """What a class or function makes of these arguments and of no others."""
    return st.tuples(st.tuples(*args), st.fixed_dictionaries(named)).map(lambda given: make(*given[0], **given[1]))


text = st.text(max_size=12)
odd_text = st.text(st.characters(exclude_categories=()), max_size=12)
"""Also NUL, and surrogates that are nobody's half."""

offsets = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
timezones: Strategy = st.one_of(
    made(dt.timezone, offsets), made(dt.timezone, offsets, st.text(min_size=1, max_size=5)), st.just(dt.UTC)
)
zones: Strategy = st.none() | timezones | st.sampled_from(ZONES)
folds = st.integers(0, 1)
moments = made(lambda moment, fold: moment.replace(fold=fold), st.datetimes(timezones=zones), folds)
times = made(lambda time, zone, fold: time.replace(tzinfo=zone, fold=fold), st.times(), zones, folds)
dates = st.dates()

members: Strategy = st.sampled_from(
    [*models.Color, *models.Size, *models.Word, *models.OldWord, *models.Shop.Door, *models.Rights, *models.Bits]
)
flags: Strategy = made(models.Rights, st.integers(0, 7)) | made(models.Bits, st.integers(0, 255))
addresses: Strategy = st.one_of(
    st.ip_addresses(),
    made(ipaddress.ip_interface, st.ip_addresses()),
    made(lambda address: ipaddress.ip_network((address, 20), strict=False), st.ip_addresses()),
)
paths: Strategy = made(
    lambda cls, parts: cls(*parts),
    st.sampled_from([pathlib.Path, pathlib.PurePosixPath, pathlib.PureWindowsPath]),
    st.lists(text, max_size=3),
)
patterns: Strategy = st.one_of(
    made(re.compile, text.map(re.escape), st.sampled_from([0, re.IGNORECASE, re.MULTILINE | re.DOTALL])),
    made(re.compile, st.binary(max_size=5).map(re.escape), st.sampled_from([0, re.IGNORECASE])),
    st.just(re.compile(r"(?ix) (?P<year>\d{4}) - [^\d]")),
)
secrets: Strategy = made(SecretStr, text) | made(SecretBytes, st.binary(max_size=9))
edges = st.none() | st.integers()
dtypes = hnp.scalar_dtypes() | hnp.unicode_string_dtypes(max_len=4) | hnp.byte_string_dtypes(max_len=4)
records = hnp.array_dtypes(dtypes, min_size=1, max_size=3).map(
    lambda dtype: np.dtype([(name, dtype[name]) for name in dtype.names or ()])
)
arrays: Strategy = made(
    lambda array, order: np.array(array, order=order),
    hnp.arrays(dtypes | records, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    st.sampled_from("CF"),
)
numpy_scalars: Strategy = dtypes.flatmap(hnp.from_dtype).filter(lambda scalar: isinstance(scalar, np.generic))

numbers: Strategy = st.one_of(
    st.integers(),
    st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 1 << 200, -(1 << 200)]),
    st.floats(),
    st.decimals(),
    st.sampled_from(["NaN123", "-sNaN", "-0", "0E-30", "1E+400"]).map(decimal.Decimal),
    st.fractions(),
    st.complex_numbers(),
)
keys: Strategy = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), odd_text, st.binary(max_size=8), members,
        flags, st.uuids(), dates, moments, addresses, paths, st.fractions(), st.timedeltas(),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner), st.frozensets(inner, max_size=3), made(models.Frozen, inner),
        made(models.Slotted, inner, inner), made(models.Pair, inner, inner), made(models.Fixed, value=inner),
    ),
    max_leaves=4,
)  # fmt: skip
"""Values that can be keys of a dict and members of a set."""

leaves: Strategy = st.one_of(
    keys, numbers, times, timezones, st.sampled_from(ZONES), patterns, secrets, arrays, numpy_scalars,
    made(range, st.integers(), st.integers(), st.integers().filter(bool)), made(slice, edges, edges, edges),
)  # fmt: skip


def messages(anything: Strategy) -> Strategy:
    """Messages of all sorts."""
    blocks = st.lists(
        st.one_of(
            st.fixed_dictionaries({"type": st.just("text"), "text": text}),
            st.fixed_dictionaries({"type": st.just("image"), "base64": text, "mime_type": st.just("image/png")}),
            st.fixed_dictionaries(
                {"type": st.just("reasoning"), "reasoning": text, "extras": st.just({"signature": "x"})}
            ),
        ),
        max_size=2,
    )
    common: dict[str, Strategy] = {
        "content": text | blocks,
        "additional_kwargs": st.dictionaries(text, anything, max_size=2),
        "response_metadata": st.dictionaries(text, anything, max_size=2),
        "id": st.none() | text,
        "name": st.none() | text,
    }
    calls = st.lists(
        st.fixed_dictionaries(
            {
                "name": text,
                "args": st.dictionaries(text, anything, max_size=2),
                "id": text,
                "type": st.just("tool_call"),
            }
        ),
        max_size=2,
    )
    chunks = st.lists(st.fixed_dictionaries({"name": text, "args": text, "id": text, "index": st.just(0)}), max_size=2)
    usage = st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
    tool: dict[str, Strategy] = {**common, "tool_call_id": text, "artifact": anything}
    return st.one_of(
        *(made(cls, **common) for cls in (HumanMessage, SystemMessage, HumanMessageChunk, SystemMessageChunk)),
        made(AIMessage, **common, tool_calls=calls, usage_metadata=usage),
        made(AIMessageChunk, **common, tool_call_chunks=chunks, usage_metadata=usage),
        *(made(cls, **tool, status=st.sampled_from(["success", "error"])) for cls in (ToolMessage, ToolMessageChunk)),
        *(made(cls, **common, role=text) for cls in (ChatMessage, ChatMessageChunk)),
        *(made(cls, **{**common, "name": text}) for cls in (FunctionMessage, FunctionMessageChunk)),
        made(RemoveMessage, id=text),
    )


def of_langgraph(anything: Strategy) -> Strategy:
    """What LangGraph itself puts into a checkpoint or a store."""
    item = {
        "namespace": st.tuples(text, text), "key": text, "value": st.dictionaries(text, anything, max_size=2),
        "created_at": moments, "updated_at": moments,
    }  # fmt: skip
    sends = made(Send, text, anything) | made(Send, text, anything, timeout=st.floats(1, 9))
    return st.one_of(
        sends,
        made(Interrupt, anything, text),
        made(Command, update=anything, resume=anything, goto=text | sends | st.lists(sends, max_size=2)),
        made(Overwrite, anything),
        made(_DeltaSnapshot, anything),
        made(Item, **item),
        made(SearchItem, **item, score=st.none() | st.floats(0, 1)),
        made(Document, page_content=text, metadata=st.dictionaries(text, anything, max_size=2), id=st.none() | text),
    )


def _private(cls: Any, hidden: Any) -> Any:
    value = cls()
    value._hidden = hidden
    return value


def of_classes(anything: Strategy) -> Strategy:
    """Instances of the application's own classes."""
    names = st.from_regex("x[a-z]{,3}", fullmatch=True)
    leaf = made(models.Leaf, name=text, value=anything) | made(models.SpecialLeaf, special=anything)
    return st.one_of(
        made(models.Point, anything, anything), made(models.Point3, anything, z=anything),
        made(models.Derived, anything), made(models.Envelope, anything, anything, anything),
        made(models.ShortEnvelope, text | st.just("dict"), st.lists(anything, max_size=2)),
        made(models.GenericPoint, anything), made(models.Shop.Shelf, st.integers()),
        made(models.Pair, anything, anything), made(models.Untyped, anything, anything),
        leaf, made(models.Tree, leaf=leaf, by_name=st.dictionaries(text, leaf, max_size=2), anything=anything),
        made(models.Box[Any], value=anything), made(models.Box[models.Leaf], value=leaf),
        made(models.TwoBoxes[int, str | None], one=st.integers(), two=st.none() | text),
        made(models.IntBox, value=st.integers()), made(models.Aliased, userName=text),
        made(lambda extra: models.Open(**extra), st.dictionaries(names, anything)),
        made(models.Closed), made(models.Circle, radius=st.floats(0, 9)),
        made(_private, st.sampled_from([models.Private, models.OpenPrivate]), anything),
        made(models.Numbers, st.lists(anything, max_size=2)), made(models.Fixed, value=anything),
        made(models.Owner, pet=made(models.Cat) | made(models.Dog)),
        made(models.OldLeaf, value=anything), made(models.OldOpen, leaf=made(models.OldLeaf), more=anything),
    )  # fmt: skip


def _containers(inner: Strategy) -> Strategy:
    flat: Strategy = st.dictionaries(keys, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(odd_text, inner, max_size=3), flat, flat.map(OrderedDict),
        st.sets(keys, max_size=3), st.frozensets(keys, max_size=3),
        made(defaultdict, st.sampled_from([None, list, int, dict]), flat),
        st.dictionaries(keys, st.integers(), max_size=3).map(Counter),
        made(deque, st.lists(inner, max_size=3), st.none() | st.integers(0, 4)),
        messages(inner), st.lists(messages(inner), max_size=3), of_langgraph(inner), of_classes(inner),
    )  # fmt: skip


values: Strategy = st.recursive(leaves, _containers, max_leaves=8)
"""All of these, in one another."""
