"""A configuration is the same if its settings are, and its secrets stay where they are."""

import enum
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, PostgresDsn, SecretStr

from holdfast.jobs import config_hash
from holdfast.jobs.configs import canonical, differences


class Size(enum.Enum):
    LARGE = "large"


class Nested(BaseModel):
    size: Size = Size.LARGE
    key: SecretStr = SecretStr("hunter2")
    url: PostgresDsn = PostgresDsn("postgresql://me:hunter2@db.example/x")


@dataclass
class Config:
    path: Path
    nested: Nested
    tags: frozenset[str] = frozenset({"b", "a"})
    wait: timedelta = timedelta(seconds=5)
    api_key: str = "hunter2"


def test_the_order_does_not_matter() -> None:
    assert config_hash({"a": 1, "b": {"c": 2, "d": [1, 2]}}) == config_hash({"b": {"d": [1, 2], "c": 2}, "a": 1})
    assert config_hash({"a": [1, 2]}) != config_hash({"a": [2, 1]})
    assert config_hash({"a": 1}) != config_hash({"a": True}) != config_hash({"a": "1"})
    assert config_hash(None) == ""


def test_models_dataclasses_and_what_is_in_them() -> None:
    made = canonical(Config(Path("/data"), Nested()))
    assert made["tags"] == ["a", "b"]
    assert made["nested"]["size"] == "large"
    assert made["path"] == "/data"
    assert json.loads(json.dumps(made)) == made


def test_secrets_are_hashed_and_still_differ() -> None:
    one, other = Config(Path(), Nested()), Config(Path(), Nested(key=SecretStr("other")))
    assert "hunter2" not in json.dumps(canonical(one))
    assert list(differences(canonical(one), canonical(other))) == ["nested.key"]
    changed: Any = Config(Path(), Nested(), api_key="other")
    assert list(differences(canonical(one), canonical(changed))) == ["api_key"]


def test_what_differs_is_named_by_its_path() -> None:
    before, now = {"a": {"b": 1, "c": 2}, "gone": 1}, {"a": {"b": 1, "c": 3}, "new": [1]}
    assert differences(before, now) == {
        "a.c": (2, 3),
        "gone": (1, "(not there)"),
        "new": ("(not there)", [1]),
    }
    assert differences(1, 2) == {"config": (1, 2)}


def test_what_has_no_canonical_form_is_named() -> None:
    with pytest.raises(TypeError, match=r"config\.model\.client is a object"):
        canonical({"model": {"client": object()}})


@pytest.mark.parametrize(
    "config",
    [
        {"api_keys": ["hunter2"]},
        {"token": {"v": "hunter2", "more": [{"deep": "hunter2"}]}},
        {"headers": {"Authorization": "Bearer hunter2", "X-Api-Key": "hunter2"}},
        {"private_key": "hunter2", "passphrase": "hunter2", "AWS_ACCESS_KEY_ID": "hunter2"},
        {"db": "postgresql://u:hunter2@h/d"},
        {"dbs": ["see redis://:hunter2@h:1/0 and https://u:p@hunter2@h/"]},
        ["mysql://u:hunter2@h/d"],
        ["https://h/?a=b&api_key=hunter2&c=d", "host=h password=hunter2"],
        "mysql://u:hunter2@h/d",
    ],
)
def test_secrets_are_hashed_however_deep_they_are(config: Any) -> None:
    assert "hunter2" not in json.dumps(canonical(config))
    assert config_hash(config) != config_hash(json.loads(json.dumps(config).replace("hunter2", "other")))


def test_what_only_looks_like_a_secret_stays() -> None:
    config = {"max_tokens": 100, "url": "https://h:80/a:b@c", "keys": ["a"], "at": "a://b c:d@e"}
    assert canonical(config) == config


def test_what_is_hashed_otherwise_differs() -> None:
    assert differences({"a": 1, "b": True}, {"a": 1.0, "b": 1}) == {"a": (1, 1.0), "b": (True, 1)}
    assert differences({"a": float("nan")}, {"a": float("nan")}) == {}
