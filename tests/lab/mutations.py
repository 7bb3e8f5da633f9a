"""Stored data with something wrong in it: other bytes, or other values in data that stays well-formed."""

import json
import math
import random
from typing import Any, NamedTuple

import ormsgpack


class Piece(NamedTuple):
    """An extension type, its content taken apart if it can be."""

    code: int
    content: Any


class Packed(NamedTuple):
    """Bytes that hold packed data, as the head of an instance does."""

    content: Any


PLACES = (
    "os:system", "builtins:eval", "traps:Holder", "traps:Validated", "traps:HasSetter", "traps:Missing",
    "traps:MissingFlag", "traps:ActsWhenMade", "traps:Box[int]", "traps:Box[traps:Box[str]]", "traps:proxy",
    "re:RegexFlag", "pydantic.root_model:RootModel[dict[str, int]]", "langchain.HumanMessage", "langchain.AIMessage",
    "langgraph.Send", "langgraph.Command", "langgraph.Interrupt", "langgraph.Item", "langgraph.DeltaSnapshot",
    "no.such:Thing",
)  # fmt: skip
TEXTS = (
    "", "a", "\0", "\u20ac", "__class__", "__dict__", "_type", "_data", "_version", "name", "value", "x", "content",
    "id", "2026-01-02", "9999-12-31T23:59:59.999999+14:00", "25:61", "Europe/Berlin", "../etc", "<i4", "|V0", "O",
    "1e999999", "sNaN", "-0", "0x1f", "ff" * 40, "(a+)+$", "[", "::/0", "10.0.0.0/8", "PosixPath", "SecretStr",
    "IPv4Network", "C",
)  # fmt: skip
PLAIN: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 255, 2**31, -(2**63), 2**63, 2**64 - 1, 0.5, -0.0, math.nan, math.inf, b"",
    b"\0" * 4, b"\x80\x04\x95", [], {}, [None, None], [0, 10**10, 1], {"root": 1}, {"a": {"a": []}},
    Piece(27, [0, 10**10, 1]), Piece(7, "f" * 40), Piece(8, b"\xed\xa0\x80"), Piece(33, ["a:B", 0, b"{}"]),
)  # fmt: skip


def mutated(data: bytes, chance: random.Random, donor: bytes = b"") -> bytes:
    """The data with a few changes; parts of the donor may come into it."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = (_with_other_bytes if chance.random() < 0.3 else _with_other_values)(data, chance, donor)
    return data


def _with_other_bytes(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    at, other = chance.randrange(len(changed)), chance.randrange(len(changed))
    match chance.randrange(6):
        case 0:
            changed[at] = chance.randrange(256)
        case 1:
            changed[at] ^= 1 << chance.randrange(8)
        case 2:
            del changed[at : at + chance.choice((1, 2, 8, len(changed)))]
        case 3:
            changed[at:at] = chance.randbytes(chance.choice((1, 2, 4, 9)))
        case 4:
            changed[at:at] = changed[other : other + 16]
        case _:
            begin = chance.randrange(len(donor) or 1)
            changed[at : at + 8] = donor[begin : begin + 24]
    return bytes(changed)


def _with_other_values(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    try:
        tree = _parsed(data)
        parts = [*_parts(_parsed(donor), 0)] if donor else []
        if type(tree) is bytes:
            return _json_with_other_values(data, chance)
        return _packed(_changed(tree, chance, parts))
    except (ValueError, TypeError, RecursionError):  # nothing that can be packed
        return _with_other_bytes(data, chance, donor)


def _json_with_other_values(data: bytes, chance: random.Random) -> bytes:
    tree = _changed(json.loads(data), chance, [])
    return json.dumps(tree, default=repr, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def _parsed(data: bytes) -> Any:
    """A tree of packed data; the bytes themselves if they are none, or if it isn't all of them."""
    try:
        tree = ormsgpack.unpackb(data, ext_hook=lambda c, d: Piece(c, _parsed(d)), option=ormsgpack.OPT_NON_STR_KEYS)
    except (ValueError, TypeError):
        return data
    return tree if type(tree) in (list, dict, Piece, str) else data


def _packed(tree: Any) -> bytes:
    return ormsgpack.packb(_lowered(tree), option=ormsgpack.OPT_NON_STR_KEYS)


def _lowered(tree: Any) -> Any:
    if type(tree) is Piece:
        return ormsgpack.Ext(tree.code, tree.content if type(tree.content) is bytes else _packed(tree.content))
    if type(tree) is Packed:
        return _packed(tree.content)
    if type(tree) is list:
        return [_lowered(item) for item in tree]
    if type(tree) is dict:
        return {key: _lowered(item) for key, item in tree.items()}
    return tree


def _parts(tree: Any, depth: int) -> Any:
    yield tree
    if depth > 20:
        return
    if type(tree) is Piece:
        yield from _parts(tree.content, depth + 1)
    elif type(tree) is list:
        for item in tree:
            yield from _parts(item, depth + 1)
    elif type(tree) is dict:
        for item in tree.values():
            yield from _parts(item, depth + 1)


def _changed(tree: Any, chance: random.Random, parts: list[Any]) -> Any:
    """The tree with one change somewhere inside."""
    if chance.random() < 0.75:
        if type(tree) is Piece:
            return tree._replace(content=_changed(tree.content, chance, parts))
        if type(tree) is Packed:
            return Packed(_changed(tree.content, chance, parts))
        if type(tree) is list and tree:
            at = chance.randrange(len(tree))
            return [*tree[:at], _changed(tree[at], chance, parts), *tree[at + 1 :]]
        if type(tree) is dict and tree:
            at = chance.choice(list(tree))
            return {**tree, at: _changed(tree[at], chance, parts)}
        if type(tree) is bytes and len(tree) > 8 and type(inner := _parsed(tree)) is list:
            return Packed(_changed(inner, chance, parts))
    return _replaced(tree, chance, parts)


def _replaced(tree: Any, chance: random.Random, parts: list[Any]) -> Any:  # noqa: PLR0911 - a line for each change
    match chance.randrange(10):
        case 0:
            return chance.choice(PLACES)
        case 1:
            return chance.choice(TEXTS)
        case 2 | 3:
            return chance.choice(PLAIN)
        case 4:
            return Piece(chance.choice((*range(34), 100, 127)), tree)
        case 5 if type(tree) is Piece:
            return tree._replace(code=chance.randrange(34))
        case 6 if type(tree) is list:
            return tree[::-1] if chance.random() < 0.5 else tree * 2
        case 6 if type(tree) is dict and tree:
            return {chance.choice(TEXTS) if chance.random() < 0.3 else key: item for key, item in tree.items()}
        case 7 if type(tree) is list and tree:
            return tree[: chance.randrange(len(tree))]
        case 8 if parts:
            return chance.choice(parts)
    return [tree] if chance.random() < 0.3 else {"a": tree} if chance.random() < 0.5 else chance.choice(PLAIN)
