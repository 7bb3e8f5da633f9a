"""MySQL's own matters: URLs, sessions, names, and errors that say what to do."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pymysql
import pytest
import servers
from mysqllab import ENGINES, rows_of, user
from pglab import with_options, with_user

import holdfast
from holdfast.backends.sql.mysql_session import native, refuse_old
from holdfast.errors import BadURL, Closed, StoreError, Unreadable
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name
from holdfast.testing.ids import NAMES
from lab import wire_of

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module", params=ENGINES)
def new(request: Any) -> Iterator[Callable[[], str]]:
    with servers.stores(request.param) as new:
        yield new


@pytest.fixture(scope="module")
def url(new: Callable[[], str]) -> str:
    """A store with its tables in it."""
    url = new()
    with holdfast.Saver(url) as saver:
        saver.setup()
    return url


OTHER_AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBkDCCATWgAwIBAgIULMK9uHdO9DXyigllyT/4E9QNa6EwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwIBcNMjYxMTE2MDUyMzU0WhgP
MjEyNjEwMjMwNTIzNTRaMBwxGjAYBgNVBAMMEWFub3RoZXIgYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErmFkVlZ5ee1oWsBfHA1BfthyflWKrVZw
GSazOGcz3Frix9cpOMYLDE600KBNUPdFMYkhpMpQxngKRCMeC9i9PKNTMFEwHQYD
VR0OBBYEFLgodYj1PZ54uPkw6Uh0oSdHzDU6MB8GA1UdIwQYMBaAFLgodYj1PZ54
uPkw6Uh0oSdHzDU6MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIh
APQS/sRcfBdaWZCRiHL3rmxWEp8I+x+At+sCzqbWMXheAiEAwTpy4HJlOR3QiEzc
Xo6Hd3OtYYz2nbPbed2oxOfeMW8=
-----END CERTIFICATE-----
"""


def session_of(saver: holdfast.Saver) -> Any:
    wire: Any = saver._store.blocking
    return wire.wire._lender.lent()


def asked(saver: holdfast.Saver, sql: str) -> Any:
    with session_of(saver) as session:
        return session.ask(sql, ())[0]


# URLs.


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("mysql://root@localhost", "names no database"),
        ("mysql://root@localhost/", "names no database"),
        ("mysql://root@localhost/a/b", "names no database"),
        ("mysql://root@localhost/db?pol=8", "no option 'pol'; it knows namespace, pool, retry"),
        ("mysql://root@localhost/db?pool=0", "pool must be a number from 1"),
        ("mysql://root@localhost/db?pool=many", "pool must be a number"),
        ("mysql://root@localhost/db?retry=-1", "retry must be a number from 0"),
        ("mysql://root@localhost/db?retry=nan", "retry must be a number from 0"),
        ("mysql://root@localhost/db?timeout=0", "timeout must be a number from"),
        ("mysql://root@localhost/db?ssl=on", "ssl must be one of disabled, preferred, required, verify_ca"),
        ("mysql://root@localhost/db?ssl=disabled&ssl_ca=/ca.pem", "ssl=disabled and ssl_ca don't go together"),
        ("mysql://root@localhost/db?ssl_ca=/none/such.pem", r"can't use the files for TLS \(/none/such.pem\)"),
        ("mysql://root@localhost/db?namespace=" + "n" * 513, "namespace has 513 bytes; MySQL takes 512"),
        ("mariadb://root@localhost", "names no database: mariadb://user"),
    ],
)
def test_a_url_that_cant_be_used(address: str, message: str) -> None:
    """Refused when the saver is made, before anything is connected to."""
    with pytest.raises(BadURL, match=message):
        holdfast.Saver(address)


def test_both_schemes_are_the_same(url: str) -> None:
    with holdfast.Saver(url.replace("mysql:", "mariadb:"), namespace="schemes") as saver:
        saver.get_tuple(config_of("t"))


