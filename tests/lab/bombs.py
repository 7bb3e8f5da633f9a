"""Small stored data that would take all memory, all time or all of the stack, and a process to set it off in.

`python bombs.py GROUP` reads each value of a group, in a thread with a stack of the usual size. It says which one it is
about to read, so that whoever started it can tell at which one it died.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Iterator

import orjson
import ormsgpack
import zstandard
from hostile import Stored, ext, head, legacy, packed

from holdfast.errors import HoldfastError
from holdfast.serde import CheckpointSerializer

Bombs = Iterator[tuple[str, Stored]]

ALL_MEMORY = 3 << 30
MUCH = 10**10
"""More than any machine will count to or hold in the time that a test takes."""


def nested(code: int, pieces: int, levels: int) -> bytes:
    """Extensions inside one another, each inside some arrays."""
    data = b"\x01"
    for _ in range(pieces):
        data = b"\x91" * levels + ormsgpack.packb(ormsgpack.Ext(code, b"\x91" + data))
    return data


def pieces() -> Bombs:
    for code in (0, 1, 2, 5, 6, 7, 33):
        for depth in (1, 7, 8, 9, 10, 20, 199, 200, 201, 2000):
            for levels in (0, 1, 100, 500, 1000, 1022, 2000):
                if depth * levels <= 400_000:
                    data = nested(code, depth, levels)
                    yield f"{depth} ext {code} in {levels} arrays", ("hf1:msgpack", data)
                    yield f"{depth} old ext {code} in {levels} arrays", ("msgpack", data)
    yield "arrays alone", ("hf1:msgpack", b"\x91" * 100_000 + b"\x01")
    yield "maps alone", ("hf1:msgpack", b"\x81\xa1a" * 100_000 + b"\x01")


def foreign() -> Bombs:
    """Each form inside the other."""
    data = b"\x01"
    for depth in range(1, 9):
        inner = data
        for _ in range(8):
            inner = b"\x91" * 1000 + ormsgpack.packb(ormsgpack.Ext(2, b"\x91" + inner))
        raw = b"\x92" + ormsgpack.packb(head("a:B")) + inner
        text = orjson.dumps({"_type": "msgpack", "_data": ["a:B", 0, raw.hex()]})
        data = ormsgpack.packb(ormsgpack.Ext(33, ormsgpack.packb(["a:B", 0, text])))
        yield f"{depth} forms in one another", ("hf1:msgpack", data)
        yield f"{depth} forms in one another, JSON outside", ("hf1:json", text)


def copies() -> Bombs:
    """The unpacker copies what is inside each piece."""
    for code, tag in ((2, "hf1:msgpack"), (7, "msgpack")):
        data = ormsgpack.packb(b"x" * 5_000_000)
        for _ in range(150):
            data = ormsgpack.packb(ormsgpack.Ext(code, b"\x91" + data))
        yield f"5 MB in 150 ext {code}", (tag, data)


def iterables() -> Bombs:
    """What is short to write and long to go through."""
    endless = {
        "range": ext(27, [0, MUCH, 1]),
        "rows": ext(22, ["<i4", [MUCH, 0], "C", b""]),
        "number": 2**36,
        "network": ext(21, ["IPv6Network", "::/0"]),
    }
    for name, payload in endless.items():
        for code in range(64):
            yield f"ext {code} of a {name}", packed(ext(code, payload))
            yield f"ext {code} of a list with a {name}", packed(ext(code, [payload]))
            yield f"ext {code} of two with a {name}", packed(ext(code, [None, payload]))
            yield f"old ext {code % 8} of a {name}", ("msgpack", packed(ext(code % 8, payload))[1])
        yield f"a run of a {name}", packed(ext(1, [[head("langchain.HumanMessage")], b"\0", [payload]]))
        yield f"a run over a {name}", packed(ext(1, [[head("langchain.HumanMessage")], payload, payload]))
        yield f"heads of a {name}", packed(ext(1, [payload, b"\0", [{}]]))
        yield f"fields of a {name}", packed(ext(0, [head("langchain.HumanMessage"), payload]))
        yield f"the rest of a {name}", packed(ext(0, [head("langchain.HumanMessage"), {"content": ""}, payload]))
        yield f"a shape of a {name}", packed(ext(22, ["<i4", payload, "C", b""]))
    ranged = {"_type": "range", "_data": [0, MUCH, 1]}
    for kind in (
        "tuple",
        "set",
        "frozenset",
        "deque",
        "dict",
        "Counter",
        "OrderedDict",
        "defaultdict",
        "range",
        "slice",
    ):
        yield f"JSON {kind} of a range", ("hf1:json", json.dumps({"_type": kind, "_data": ranged}).encode())
        yield f"JSON {kind} of a number", ("hf1:json", json.dumps({"_type": kind, "_data": MUCH}).encode())
    yield "JSON bytearray", ("hf1:json", json.dumps({"_type": "bytearray", "_data": MUCH}).encode())


def arrays() -> Bombs:
    for shape in (
        [MUCH],
        [2**32, 2**32],
        [-1],
        [-1, -1],
        [0, -5],
        [MUCH, 0],
        [1] * 100,
        [1.5],
        ["1"],
        [True],
    ):
        for dtype in ("<i4", "V0", "S0", "<U0", "O", "V2000000000", "i4,O", "<M8[ns]", "x", "", "<i4" * 9):
            for data in (b"", b"1234"):
                yield f"{dtype} {str(shape)[:40]}", packed(ext(22, [dtype, shape, "C", data]))
                yield f"old {dtype} {str(shape)[:40]}", legacy(6, dtype, shape, "C", data)
        yield f"parts {str(shape)[:40]}", packed(ext(22, [["<i4", shape], [1], "C", b""]))
    for stored in (packed(ext(22, ["<i4", [2**62] * 60_000, "C", b""])), legacy(6, "<i4", [2**62] * 60_000, "C", b"")):
        yield f"very many dimensions, {stored[0]}", stored
    fields = {"names": ["a"], "formats": ["<i4"], "offsets": [2**40], "itemsize": 2**40, "align": False}
    yield "fields far away", packed(ext(22, [fields, [0], "C", b""]))
    yield (
        "fields of objects",
        packed(ext(22, [{**fields, "formats": ["O"], "offsets": [0], "itemsize": 8}, [1], "C", b"12345678"])),
    )
    deep: object = "<i4"
    for _ in range(60):
        deep = [deep, [1]]
    yield "fields in fields", packed(ext(22, [deep, [1], "C", b"1234"]))
    yield "a scalar", packed(ext(30, ["V2000000000", b""]))


def numbers() -> Bombs:
    long = "f" * 9_000_000
    odd = "e" * 8_999_999 + "1"
    yield "a fraction", packed(ext(29, [ext(7, long), ext(7, odd)]))
    yield "a range", packed(ext(27, [0, ext(7, long), 1]))
    yield "an int", packed(ext(7, "f" * 50_000_000))
    yield "a decimal", packed(ext(17, "1e999999999999999999"))
    yield (
        "a set of decimals",
        packed(ext(3, [ext(17, "1e999999999999999999"), ext(17, "1e-999999999999999999"), 1, 0.5])),
    )
    yield "a set of NaN", packed(ext(3, [ext(17, "sNaN"), 1]))
    yield "a long decimal", packed(ext(17, "9" * 5_000_000))
    yield "a flag", packed(ext(0, [head("re:RegexFlag"), {"name": None, "value": ext(7, long)}]))
    yield "a date", packed(ext(12, "99999-99-99"))
    yield "a moment", packed(ext(11, ["9999-12-31T23:59:59+23:59", "Pacific/Kiritimati", 1]))
    yield "a time span", packed(ext(14, [10**18, 10**18, 10**18]))
    yield "an offset", packed(ext(15, [10**18, 0, None]))
    yield "JSON", ("hf1:json", b"1" * 1_000_000)
    yield "old JSON", ("json", b"1" * 1_000_000)
    yield "a float", packed(ext(31, "1" * 5_000_000))


def patterns() -> Bombs:
    for name, pattern in {
        "ranges": "[\0-\uffff]" * 4_000,
        "groups": "(" * 20_000 + ")" * 20_000,
        "repeats": "(?:" * 90 + "a" + "{1,65535})" * 90,
        "long": "a" * 5_000_000,
        "behind": "(?<=" + "(a|b)" * 5_000 + ")",
    }.items():
        yield name, packed(ext(20, [pattern, 2]))
        yield f"old {name}", legacy(1, "re", "compile", [pattern, 2])
    yield "flags", packed(ext(20, ["a", 128]))
    yield "more flags", packed(ext(20, ["a", 2**40]))


def lengths() -> Bombs:
    for lead in (b"\xdd", b"\xdf", b"\xdb", b"\xc6"):
        for tag in ("hf1:msgpack", "msgpack"):
            yield f"{lead.hex()} {tag}", (tag, lead + b"\xff\xff\xff\xff")
            yield f"{lead.hex()} in {tag}", (tag, b"\x91" * 500 + lead + b"\xff\xff\xff\xff")
    yield "ext", ("hf1:msgpack", b"\xc9\xff\xff\xff\xff\x01")


def zstd() -> Bombs:
    squeeze = zstandard.ZstdCompressor(level=3).compress
    nils = b"\xdd\x08\x00\x00\x00" + b"\xc0" * (1 << 27)
    yield "128 M of nothing", ("hf1:msgpack:zstd", squeeze(nils))
    yield "JSON", ("hf1:json:zstd", squeeze(b"[" + b"0," * (1 << 26) + b"0]"))
    yield "no size", ("hf1:msgpack:zstd", zstandard.ZstdCompressor(write_content_size=False).compress(nils))
    yield "a false size", ("hf1:msgpack:zstd", b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\x3f\x01\x00\x00")
    yield "a huge size", ("hf1:msgpack:zstd", b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00")
    yield "a skippable frame", ("hf1:msgpack:zstd", b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd")


def texts() -> Bombs:
    for depth in (100, 900, 1_023, 1_024, 5_000, 200_000):
        for tag in ("hf1:json", "json"):
            yield f"{depth} lists, {tag}", (tag, b"[" * depth + b"]" * depth)
            yield f"{depth} dicts, {tag}", (tag, b'{"a":' * depth + b"1" + b"}" * depth)
        yield f"{depth} tuples", ("hf1:json", b'{"_type":"tuple","_data":[' * depth + b"]}" * depth)
        envelope = b'{"_type":"langgraph.Interrupt","_version":0,"_data":{"value":'
        yield f"{depth} instances", ("hf1:json", envelope * depth + b"1" + b"}}" * depth)
        old = b'{"lc":2,"type":"constructor","id":["builtins","set"],"args":['
        yield f"{depth} old instances", ("json", old * depth + b"]}" * depth)
    name = "int"
    for _ in range(30):
        name = f"pydantic.root_model:RootModel[{name}]"
        yield f"a type of {len(name)} letters", packed(ext(0, [head(name), {"root": 1}]))
    yield "a long type", packed(ext(0, [head("a:b[" + "int, " * 1_000_000 + "int]"), {}]))
    yield "a deep type", packed(ext(0, [head("a:b[" * 100_000 + "]" * 100_000), {}]))
    yield "a long path", packed(ext(0, [head("os:" + "path." * 1_000_000), {}]))
    yield (
        "a union",
        packed(ext(0, [head(f"pydantic.root_model:RootModel[Union[{', '.join(['int', 'str'] * 90)}]]"), {"root": 1}])),
    )


GROUPS = {
    group.__name__: group
    for group in (pieces, foreign, copies, iterables, arrays, numbers, patterns, lengths, zstd, texts)
}


def _set_off(group: str) -> None:
    serde = CheckpointSerializer()
    for label, stored in GROUPS[group]():
        _say(label)
        before, start = _peak(), time.monotonic()
        try:
            value = serde.loads_typed(stored)
        except HoldfastError:
            pass
        else:
            try:
                serde.dumps_typed(value)
            except HoldfastError as error:
                if "deep" not in str(error):
                    raise
            del value
        _say(f"{_peak() - before} {time.monotonic() - start:.3f}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ALL_MEMORY, ALL_MEMORY))
    failed: list[object] = []
    threading.excepthook = failed.append
    thread = threading.Thread(target=_set_off, args=sys.argv[1:])
    thread.start()
    thread.join()
    if failed:
        sys.exit(repr(failed[0]))
