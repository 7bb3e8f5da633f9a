"""Encrypted values: for one key, one record and one tag; anything else is refused."""

import base64
import os
import subprocess
import sys
from typing import Any

import pytest
import serde_models as models

from holdfast.errors import BadRegistry, MissingExtra, MissingKey, Tampered, Unreadable
from holdfast.serde import CheckpointContext, CheckpointSerializer, Keys, crypto, new_key

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = CheckpointContext("t", "", "c", "messages", bound=("t", "", "c", "messages"))
VALUE = models.Leaf(name="a secret", value=["x" * 600, (1, 2)])

CODECS = ("msgpack", "json")


@pytest.fixture(params=[(codec, compress) for codec in CODECS for compress in (False, True)], ids=str)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    codec, compress = request.param
    return {"codec": codec, "compress": compress}


def encrypting(options: dict[str, Any], **keys: bytes) -> CheckpointSerializer:
    return CheckpointSerializer(**options, keys=Keys(keys or {"new": NEW}))


# Keys.


def test_a_key_is_32_bytes_or_their_base64() -> None:
    """Both forms of a key are the same key."""
    text = base64.b64encode(NEW).decode()
    stored = encrypting({}, k=NEW).dumps_typed(VALUE)
    for keys in (Keys({"k": text}), Keys.from_text(f"k:{text}"), Keys.from_text(f" other:{new_key()} , k:{text},")):
        assert CheckpointSerializer(keys=keys).loads_typed(stored) == VALUE


@pytest.mark.parametrize(
    "key", [b"", b"x" * 31, b"x" * 33, "", "x" * 32, "not base64!", base64.b64encode(b"x").decode()]
)
def test_other_keys_are_refused(key: Any) -> None:
    """A password is no key."""
    with pytest.raises(BadRegistry, match="32 bytes"):
        Keys({"k": key})


@pytest.mark.parametrize("key_id", ["", "a:b", "a b", "a" * 65, "ä", "a\n", 5])
def test_other_ids_are_refused(key_id: Any) -> None:
    """They stand in the stored type tag."""
    with pytest.raises(BadRegistry, match="id of a key"):
        Keys({key_id: NEW})


def test_there_is_a_key_and_each_has_an_id_of_its_own() -> None:
    """A missing environment variable must not mean that nothing is encrypted."""
    with pytest.raises(BadRegistry, match="at least one"):
        Keys({})
    with pytest.raises(BadRegistry, match="at least one"):
        Keys.from_text(" , ")
    with pytest.raises(BadRegistry, match="same id"):
        Keys.from_text(f"a:{new_key()},a:{new_key()}")


@pytest.mark.parametrize("text", ["{}", "a:b,{}", "{}:a", "{},{}", "a:{},a:{},{}", "a:{}?", "{}:", ":{}"])
def test_keys_are_not_shown_by_errors(text: str) -> None:
    """Whatever was forgotten or exchanged, no message has a key in it."""
    key = new_key()
    with pytest.raises(BadRegistry) as caught:
        Keys.from_text(text.replace("{}", key))
    assert key[:8] not in str(caught.value)


def test_an_id_that_was_forgotten_is_asked_for() -> None:
    """The hint says how it is written."""
    with pytest.raises(BadRegistry, match="key number 2 has no id of a key before it: write id:base64"):
        Keys.from_text(f"a:{new_key()},{new_key()}")


def test_keys_are_not_shown() -> None:
    """Not in a log, not in an error, not in a tag."""
    key = new_key()
    keys = Keys({"old": OLD, "new": key})
    tag, stored = CheckpointSerializer(keys=keys).dumps_typed(VALUE)
    with pytest.raises(Tampered) as caught:
        CheckpointSerializer(keys=keys).loads_typed((tag, stored[:-1] + b"?"))
    for text in (repr(keys), str(keys), tag, str(caught.value)):
        assert key not in text
        assert OLD.decode() not in text
    assert len({new_key() for _ in range(20)}) == 20


# What is stored.


def test_an_encrypted_value_is_not_to_be_read(options: dict[str, Any]) -> None:
    """Nor to be compared with another one: each time, other bytes."""
    serializer = encrypting(options)
    tag, stored = serializer.dumps_in(PLACE, VALUE)
    assert tag == f"hf1:{options['codec']}{':zstd' * options['compress']}:aes:new"
    assert b"a secret" not in stored
    assert b"Leaf" not in stored
    assert len({serializer.dumps_in(PLACE, VALUE)[1] for _ in range(20)}) == 20
    assert serializer.loads_in(PLACE, (tag, stored)) == VALUE


# Rotation.