def test_a_unix_socket(url: str) -> None:
    (folder, path) = rows_of(url, "SELECT @@datadir, @@socket")[0]
    where = path if path.startswith("/") else f"{folder.rstrip('/')}/{path}"
    with holdfast.Saver(with_options(url, unix_socket=where, namespace="unix")) as saver:
        assert saver.get_tuple(config_of("t")) is None


def test_tls(url: str) -> None:
    """Preferred, it is used where the server can; required, a server that can't is refused; verified, so are others."""
    has_tls = rows_of(url, "SHOW VARIABLES LIKE 'have_ssl'") in ([], [("have_ssl", "YES")])
    cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    with holdfast.Saver(with_options(url, ssl="disabled")) as saver:
        assert asked(saver, cipher)[1] == ""
    with holdfast.Saver(url) as saver:
        assert bool(asked(saver, cipher)[1]) is has_tls
    with holdfast.Saver(with_options(url, ssl="required")) as saver:
        if has_tls:
            assert asked(saver, cipher)[1]
        else:
            with pytest.raises(StoreError, match=r"(TLS|SSL).*\?ssl="):
                saver.setup()
    with holdfast.Saver(with_options(url, ssl="verify_identity", retry=0)) as saver, pytest.raises(StoreError):
        saver.setup()


def test_tls_is_verified(new: Callable[[], str], tmp_path: Path) -> None:
    """By the authority that signed the server's certificate, which is for another host."""
    url = new()
    authority = Path(rows_of(url, "SELECT @@datadir")[0][0]) / "ca.pem"
    if not authority.is_file():
        pytest.skip("this server has made no certificates for itself")
    other = tmp_path / "other.pem"
    other.write_text(OTHER_AUTHORITY)
    with holdfast.Saver(with_options(url, ssl="verify_ca", ssl_ca=authority)) as saver:
        saver.setup()
        assert asked(saver, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[1]
    for options in ({"ssl_ca": authority}, {"ssl": "verify_ca", "ssl_ca": other}):
        with holdfast.Saver(with_options(url, **options)) as saver, pytest.raises(StoreError, match=r"(?i)certificate"):
            saver.setup()


# Sessions.


def test_a_session_has_what_it_needs(url: str) -> None:
    """Whatever the server's own settings are."""
    with holdfast.Saver(with_options(url, retry=7)) as saver:
        isolation = "transaction_isolation" if "9." in asked(saver, "SELECT version()")[0] else "tx_isolation"
        assert asked(saver, f"SELECT @@{isolation}") == ("READ-COMMITTED",)
        assert asked(saver, "SELECT @@autocommit, @@innodb_lock_wait_timeout, @@lock_wait_timeout") == (1, 7, 7)
        assert "STRICT_ALL_TABLES" in asked(saver, "SELECT @@sql_mode")[0]
        assert asked(saver, "SELECT @@character_set_client, @@character_set_results") == ("utf8mb4", "utf8mb4")


def test_a_store_that_is_only_read(url: str) -> None:
    """The server itself refuses whatever would write."""
    store = holdfast.url.open_store(url, read_only=True)
    wire: Any = store.blocking
    with wire.wire._lender.lent() as session:
        assert session.ask("SELECT count(*) FROM holdfast_threads", ())
        with pytest.raises(Exception, match="READ ONLY"):
            session.ask("DELETE FROM holdfast_threads", ())
    asyncio.run(store.asyncio.close())


@BOTH
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "ANSI", "TRADITIONAL", "PAD_CHAR_TO_FULL_LENGTH"])
async def test_names_are_only_names(engine_server: Any, mode: str, half: HalfName) -> None:
    """Hostile ones too, whatever mode the server is set to: nothing that is bound is ever taken for SQL."""
    hostile = [*NAMES, "'", "\\'", "\\\\'; DROP TABLE holdfast_rows; -- ", '"', "`", "%s", "%(a)s", "?", "\x1a", "\\0"]
    with servers.fresh(engine_server) as url:
        rows_of(url, "SET GLOBAL sql_mode = %s", mode)
        try:
            saver = Half(with_options(url, namespace="';\\"), half)
            for thread in hostile:
                await saver.save(thread, name(0), {"v": thread, "l": [LONG, thread]}, run_id=thread)
                await saver.put_writes(config_of(thread, name(0)), [(thread, thread)], thread, thread)
            assert await saver.threads() == sorted(hostile)
            for thread in hostile:
                found = await saver.found(thread)
                assert found.checkpoint["channel_values"] == {"v": thread, "l": [LONG, thread]}
                assert found.pending_writes == [(thread, thread, thread)]
                assert len(await saver.list(filter={"run_id": thread})) == 1
                await saver.delete_thread(thread)
            assert await saver.threads() == []
            await saver.close()
        finally:
            rows_of(url, "SET GLOBAL sql_mode = DEFAULT")


