"""What is peculiar to etcd: how URLs are read, TLS, users, leases."""

import base64
import datetime as dt
import ipaddress
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from etcdlab import contents, fresh, gateway, pairs_of, private, raw, raw_audit, with_options
from services.server import Instance

import holdfast
from holdfast.backends.etcd.keys import Keys
from holdfast.backends.etcd.messages import Operation, Put, Txn
from holdfast.errors import BadURL, SchemaTooNew, StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.url import open_store
from services import places

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture
def url() -> Iterator[str]:
    with fresh() as url:
        yield url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("etcd://host?color=red", "no option 'color'"),
        ("etcd://host?ttl=0", "ttl='0'"),
        ("etcd://host?ttl=1.5", "whole seconds"),
        ("etcd://host?timeout=soon", "timeout='soon'"),
        ("etcd://host?tls=maybe", "true or false"),
        ("etcd://host?cert=a.pem", "both cert and key"),
        ("etcd://host?ca=/nowhere.pem", "No such file"),
        ("etcd://host?tls=false&ca=a.pem", "tls=false"),
        ("etcd://one:2379,two:x/p", "can't read the member 'two:x'"),
        ("etcd://ann@host/p", "a user and a password"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(BadURL, match=why):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("etcd://", "etcd://127.0.0.1:2379/holdfast"),
        ("etcd://host/a/b/", "etcd://host:2379/a/b"),
        ("etcd://[::1]:9/p", "etcd://[::1]:9/p"),
        ("etcd://one,two:9,[::1]/p", "etcd://one:2379,two:9,[::1]:2379/p"),
        ("etcd://ann:secret@one:1,two:2/p", "etcd://one:1,two:2/p"),
    ],
)
def test_what_a_url_names(url: str, name: str) -> None:
    """Messages name the members and the prefix, and no password."""
    backend: Any = open_store(url).blocking
    assert str(backend._wire.access) == name


def test_prefixes_stay_apart() -> None:
    """One that begins like another, or contains a separator, is another store; nothing is left outside of it."""
    with fresh() as url:
        savers = {end: holdfast.Saver(url + end) for end in ("", "a", "ab", "/a", "%00", "%00%01")}
        for end, saver in savers.items():
            saver.put(config_of("t"), checkpoint(end), {}, {})
        for end, saver in savers.items():
            assert [found.checkpoint["id"] for found in saver.list(None)] == [f"id {end}"]
        for end, saver in savers.items():
            saver.delete_thread("t")
            saver.close()
            assert len(pairs_of(url + end)) == 1  # the format


def checkpoint(end: str) -> Any:
    return checkpoint_of(f"id {end}", {"l": [LONG]})


def test_a_newer_format(url: str) -> None:
    """What a newer holdfast has set up is left alone; what nobody has, is an error to whoever only looks."""
    backend: Any = open_store(url, read_only=True).blocking
    with pytest.raises(StoreError, match="not set up"):
        run(backend.check())
    key = Keys(url.rpartition("/")[2], "").format
    with raw(url) as ask:
        ask("txn", Txn(success=[Operation(put=Put(key=key, value=b"2"))]))
    with pytest.raises(SchemaTooNew, match="upgrade holdfast"):
        run(backend.check())
    with holdfast.Saver(url) as saver, pytest.raises(SchemaTooNew):
        saver.get_tuple(config_of("t"))


def test_read_only(url: str) -> None:
    """Nothing can be written then."""
    with holdfast.Saver(url) as saver:
        saver.put(config_of("t"), checkpoint("1"), {}, {})
    backend: Any = open_store(url, read_only=True).blocking
    run(backend.check())
    with pytest.raises(StoreError, match="read only"):
        run(backend.drop(["t"]))
    assert [info.thread for info in run(backend.threads())] == ["t"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Instance]:
    """A server with users: root, and one who may do all under one prefix."""
    with private() as server:
        prefix = {"key": base64.b64encode(b"mine").decode(), "range_end": base64.b64encode(b"minf").decode()}
        gateway(server, "auth/user/add", name="root", password="root")
        gateway(server, "auth/user/grant", user="root", role="root")
        gateway(server, "auth/role/add", name="app")
        gateway(server, "auth/role/grant", name="app", perm={"permType": "READWRITE", **prefix})
        gateway(server, "auth/user/add", name="ann", password="s%c:ret")
        gateway(server, "auth/user/grant", user="ann", role="app")
        gateway(server, "auth/enable")
        yield server


class TestUsers:
    @BOTH
    async def test_a_user_with_rights_on_a_prefix(self, guarded: Instance, half: HalfName) -> None:
        """Needs no more than these; logs in again when the server has forgotten the token, or doesn't know it."""
        saver = Half(f"etcd://ann:s%25c%3Aret@127.0.0.1:{guarded.port}/mine", half)
        await saver.save(half, name(0), {"l": [LONG]})
        cluster = backend_of(saver)._wire.cluster
        assert cluster.token
        cluster.token = "stale"
        assert await saver.values(half) == {"l": [LONG]}
        guarded.stop()
        guarded.start()
        await saver.save(half, name(1), {"l": [LONG] * 2}, parent=name(0))
        assert await saver.values(half) == {"l": [LONG] * 2}
        await saver.close()

    @pytest.mark.parametrize(
        ("who", "prefix", "why"),
        [
            ("ann:wrong@", "mine", "check user and password"),
            ("", "mine", "wants a user"),
            ("ann:s%25c%3Aret@", "yours", "grant-permission"),
        ],
    )
    def test_who_is_refused(self, guarded: Instance, who: str, prefix: str, why: str) -> None:
        """The error says what to do, and never the password."""
        with (
            holdfast.Saver(f"etcd://{who}127.0.0.1:{guarded.port}/{prefix}") as saver,
            pytest.raises(StoreError, match=why) as caught,
        ):
            saver.get_tuple(config_of("t"))
        assert "s%c:ret" not in str(caught.value)

    def test_a_user_where_there_are_none(self, url: str) -> None:
        with holdfast.Saver(url.replace("//", "//ann:secret@")) as saver, pytest.raises(StoreError, match="no users"):
            saver.get_tuple(config_of("t"))