def test_old_keys_read_and_the_newest_writes(options: dict[str, Any]) -> None:
    """A refresh encrypts with the newest; then the old one can go."""
    old, both, new = encrypting(options, old=OLD), encrypting(options, old=OLD, new=NEW), encrypting(options, new=NEW)
    stored = old.dumps_in(PLACE, VALUE)
    assert both.loads_in(PLACE, stored) == VALUE
    fresh = both.refreshed(PLACE, stored)
    assert fresh is not None
    assert fresh[0].endswith(":aes:new")
    assert new.loads_in(PLACE, fresh) == VALUE
    assert both.refreshed(PLACE, fresh) is None
    with pytest.raises(MissingKey, match="'old'"):
        new.loads_in(PLACE, stored)


def test_a_key_that_is_not_there_is_named(options: dict[str, Any]) -> None:
    """Whether there are others or none."""
    stored = encrypting(options, old=OLD).dumps_in(PLACE, VALUE)
    with pytest.raises(MissingKey, match=r"'old'.*new"):
        encrypting(options, new=NEW).loads_in(PLACE, stored)
    with pytest.raises(MissingKey, match="'old'"):
        CheckpointSerializer(**options).loads_in(PLACE, stored)


def test_another_key_of_the_same_id_is_refused(options: dict[str, Any]) -> None:
    """The message says that it may be the key."""
    stored = encrypting(options, k=OLD).dumps_in(PLACE, VALUE)
    with pytest.raises(Tampered, match="key 'k' is another one"):
        encrypting(options, k=NEW).loads_in(PLACE, stored)


# Tampering.


def test_what_is_not_encrypted_is_refused(options: dict[str, Any]) -> None:
    """Or whoever can write to the database could leave the encryption out."""
    clear = CheckpointSerializer(**options).dumps_in(PLACE, VALUE)
    legacy = [("null", b""), ("msgpack", b"\x01"), ("json", b"1"), ("bytes", b"1"), ("pickle", b"")]
    for stored in (clear, *legacy):
        with pytest.raises(Tampered, match="not encrypted"):
            encrypting(options).loads_in(PLACE, stored)


def test_older_data_may_be_read_while_it_is_being_encrypted(options: dict[str, Any]) -> None:
    """If the application says so; a refresh encrypts it."""
    stored = CheckpointSerializer(**options).dumps_in(PLACE, VALUE)
    moving = CheckpointSerializer(**options, keys=Keys({"new": NEW}), plaintext=True)
    assert moving.loads_in(PLACE, stored) == VALUE
    fresh = moving.refreshed(PLACE, stored)
    assert fresh is not None
    assert encrypting(options).loads_in(PLACE, fresh) == VALUE


@pytest.mark.parametrize(
    "tag",
    [
        "hf1:msgpack:aes:new", "hf1:json:aes:new", "hf1:msgpack:zstd:aes:new", "hf1:json:zstd:aes:new",
        "hf1:msgpack:aes:old", "hf2:msgpack:aes:new", "msgpack:aes:new", "json:aes:new", "pickle:aes:new",
        "bytes:aes:new", ":aes:new", "hf1:msgpack:aes:new:aes:new", "hf1:msgpack:aes:", "hf1:msgpack:aes:none",
    ],
)  # fmt: skip
def test_a_tag_cannot_be_exchanged(options: dict[str, Any], tag: str) -> None:
    """It is sealed together with the value."""
    serializer = encrypting(options, old=OLD, new=NEW)
    own, stored = serializer.dumps_in(PLACE, VALUE)
    if tag == own:
        assert serializer.loads_in(PLACE, (tag, stored)) == VALUE
        return
    with pytest.raises((Tampered, MissingKey)):
        serializer.loads_in(PLACE, (tag, stored))


@pytest.mark.parametrize(
    "bound",
    [
        (), ("t",), ("t", "", "c"), ("t", "", "c", "other"), ("u", "", "c", "messages"), ("t", "n", "c", "messages"),
        ("t", "", "c2", "messages"), ("t", "", "c", "messages", ""), ("", "t", "c", "messages"), ("t", "c", "messages"),
        (("t", "", "c", "messages"),), ("t', '", "c", "messages"), (b"t", "", "c", "messages"),
        ("t", "", "c", "messages", 0),
    ],
)  # fmt: skip
def test_a_value_cannot_be_put_elsewhere(options: dict[str, Any], bound: tuple[Any, ...]) -> None:
    """Another thread, checkpoint or channel is another record."""
    serializer = encrypting(options)
    stored = serializer.dumps_in(PLACE, VALUE)
    with pytest.raises(Tampered):
        serializer.loads_in(PLACE._replace(bound=bound), stored)