@pytest.fixture(scope="module", params=ENGINES)
def engine_server(request: Any) -> Iterator[Any]:
    with servers.private(request.param, fast=True) as server:
        yield server


def test_a_connection_that_died_without_a_word_is_noticed(url: str) -> None:
    """By the system, within a minute or so."""
    with holdfast.Saver(with_options(url, ssl="disabled")) as saver, session_of(saver) as session:
        raw = session.connection._sock
        for option, most in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_USER_TIMEOUT", 60_000)):
            if hasattr(socket, option):
                assert 0 < raw.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) <= most


def test_what_takes_long_is_waited_for(url: str) -> None:
    """`timeout` is for logging in alone."""
    with holdfast.Saver(with_options(url, timeout=0.3, ssl="disabled")) as saver:
        assert asked(saver, "SELECT sleep(0.6)") == (0,)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, AssertionError])
def test_a_connection_in_an_unknown_state_is_closed(url: str, error: Any) -> None:
    """After anything but a plain SQL error: what the server says next would be taken for the answer to what follows."""
    with holdfast.Saver(url) as saver:
        with pytest.raises(error), session_of(saver) as session:
            raise error
        assert not session.connection.open
        with pytest.raises(pymysql.Error), session_of(saver) as session:
            session.ask("SELECT none", ())
        assert session.connection.open
        assert wire_of(saver)._lender._idle == [session]


# Names that don't fit.


