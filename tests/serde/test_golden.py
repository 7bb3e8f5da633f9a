"""Every form that was ever stored is read for ever."""

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
import ormsgpack
import pytest
import serde_golden as golden
from sameness import difference

from holdfast.errors import NewerVersion, UnknownType
from holdfast.serde import CheckpointSerializer, Unknown
from holdfast.serde.kinds import KINDS, RUN, TYPED
from holdfast.serde.unknown import FOREIGN

FOLDER = Path(__file__).parents[1] / "golden" / "serde"
INDEX: dict[str, dict[str, str]] = json.loads((FOLDER / "index.json").read_text())
NAMED = {name for name, entry in INDEX.items() if entry["value"] != "placeholder"}
NUMPY = {"ndarray": 22, "numpy": 30}
IN_JSON_ALONE = {"float", "bytes"}


def stored(name: str) -> tuple[str, bytes]:
    return INDEX[name]["tag"], (FOLDER / f"{name}.bin").read_bytes()


def expected(name: str) -> Any:
    value = golden.VALUES[INDEX[name]["value"]]
    return value[0] if name.endswith("-message") else value


def reader(name: str) -> CheckpointSerializer:
    keys = golden.KEYS if ":aes:" in INDEX[name]["tag"] else None
    return golden.versioned("msgpack") if name.endswith("-versioned") else CheckpointSerializer(keys=keys)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_golden_file_is_read(name: str) -> None:
    """As the very value that was stored."""
    value = expected(name)
    assert difference(value, reader(name).loads_in(golden.PLACE, stored(name))) is None


@pytest.mark.parametrize("name", sorted(INDEX.keys() - NAMED))
def test_a_golden_placeholder_is_kept(name: str) -> None:
    """A value of a class that is gone: an error, or a placeholder that is written back as it was."""
    with pytest.raises(UnknownType, match=golden.GONE):
        CheckpointSerializer().loads_in(golden.PLACE, stored(name))
    value = golden.serializer().loads_in(golden.PLACE, stored(name))
    kept = {"nested": lambda: value["a"][1], "run": lambda: value[1]}.get(name.rpartition("-")[2], lambda: value)()
    assert (type(kept), kept.name, kept.version) == (Unknown, golden.GONE, 0)
    if not name.endswith("-run"):
        codec: Any = name.partition("-")[0]
        assert stored(name) == golden.serializer(codec=codec).dumps_in(golden.PLACE, value)


@pytest.mark.parametrize("name", ["msgpack-versioned", "json-versioned"])
def test_a_golden_file_of_newer_code_is_refused(name: str) -> None:
    """It was written after two migrations, and this serializer has none."""
    with pytest.raises(NewerVersion, match="version 2"):
        CheckpointSerializer().loads_in(golden.PLACE, stored(name))


def test_no_golden_file_was_changed() -> None:
    """Files and index have the same names, and each file is what it was when it was made."""
    assert {path.stem for path in FOLDER.glob("*.bin")} == INDEX.keys()
    for name, entry in INDEX.items():
        assert hashlib.sha256(stored(name)[1]).hexdigest() == entry["sha256"], name


@pytest.mark.parametrize("name", sorted(f"{codec}-{kind}" for codec in ("msgpack", "json") for kind in golden.KINDS))
def test_kinds_are_written_as_they_were(name: str) -> None:
    """A change of form is made on purpose, with a number of its own, or not at all."""
    codec, _, kind = name.partition("-")
    serializer = golden.serializer(codec=codec)
    assert serializer.dumps_in(golden.PLACE, golden.KINDS[kind]) == stored(name)


# That there is a file for everything.


def extensions(data: bytes) -> set[int]:
    """The numbers of all extensions in packed data, those inside others too."""
    found: set[int] = set()

    def note(code: int, inside: bytes) -> None:
        found.add(code)
        found.update(extensions(inside))

    ormsgpack.unpackb(data, ext_hook=note)
    return found


def names(tree: Any) -> set[str]:
    """The names of all that isn't plain in JSON: kinds, and `typed` for instances."""
    if isinstance(tree, list):
        return {name for item in tree for name in names(item)}
    if not isinstance(tree, dict):
        return set()
    inside = {name for item in tree.values() for name in names(item)}
    return inside | ({"typed" if "_version" in tree else tree["_type"]} if "_type" in tree else set())


def test_every_kind_has_a_golden_file() -> None:
    """In both codecs, seen in the bytes themselves."""
    packed = {code for name in INDEX if INDEX[name]["tag"] == "hf1:msgpack" for code in extensions(stored(name)[1])}
    readable = {
        word for name in INDEX if INDEX[name]["tag"] == "hf1:json" for word in names(orjson.loads(stored(name)[1]))
    }
    codes = {kind.code for kind in KINDS if kind.name not in IN_JSON_ALONE}
    assert packed == codes | {*NUMPY.values(), TYPED, RUN, FOREIGN}
    assert readable == {kind.name for kind in KINDS} | {*NUMPY, "typed", "msgpack"}


def test_every_form_has_a_golden_file() -> None:
    """Each tag that is ever written, and each form that the script knows."""
    stages = ("", ":zstd", ":aes:golden", ":zstd:aes:golden")
    tags = {f"hf1:{codec}{stage}" for codec in ("msgpack", "json") for stage in stages}
    assert tags == {entry["tag"] for entry in INDEX.values()}
    assert {name for name, _, _ in golden.forms()} <= INDEX.keys()
    assert {name for name, _, _ in golden.placeholders()} <= INDEX.keys()
