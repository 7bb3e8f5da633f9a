"""Encryption: AES-256-GCM, with keys that can be exchanged, and values that are tied to where they belong."""

import base64
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.errors import BadRegistry, MissingExtra, MissingKey, Tampered
from holdfast.serde.context import CheckpointContext

_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY_BYTES = 32
_NONCE_BYTES = 12


class Keys:
    """The keys of a serializer by their ids. The last one writes; each of them reads what it wrote.

    A key is 32 random bytes, or their base64. Make one with `new_key()`. To rotate, add a new key behind the
    others and run `holdfast migrate`; then the old ones can go.
    """

    def __init__(self, keys: Mapping[str, bytes | str]) -> None:
        self._keys = {key_id: _key(number, key_id, key) for number, (key_id, key) in enumerate(keys.items(), 1)}
        if not self._keys:
            msg = "there must be at least one key"
            raise BadRegistry(msg)
        self.newest = list(self._keys)[-1]

    @classmethod
    def from_text(cls, text: str) -> "Keys":
        """Keys from text such as an environment variable holds: `id:base64`, several with commas between."""
        pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
        for number, (_, colon, _) in enumerate(pairs, 1):
            if not colon:
                msg = f"key number {number} has no id of a key before it: write id:base64"
                raise BadRegistry(msg)
        ids = [key_id for key_id, _, _ in pairs]
        if len(set(ids)) < len(ids):
            msg = f"of {len(ids)} keys two have the same id"
            raise BadRegistry(msg)
        return cls({key_id: key for key_id, _, key in pairs})

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._keys)})"

    def encrypt(self, tag: str, data: bytes, context: CheckpointContext) -> bytes:
        """Encrypt with the newest key; `tag` and the record that it is for are sealed with it."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = _cipher(self._keys[self.newest]).encrypt(nonce, data, _bound(tag, context))
        return nonce + sealed

    def decrypt(self, key_id: str, tag: str, data: bytes, context: CheckpointContext) -> bytes:
        """Decrypt what was encrypted under this very tag for this very record."""
        key = self._keys.get(key_id)
        if key is None:
            msg = f"encrypted with key {key_id!r}, which is not among the keys handed in ({', '.join(self._keys)})"
            raise MissingKey(msg)
        nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        cipher = _cipher(key)
        try:
            opened: bytes = cipher.decrypt(nonce, sealed, _bound(tag, context))
        except Exception as error:
            msg = (
                "the encrypted data isn't what was stored here: it was changed, or belongs to another record, "
                f"or key {key_id!r} is another one now"
            )
            raise Tampered(msg) from error
        return opened


def new_key() -> str:
    """A new random key, in base64."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()


def _key(number: int, key_id: str, key: bytes | str) -> bytes:
    # The id is not in these messages: what was put in its place may be the key.
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        msg = f"key number {number} has what can't be the id of a key: up to 64 letters, digits, '_', '-' and '.'"
        raise BadRegistry(msg)
    try:
        raw = base64.b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES:
        size = f"{_KEY_BYTES} bytes"
        msg = f"key number {number} isn't {size}, or the base64 of {size}: make one with new_key()"
        raise BadRegistry(msg)
    return raw


def _bound(tag: str, context: CheckpointContext) -> bytes:
    # As Python writes it in ASCII: no two records are written alike, whatever characters are in their names.
    return ascii((tag, *context.bound)).encode()


@lru_cache(maxsize=64)
def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("encryption", "cryptography", "crypto") from error
    return AESGCM(key)