def test_records_that_look_alike_are_not_the_same() -> None:
    """Numbers are not their text, True is not 1, and no name can be written so that it ends another."""
    serializer = encrypting({})
    bounds: list[tuple[Any, ...]] = [
        (1,), ("1",), (True,), (1.0,), (b"1",), (None,), ("None",), ("a", "b"), ("a, b",), ("a', 'b",), ("\ud800",),
        ("?",), ("é",),
        ("e\u0301",), ("a\0",), ("a",), (("a",),), (["a"],),
    ]  # fmt: skip
    for bound in bounds:
        stored = serializer.dumps_in(PLACE._replace(bound=bound), 5)
        for other in bounds:
            if other is bound:
                assert serializer.loads_in(PLACE._replace(bound=other), stored) == 5
            else:
                with pytest.raises(Tampered):
                    serializer.loads_in(PLACE._replace(bound=other), stored)


def test_a_value_is_moved_by_who_has_the_keys(options: dict[str, Any]) -> None:
    """It is encrypted for its new place, and no longer for the old one."""
    serializer = encrypting(options)
    target = PLACE._replace(bound=("other",))
    moved = serializer.moved(PLACE, target, serializer.dumps_in(PLACE, VALUE))
    assert serializer.loads_in(target, moved) == VALUE
    with pytest.raises(Tampered):
        serializer.loads_in(PLACE, moved)
    with pytest.raises(Tampered):
        serializer.moved(target, PLACE, serializer.dumps_in(PLACE, VALUE))
    clear = CheckpointSerializer(**options)
    assert clear.moved(PLACE, target, ("hf1:msgpack", b"\x01")) == ("hf1:msgpack", b"\x01")


def test_each_bit_counts(options: dict[str, Any]) -> None:
    """A changed, shortened or lengthened value is refused before it is read."""
    serializer = encrypting(options)
    tag, stored = serializer.dumps_in(PLACE, models.Leaf(name="x"))
    changed = [stored[:n] + bytes([stored[n] ^ 1]) + stored[n + 1 :] for n in range(len(stored))]
    shorter = [stored[:n] for n in range(len(stored))]
    for wrong in (*changed, *shorter, stored + b"\0", b"\0" + stored, stored * 2):
        with pytest.raises(Tampered):
            serializer.loads_in(PLACE, (tag, wrong))


OPTIMIZED = """
import sys
from holdfast.errors import MissingKey, Tampered
from holdfast.serde import CheckpointContext, CheckpointSerializer, Keys
assert False  # is not run: this is python -O
one, other = CheckpointContext(bound=("one",)), CheckpointContext(bound=("other",))
serializer = CheckpointSerializer(keys=Keys({"k": b"k" * 32}))
tag, data = serializer.dumps_in(one, "secret")
if serializer.loads_in(one, (tag, data)) != "secret":
    sys.exit("it can't be read")
attempts = {
    "elsewhere": (other, tag, data), "changed": (one, tag, data[:-1] + bytes([data[-1] ^ 1])),
    "short": (one, tag, data[:5]),
    "retagged": (one, tag.replace("msgpack", "json"), data), "plaintext": (one, "hf1:msgpack", b"\\x01"),
    "legacy": (one, "msgpack", b"\\x01"), "another key": (one, tag + "2", data), "empty": (one, tag, b""),
}
for name, (place, wrong_tag, wrong) in attempts.items():
    try:
        serializer.loads_in(place, (wrong_tag, wrong))
    except (Tampered, MissingKey):
        continue
    sys.exit(name)
"""


def test_all_of_this_holds_without_asserts() -> None:
    """`python -O` leaves them out."""
    done = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMIZED], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_cryptography_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and writing alike."""
    tag, stored = encrypting({}, k=NEW).dumps_in(PLACE, 1)
    crypto._cipher.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    for use in (
        lambda: encrypting({}, k=NEW).dumps_in(PLACE, 1),
        lambda: encrypting({}, k=NEW).loads_in(PLACE, (tag, stored)),
    ):
        with pytest.raises(MissingExtra, match="cryptography"):
            use()


def test_random_bytes_are_refused(options: dict[str, Any]) -> None:
    """By name, as anything that was not stored by holdfast."""
    for tag in ("hf1:msgpack:aes:new", "hf1:json:zstd:aes:new"):
        for size in (0, 1, 11, 12, 27, 28, 29, 100):
            with pytest.raises(Tampered):
                encrypting(options).loads_in(PLACE, (tag, os.urandom(size)))
    with pytest.raises(Unreadable):
        CheckpointSerializer(**options).loads_in(PLACE, ("hf1:msgpack:aes:new", b""))
