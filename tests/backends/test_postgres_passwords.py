"""A password is in no error, no log and no repr, however it was written and whatever went wrong."""

import logging
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import servers
from pglab import grant, role, user_of, with_options, with_user
from proxy import Proxy

import holdfast
from holdfast.errors import BadURL, HoldfastError, StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import config_of, name
from holdfast.url import URL

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
ODD = "tOp@ /:#?%&=+'\"\\é日]bOt"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store with its tables in it."""
    with servers.fresh("postgres") as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        yield url


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """All that is logged in a test, by the driver too."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not told(caplog.text)


def told(text: str) -> list[str]:
    """What a text tells of a password."""
    return [secret for secret in ("tOp", "bOt", quote("tOp"), "s3cret") if secret in text]


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and whatever led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def all_said(error: BaseException) -> str:
    """All that can be read of an error: by itself, as a traceback, and of what led to it."""
    texts = ["".join(traceback.format_exception_only(error))]
    for one in chain(error):
        texts += [str(one), repr(one), repr(one.args), *getattr(one, "__notes__", ())]
    return "\n".join(texts)


@BOTH
async def test_any_password_can_be_written(url: str, half: HalfName) -> None:
    with role(url, password=ODD) as there:
        grant(url, there)
        saver = Half(there, half)
        await saver.save(f"odd {half}", name(0), {"a": 1})
        assert not told(repr(saver.saver) + repr(saver.saver._store) + repr(vars(saver.saver)))
        wire: Any = saver.saver._store.blocking.wire  # type: ignore[attr-defined]
        assert not told(repr(wire._access) + str(wire._access))
        await saver.close()


@BOTH
async def test_a_wrong_one(url: str, half: HalfName) -> None:
    with role(url, password="right") as there:
        saver = Half(with_user(there, user_of(there), quote(ODD, safe="")), half)
        with pytest.raises(
            StoreError, match=r"authentication failed.*check user and password of the URL.*%XX"
        ) as caught:
            await saver.get(config_of("t"))
        assert user_of(there) in str(caught.value)
        assert not told(all_said(caught.value))
        await saver.close()


@BOTH
async def test_none(url: str, half: HalfName) -> None:
    with role(url, password="s3cret") as there:
        saver = Half(with_user(there, user_of(there)), half)
        with pytest.raises(StoreError, match=r"no password supplied.*needs a password") as caught:
            await saver.get(config_of("t"))
        assert not told(all_said(caught.value))
        await saver.close()


@BOTH
async def test_one_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
    with role(url, password="s3cret") as there:
        grant(url, there)
        monkeypatch.setenv("PGPASSWORD", "s3cret")
        saver = Half(with_user(there, user_of(there)), half)
        assert await saver.get(config_of("t")) is None
        await saver.close()


@BOTH
async def test_one_among_the_options(url: str, half: HalfName) -> None:
    with role(url, password="s3cret") as there:
        grant(url, there)
        given = with_options(with_user(there, user_of(there)), password="s3cret")
        saver = Half(given, half)
        assert await saver.get(config_of("t")) is None
        assert not told(repr(URL.parse(given)))
        await saver.close()


@BOTH
async def test_whatever_else_goes_wrong(url: str, half: HalfName) -> None:
    """Rights, lost connections, servers that are gone, names that are too long."""
    with role(url, password="s3cret") as there, Proxy(there) as proxy:
        saver = Half(with_options(proxy.url, retry=0), half)
        errors = []

        async def fail(action: Any) -> None:
            with pytest.raises(HoldfastError) as caught:
                await action
            errors.append(caught.value)

        await fail(saver.get(config_of("t")))
        grant(url, there)
        await saver.save("t", name(0), {"a": 1})
        await fail(saver.save("x" * 1_000_000, name(0), {"a": 1}))
        proxy.lose_request(1)
        await fail(saver.list(config_of("t")))
        proxy.refuse()
        proxy.cut()
        await fail(saver.get(config_of("t")))
        await saver.close()
        await fail(saver.get(config_of("t")))
        assert len(errors) == 5
        assert not told("\n".join(map(all_said, errors)))


MALFORMED = [
    "postgresql://u:tOp/bOt@127.0.0.1:1/db",
    "postgresql://u:12/tOp@127.0.0.1:1/db",
    "postgresql://u:tOp?bOt@127.0.0.1:1/db",
    "postgresql://u:tOp#bOt@127.0.0.1:1/db",
    "postgresql://u:tOp@bOt@127.0.0.1:1/db",
    "postgresql://u:tOp%bOt@127.0.0.1:1/db",
    "postgresql://u:tOp%zzbOt@127.0.0.1:1/db",
    "postgresql://u:tOp bOt@127.0.0.1:1/db",
    "postgresql://u:tOp\tbOt@127.0.0.1:1/db",
    "postgresql://u:tOp[bOt@127.0.0.1:1/db",
    "postgresql://u:tOp]bOt@127.0.0.1:1/db",
    "postgresql://u:tOp\N{ACCOUNT OF}bOt@127.0.0.1:1/db",
    "postgresql://u:tOp%00bOt@127.0.0.1:1/db",
    "postgresql://u:tOp\\bOt@127.0.0.1:1/db",
    "postgresql://u:tOpbOt@127.0.0.1:tOp/db",
    "postgresql://u:tOpbOt@127.0.0.1:99999/db",
    "postgresql://u:tOpbOt@127.0.0.1:1:2/db",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?a=b&nonsense",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?unknown=1",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?retry=often",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?pool=0",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?prepare=sometimes",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?sslmode=perhaps",
    "postgresql://u:tOpbOt@127.0.0.1:1/db?connect_timeout=soon",
    "postgresql://u@127.0.0.1:1/db?password=tOp/bOt",
    "postgresql://u@127.0.0.1:1/db?password=tOp&password=bOt",
    "postgresql://u:tOpbOt@[::1/db",
    "postgresql://u:tOpbOt@127.0.0.1:1,127.0.0.1:2/db",
    "postgresqlx://u:tOpbOt@127.0.0.1:1/db",
    "u:tOpbOt@127.0.0.1:1/db",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_urls_that_are_wrong(url: str) -> None:
    """Whatever is wrong with it: nothing of the password is repeated, and nothing that may be a part of it."""
    with pytest.raises((BadURL, StoreError)) as caught:
        holdfast.Saver(url).get_tuple(config_of("t"))
    assert not told(all_said(caught.value))
