"""Types of fields as text, and whether one takes all that another did.

The text of a type is what a person would write, `list[Item | None]`, and it can be read back.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(r"""\s*(b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|[\[\]|,]|[^\s\[\]|,'"]+)""")
_MARKS = frozenset({"", "[", "]", "|", ","})
_UNION = "|"
_WIDER: Mapping[str, frozenset[str]] = {
    "float": frozenset({"int"}),
    "collections.abc.Sequence": frozenset({"list", "tuple"}),
    "collections.abc.Mapping": frozenset({"dict"}),
}


class Type(NamedTuple):
    """A type as a tree. `args` is None where there are no brackets; a union's name is `|`."""

    name: str
    args: "tuple[Type, ...] | None" = None

    def __str__(self) -> str:
        if self.args is None:
            return self.name
        if self.name == _UNION:
            return " | ".join(map(str, self.args))
        return f"{self.name}[{', '.join(map(str, self.args))}]"

    def members(self) -> "tuple[Type, ...]":
        """The types that a union is made of; of any other type, itself."""
        return self.args or () if self.name == _UNION else (self,)


ANY, NONE, OBJECT, REST = Type("Any"), Type("None"), Type("object"), Type("...")

MIGRATED = "<migrated>"
"""Stands for a class whose values a migration makes others of: what they will be is the migration's business."""


def union(members: Iterable[Type]) -> Type:
    """A union, flat and in one order, None last."""
    flat = {member for each in members for member in each.members()}
    return Type(_UNION, tuple(sorted(flat, key=lambda member: (member == NONE, str(member)))))


# Reading.


def parse(text: str) -> Type:
    """The type that a text stands for; a text that can't be understood is a type that equals itself alone."""
    marks = _tokens(text)
    try:
        found, mark = _parse_union(marks, next(marks))
    except (StopIteration, ValueError, RecursionError):
        return Type(text)
    return Type(text) if mark else found


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        yield match[1]
        position = match.end()
    yield ""


def _parse_union(marks: Iterator[str], mark: str) -> tuple[Type, str]:
    members: list[Type] = []
    while True:
        member, mark = _parse_one(marks, mark)
        members.append(member)
        if mark != _UNION:
            return (members[0] if len(members) == 1 else union(members)), mark
        mark = next(marks)


def _parse_one(marks: Iterator[str], name: str) -> tuple[Type, str]:
    if name in _MARKS:
        raise ValueError(name)
    mark = next(marks)
    if mark != "[":
        return Type(name), mark
    args: list[Type] = []
    mark = next(marks)
    while mark != "]":
        arg, mark = _parse_union(marks, mark)
        args.append(arg)
        if mark == ",":
            mark = next(marks)
        elif mark != "]":
            raise ValueError(mark)
    return Type(name, tuple(args)), next(marks)


def renamed(found: Type, name_now: Callable[[str], str]) -> Type:
    """A type in which each class has the name that it has now."""
    if found.args is None:
        return Type(name_now(found.name))
    if found.name == "Literal":
        return Type("Literal", tuple(Type(_renamed_member(value.name, name_now)) for value in found.args))
    return Type(name_now(found.name), tuple(renamed(arg, name_now) for arg in found.args))


def _renamed_member(value: str, name_now: Callable[[str], str]) -> str:
    owner, dot, member = value.rpartition(".")
    return f"{name_now(owner)}.{member}" if dot and not _is_quoted(value) else value


def _is_quoted(text: str) -> bool:
    return text.endswith(("'", '"'))


# Comparing.


def takes(new: Type, old: Type) -> bool:
    """Whether every value of the old type is one of the new type, in a way that is plain to see."""
    if new in (old, ANY, OBJECT) or old.name == MIGRATED:
        return True
    if old.name == _UNION:
        return all(takes(new, member) for member in old.members())
    if old.name == "Literal":
        return all(_takes_value(new, value) for value in old.args or ())
    if new.name == _UNION:
        return any(takes(member, old) for member in new.members())
    if old.name == "Annotated":
        return _takes_limited(new, old)
    return (new.name == old.name or old.name in _WIDER.get(new.name, ())) and _takes_args(new, old)


def _takes_args(new: Type, old: Type) -> bool:
    if new.args is None:
        return True
    args = (ANY,) * len(new.args) if old.args is None else old.args
    if REST in (*new.args, *args) or len(args) != len(new.args):
        # A tuple of so many items is also one of any number.
        is_open = new.args[1:] == (REST,) or new.name == "collections.abc.Sequence"
        return is_open and old.name == "tuple" and all(takes(new.args[0], arg) for arg in args if arg != REST)
    return all(takes(*pair) for pair in zip(new.args, args, strict=True))


def _takes_limited(new: Type, old: Type) -> bool:
    was, *before = old.args or (ANY,)
    if new.name != "Annotated":
        return takes(new, was)
    now, *limits = new.args or (ANY,)
    return takes(now, was) and not tightened((text.name[1:-1] for text in before), (text.name[1:-1] for text in limits))


def _takes_value(new: Type, value: Type) -> bool:
    """Whether a type takes one value of a Literal."""
    kinds = _kinds(value.name)
    return any(
        value in (member.args or ()) if member.name == "Literal" else member.name in kinds for member in new.members()
    )


def _kinds(value: str) -> set[str]:
    """The types that a value of a Literal is of."""
    if value in ("True", "False"):
        return {"bool"}
    if value == "None":
        return {"None"}
    if _is_quoted(value):
        return {"bytes" if value.startswith("b") else "str"}
    return {"int", "float"} if value.lstrip("-").isdigit() else {value.rpartition(".")[0]}


_LIMIT = re.compile(r"(\w+)\((\w+)=(-?\d+(?:\.\d+)?)\)")
_AT_LEAST = frozenset({"Ge", "Gt", "MinLen"})
_AT_MOST = frozenset({"Le", "Lt", "MaxLen"})


def tightened(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The constraints that old values may not meet: those that are new, and not looser than one before."""
    before = list(old)
    return [limit for limit in new if limit not in before and not any(_is_looser(limit, was) for was in before)]


def _is_looser(new: str, old: str) -> bool:
    now, was = _LIMIT.fullmatch(new), _LIMIT.fullmatch(old)
    if now is None or was is None or now[1] != was[1]:
        return False
    number, before = float(now[3]), float(was[3])
    return (now[1] in _AT_LEAST and number <= before) or (now[1] in _AT_MOST and number >= before)
