"""Stored data as an attacker would write it, and a watch over what reading it sets off."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ormsgpack

Stored = tuple[str, bytes]

# --- forms: everything in which stored data can name something


def ext(code: int, payload: Any) -> Any:
    return ormsgpack.Ext(code, ormsgpack.packb(payload, option=ormsgpack.OPT_NON_STR_KEYS))


def packed(value: Any) -> Stored:
    return "hf1:msgpack", ormsgpack.packb(value)


def head(name: str, shape: bytes = b"", given: list[str] | None = None, version: int = 0) -> bytes:
    return ormsgpack.packb([name, version, shape, given])


def typed(
    name: str, data: Any, *, shape: bytes = b"", given: list[str] | None = None, rest: Any = None, version: int = 0
) -> Stored:
    """An instance of a class, as msgpack has it."""
    parts = [head(name, shape, given, version), data]
    return packed(ext(0, parts if rest is None else [*parts, rest]))


def run(name: str, data: Any, *, shape: bytes = b"") -> Stored:
    """A run of one instance."""
    return packed(ext(1, [[head(name, shape)], b"\0", [data]]))


def written(name: str, data: Any, *, shape: bytes = b"", rest: Any = None, version: int = 0) -> Stored:
    """An instance of a class, as JSON has it."""
    envelope = {"_type": name, "_version": version, "_data": data, "_shape": shape.hex()}
    return "hf1:json", json.dumps(envelope if rest is None else {**envelope, "_rest": rest}).encode()


def legacy(code: int, *parts: Any) -> Stored:
    """An extension type of JsonPlusSerializer's."""
    return "msgpack", ormsgpack.packb(ext(code, list(parts)))


def forms(module: str, name: str, data: dict[str, Any], *, shape: bytes = b"") -> list[Stored]:
    """All forms that name something, with some data for it."""
    place = f"{module}:{name}"
    kept = ormsgpack.packb([head(place, shape), data])
    kept_json = written(place, data, shape=shape)[1]
    path = [*module.split("."), name]
    value = next(iter(data.values()), None)
    return [
        typed(place, data, shape=shape),
        typed(place, data, shape=shape, rest=data),
        typed(f"{place}[int]", data),
        typed(f"pydantic.root_model:RootModel[{place}]", {"root": data}),
        run(place, data, shape=shape),
        written(place, data, shape=shape),
        written(place, data, shape=shape, rest=data),
        packed(ext(33, [place, 0, kept_json])),
        ("hf1:json", json.dumps({"_type": "msgpack", "_data": [place, 0, kept.hex()]}).encode()),
        legacy(0, module, name, value),
        legacy(1, module, name, list(data.values())),
        legacy(2, module, name, data),
        legacy(3, module, name, value, "run"),
        legacy(4, module, name, data),
        legacy(5, module, name, data, "model_validate"),
        legacy(6, place, [1], "C", b"\0"),
        packed(ext(22, [place, [1], "C", b"\0"])),
        legacy(7, {"value": [module, name, value]}),
        *(
            ("json", json.dumps({"lc": form, "type": "constructor", "id": path, **rest}).encode())
            for form in (1, 2)
            for rest in (
                {"kwargs": data},
                {"args": list(data.values())},
                {"args": [], "kwargs": data, "method": [None, "construct"]},
                {"args": [value], "method": "run"},
            )
        ),
    ]


# --- a watch

_EVENTS = (
    "import", "exec", "compile", "open", "code.__new__", "pickle.find_class", "marshal.", "ctypes.", "socket.",
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.putenv", "shutil.", "tempfile.", "urllib.", "webbrowser.",
)  # fmt: skip
_seen: list[str] | None = None
_is_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _seen is not None and event.startswith(_EVENTS):
        _seen.append(f"{event} {args[:1]!r}"[:200])


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note each import, opened file, process and compiled code."""
    global _seen, _is_hooked  # noqa: PLW0603 - an audit hook can't be taken away again
    if not _is_hooked:
        sys.addaudithook(_audit)
        _is_hooked = True
    seen: list[str] = []
    _seen = seen
    try:
        yield seen
    finally:
        _seen = None