@BOTH
@pytest.mark.parametrize(
    ("what", "most"), [("thread", 2048), ("checkpoint_ns", 1250), ("checkpoint_id", 1250), ("task_id", 65_535)]
)
@pytest.mark.parametrize("letter", ["x", "é", "🦀"])
async def test_the_longest_names(url: str, what: str, most: int, letter: str, half: HalfName) -> None:
    """As long as the limit says, in bytes, they come back; one byte more is an error that names the limit."""
    saver = Half(with_options(url, namespace=f"longest {what} {letter} {half}"), half)
    long = letter * (most // len(letter.encode()))
    long += "x" * (most - len(long.encode()))

    async def use(long: str) -> None:
        names = {"thread": "t", "checkpoint_ns": "", "checkpoint_id": name(0), "task_id": "task"} | {what: long}
        config = config_of(names["thread"], names["checkpoint_id"], names["checkpoint_ns"])
        await saver.save(names["thread"], names["checkpoint_id"], {"l": [LONG]}, ns=names["checkpoint_ns"])
        await saver.put_writes(config, [("l", 1)], names["task_id"])
        found = await saver.get(config)
        assert found is not None
        assert found.pending_writes == [(names["task_id"], "l", 1)]

    await use(long)
    with pytest.raises(
        StoreError, match=rf"the {what} that begins with .* has {most + 1:,} bytes; .* {most:,} of them"
    ):
        await use(long + "x")
    await saver.close()


# Errors.


async def refused(url: str, half: HalfName, match: str, *, seconds: float = 3) -> StoreError:
    """The error that the first use of a URL ends with, at once and whatever it is."""
    saver = Half(url, half)
    began = time.monotonic()
    with pytest.raises(StoreError, match=match) as caught:
        await saver.save("t", name(0), {"a": 1})
    assert time.monotonic() - began < seconds
    await saver.close()
    return caught.value


@BOTH
async def test_a_wrong_password(url: str, half: HalfName) -> None:
    """The error names the user and says what to look at; the password is in no part of it."""
    with user(url, "SELECT", password="right") as right:
        wrong = with_user(right, urlsplit(right).username or "", quote("wr0ng/pa:ss@word", safe=""))
        error = await refused(
            wrong, half, r"mysql://u_\w+@127.0.0.1:\d+/.*Access denied.*check the user and the password"
        )
        told = "".join(map(str, [error, error.__cause__, error.__context__]))
        assert "wr0ng" not in told


@BOTH
async def test_a_password_of_any_characters(new: Callable[[], str], half: HalfName) -> None:
    with user(new(), "CREATE, SELECT, INSERT, UPDATE, DELETE", password="ü€🦀 @:/?#%'\"\\") as url:
        saver = Half(url, half)
        await saver.save("t", name(0), {"a": 1})
        assert "🦀" not in repr(saver.saver._store) + repr(vars(saver.saver._store.blocking))
        await saver.close()


@BOTH
async def test_a_database_that_is_not_there(url: str, half: HalfName) -> None:
    missing = urlsplit(url)._replace(path="/none_such").geturl()
    await refused(missing, half, "Unknown database 'none_such'.*CREATE DATABASE")


@BOTH
async def test_nobody_listens(half: HalfName) -> None:
    """A server that was never reached is not waited for: the URL may be wrong."""
    await refused("mysql://root@127.0.0.1:1/db", half, r"mysql://root@127.0.0.1:1/db: .*is the server running")


@BOTH
async def test_a_host_that_has_no_address(half: HalfName) -> None:
    await refused("mysql://root@none.invalid/db", half, "none.invalid.*may this machine reach it")


def test_a_server_that_is_too_old() -> None:
    for version in ("5.7.44-log", "8.0.18", "5.5.5-10.5.23-MariaDB", "10.4.1-MariaDB-log", "unknown"):
        with pytest.raises(StoreError, match="holdfast needs M"):
            refuse_old(version)
    for version in ("8.0.19", "8.4.0", "9.7.4-2", "5.5.5-10.6.0-MariaDB", "11.4.2-MariaDB", "10.11.19-MariaDB"):
        refuse_old(version)


@BOTH
async def test_a_closed_saver(url: str, half: HalfName) -> None:
    """It lets go of its connections, and says so to whoever comes later."""
    saver = Half(with_options(url, namespace="closed"), half)
    await saver.save("t", name(0), {"a": 1})
    await saver.close()
    with pytest.raises(Closed):
        await saver.get(config_of("t"))
    lender: Any = saver.saver._store.blocking
    assert lender.wire._lender._idle == []


def test_the_text_of_statements() -> None:
    """A percent sign is one for the driver; MySQL gets a name for what VALUES(…) stands for, statement by statement."""
    text = (
        "INSERT INTO a VALUES (?) ON DUPLICATE KEY UPDATE b = VALUES(b);\nINSERT INTO c VALUES ('%') "
        "ON DUPLICATE KEY UPDATE d = d"
    )
    assert native(text, is_mariadb=True) == text.replace("%", "%%").replace("?", "%s")
    assert native(text, is_mariadb=False) == (
        "INSERT INTO a VALUES (%s) AS new ON DUPLICATE KEY UPDATE b = new.b;\nINSERT INTO c VALUES ('%%') "
        "ON DUPLICATE KEY UPDATE d = d"
    )


async def test_what_is_damaged_is_told(new: Callable[[], str]) -> None:
    """A row that somebody has changed by hand is an error that names it."""
    url = new()
    saver = Half(url, "sync")
    await saver.save("t", name(0), {"l": [LONG]})
    for column in ("refs", "settled"):
        rows_of(url, f"UPDATE holdfast_rows SET {column} = 'none'")
        with pytest.raises(Unreadable, match=f"checkpoint '{name(0)}' on thread 't' is damaged"):
            await saver.get(config_of("t"))
    await saver.close()
