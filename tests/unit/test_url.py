"""URLs taken apart, and the errors for those that can't be."""

from typing import Any

import pytest

from holdfast.errors import BadURL
from holdfast.url import URL, open_store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory://", URL("memory")),
        ("memory://shared", URL("memory", host="shared")),
        ("sqlite:///a.db", URL("sqlite", path="/a.db")),
        ("sqlite:////tmp/a.db", URL("sqlite", path="//tmp/a.db")),
        ("sqlite:///:memory:", URL("sqlite", path="/:memory:")),
        ("SQLite:///a%20b.db", URL("sqlite", path="/a b.db")),
        ("sqlite:///a.db?namespace=n&timeout=5", URL("sqlite", path="/a.db", namespace="n", options={"timeout": "5"})),
        ("sqlite:///a.db?namespace=", URL("sqlite", path="/a.db")),
        ("x://u:p%40ss@host:5/db", URL("x", host="host", port=5, user="u", password="p@ss", path="/db")),
        ("x://host/?namespace=a%26b%3D", URL("x", host="host", path="/", namespace="a&b=")),
    ],
)
def test_parse(text: Any, expected: Any) -> None:
    assert URL.parse(text) == expected


def test_the_namespace_may_be_an_argument() -> None:
    assert URL.parse("memory://", namespace="n").namespace == "n"
    assert URL.parse("memory://?namespace=n", namespace="n").namespace == "n"
    with pytest.raises(BadURL, match="give one"):
        URL.parse("memory://?namespace=n", namespace="m")


@pytest.mark.parametrize("text", ["", "agent.db", "/tmp/agent.db", "sqlite:/a.db", "x://host:port/", "x://h/?a"])
def test_what_is_no_url(text: Any) -> None:
    with pytest.raises(BadURL):
        URL.parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sqlite:/agent.db", "three slashes before a relative path.*sqlite:///agent.db"),
        ("sqlite:agent.db", "three slashes before a relative path.*sqlite:///agent.db"),
        ("postgresql:app:secret@host/db", "two slashes.*postgresql://…$"),
        ("agent.db", "no scheme"),
    ],
)
def test_a_url_with_too_few_slashes_is_told_its_form(text: str, says: str) -> None:
    with pytest.raises(BadURL, match=says) as raised:
        URL.parse(text)
    assert "secret" not in str(raised.value)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(URL.parse("x://user:secret@host/"))
    with pytest.raises(BadURL) as raised:
        open_store("nosuch://user:secret@host/")
    assert "secret" not in str(raised.value)
    with pytest.raises(BadURL) as raised:
        URL.parse("x://user:secret@host:port/")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory://", "memory://"),
        ("sqlite:///agent.db?timeout=5", "sqlite:///agent.db"),
        ("sqlite:////var/a%20b.db", "sqlite:////var/a%20b.db"),
        ("sqlite:///:memory:?namespace=a%26b", "sqlite:///:memory:?namespace=a%26b"),
        ("postgresql://app:secret@db.example:5432/agents?password=secret", "postgresql://db.example:5432/agents"),
        ("postgresql://app:secret@[::1]:5432/agents", "postgresql://[::1]:5432/agents"),
        ("mongodb://app:secret@one:1,two:2/agents?authSource=secret", "mongodb://one:1,two:2/agents"),
        ("redis://:secret@Host/0?namespace=n", "redis://Host/0?namespace=n"),
        ("redis://secret@host/0", "redis://host/0"),
        ("s3://bucket/prefix?secret_access_key=secret", "s3://bucket/prefix"),
        ("sqlite:///\ud800.db", "sqlite:///%3F.db"),
    ],
)
def test_a_url_is_shown_without_secrets(text: str, expected: str) -> None:
    assert URL.parse(text).shown() == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nosuch://host", "memory://"),
        ("memory://?tpyo=1", "tpyo"),
        ("sqlite://agent.db", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///a.db?synchronous=maybe", "synchronous"),
        ("sqlite:///a.db?timeout=soon", "timeout"),
        ("sqlite:///a%00b.db", "NUL"),
        (42, "int"),
        (None, "NoneType"),
    ],
)
def test_what_cannot_be_opened(source: Any, message: Any) -> None:
    """The error says what is wrong."""
    with pytest.raises(BadURL, match=message):
        open_store(source)