def backend_of(saver: Half) -> Any:
    return saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    """An authority, and certificates for a server and a client, where the server's own user can read them."""
    folder = places.claim(places.home() / f"tls-{token_hex(4)}")
    certificates(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def secure(files: Path) -> Iterator[Instance]:
    """One that knows its clients by their certificates."""
    with private(
        f"--cert-file={files}/server.pem",
        f"--key-file={files}/server.key",
        f"--trusted-ca-file={files}/ca.pem",
        "--client-cert-auth",
        secure=True,
    ) as server:
        yield server


class TestTLS:
    @BOTH
    async def test_both_sides_show_a_certificate(self, secure: Instance, files: Path, half: HalfName) -> None:
        url = f"{secure.url}/tls"
        saver = Half(with_options(url, ca=files / "ca.pem", cert=files / "client.pem", key=files / "client.key"), half)
        await saver.save("t", name(0), {"l": [LONG]})
        assert await saver.values("t") == {"l": [LONG]}
        await saver.close()

    @pytest.mark.parametrize(
        "shown", [{"ca": "ca.pem"}, {"tls": "true"}, {}], ids=["no client's", "not trusted", "none"]
    )
    def test_who_is_refused(self, secure: Instance, files: Path, shown: dict[str, str]) -> None:
        options = {key: files / value if key == "ca" else value for key, value in shown.items()}
        with (
            holdfast.Saver(with_options(f"{secure.url}/tls", retry=1, timeout=3, **options)) as saver,
            pytest.raises(StoreError, match="does it speak TLS"),
        ):
            saver.get_tuple(config_of("t"))


def certificates(folder: Path) -> None:
    """Make them as files: ca.pem, and a .pem and a .key for each side."""
    authority = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)

    def certificate(who: str, key: Any, *, is_authority: bool) -> x509.Certificate:
        usage = x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH, x509.OID_CLIENT_AUTH])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.OID_COMMON_NAME, who)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.OID_COMMON_NAME, "authority")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(usage, critical=False).add_extension(names, critical=False)
        return builder.sign(authority, hashes.SHA256())

    folder.joinpath("ca.pem").write_bytes(
        certificate("authority", authority, is_authority=True).public_bytes(Encoding.PEM)
    )
    for who in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        signed = certificate(who, key, is_authority=False)
        folder.joinpath(f"{who}.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        private_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        folder.joinpath(f"{who}.key").write_bytes(private_key)
        folder.joinpath(f"{who}.key").chmod(0o644)  # the server runs as another user


class TestLeases:
    @BOTH
    async def test_a_thread_goes_at_one_moment(self, url: str, half: HalfName) -> None:
        """All keys of a thread are under one lease, and each write lets that begin anew; then all of it is gone."""
        saver = Half(with_options(url, ttl=2), half)
        await saver.save("t", name(0), {"l": [LONG]}, run_id="r")
        await saver.save("kept", name(0), {"l": [LONG]})
        await saver.put_writes(config_of("t", name(0)), [("l", LONG)], "task")
        (lease,) = contents(url).leases["", "t"]
        assert lease
        assert contents(url).leases["", "kept"] not in ({0}, {lease})
        await saver.prune(["t"])
        raw_audit(url)
        number = 0
        until = time.monotonic() + 20
        while ("", "t") in contents(url).threads:
            assert time.monotonic() < until
            raw_audit(url)
            number += 1
            await saver.save("kept", name(number), {"l": [LONG] * number}, parent=name(number - 1))
            time.sleep(0.2)  # noqa: ASYNC251 - leases are about time
        found = contents(url)
        assert not [key for _, key in (*found.rows, *found.hints) if key.thread == "t"]
        assert len([key for _, key in found.rows if key.thread == "kept"]) == number + 1
        assert await saver.get(config_of("t")) is None
        with pytest.raises(ThreadDeleted):
            await saver.save("t", name(1), {"l": [LONG] * 2}, parent=name(0))
        await saver.save("t", name(0), {"l": ["anew"]})
        assert await saver.values("t") == {"l": ["anew"]}
        await saver.close()
        raw_audit(url)

    def test_whoever_writes_keeps_to_the_lease(self, url: str) -> None:
        """Also without a ttl of its own; and a thread that was begun without one stays without."""
        with holdfast.Saver(with_options(url, ttl=600)) as short, holdfast.Saver(url) as plain:
            for saver, other, thread in ((short, plain, "short"), (plain, short, "long")):
                first = saver.put(config_of(thread), checkpoint("0"), {"run_id": "r"}, {})
                other.put(first, checkpoint("1"), {"run_id": "r"}, {})
                other.put_writes(first, [("l", 1)], "task")
                saver.put_writes(first, [("l", 1)], "another")
        leases = contents(url).leases
        assert leases["", "long"] == {0}
        assert len(leases["", "short"] - {0}) == len(leases["", "short"]) == 1
        raw_audit(url)
