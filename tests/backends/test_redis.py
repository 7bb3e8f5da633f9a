"""What is special to Redis: URLs, rights, TLS, threads that expire, formats, names and numbers in scripts, limits."""

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import redis
import servers
from hatchling import build
from redislab import becomes_true, connect, corner, everything, raw_audit, with_options
from services.server import Instance

import holdfast
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.names import FORMAT_KEY, Names, back, forth, text_of, text_of_back
from holdfast.engine.records import Change, Key, Query, Row, Segment, Write
from holdfast.errors import BadURL, Conflict, SchemaTooNew, StoreError
from holdfast.run import run
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from services import places

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture
def url() -> Iterator[str]:
    with corner() as new:
        yield new()


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    """One whose settings may be changed."""
    with servers.private("redis", fast=True) as server:
        yield server


@pytest.fixture
def empty(server: Instance) -> Iterator[tuple[str, Any]]:
    """The URL of a server with nothing on it, and a client."""
    with closing(redis.Redis(port=server.port)) as client:
        client.flushall()
        yield server.url, client


@pytest.fixture
def socket(tmp_path: Path, server: Instance) -> Iterator[Path]:
    """The path by which a server is reached that has no port."""
    del server  # without one, none can be started
    path = tmp_path / "socket"
    with subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", ""]) as process:
        becomes_true(path.exists)
        yield path
        process.terminate()


class TestURL:
    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("redis://h/x", "number of a database"),
            ("redis://h/0?tls=1", "no option 'tls'"),
            ("redis://h/0?ttl=-1", "ttl must be a number"),
            ("redis://h/0?ttl=0", "ttl must be a number"),
            ("redis://h/0?ttl=soon", "ttl must be a number"),
            ("redis://h/0?pool=0", "pool must be a number"),
            ("redis://h/0?cluster=maybe", "true or false"),
            ("redis://a,b/0", "several hosts"),
            ("redis://a/1?cluster=true", "one database"),
            ("redis://a:x,b/?cluster=true", "port"),
            ("redis://h/0?ssl_ca=/x", "rediss://"),
            ("rediss://h/0?ssl=off", "one of verify_identity"),
            ("redis://h/0?unix_socket=/x", "no host"),
        ],
    )
    def test_what_is_wrong_is_said(self, url: str, why: str) -> None:
        with pytest.raises(BadURL, match=why):
            holdfast.Saver(url)

    @BOTH
    async def test_a_server_that_was_never_reached_is_not_waited_for(self, half: HalfName) -> None:
        saver = Half("redis://ann:s3cret@127.0.0.1:1/0", half)
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"^redis://ann@127.0.0.1:1/0: .*is the server running") as caught:
            await saver.get(config_of("t"))
        assert time.monotonic() - began < 5
        assert "s3cret" not in str(caught.value)
        await saver.close()

    def test_databases_are_apart(self, empty: Any) -> None:
        url, _ = empty
        with holdfast.Saver(url) as one, holdfast.Saver(f"{url[:-1]}1") as other:
            one.put(config_of("t"), checkpoint_of(name(0), {}), {}, {})
            assert [*other.list(None)] == []

    @BOTH
    async def test_a_unix_socket(self, socket: Path, half: HalfName) -> None:
        saver = Half(f"redis:///0?unix_socket={socket}", half)
        await saver.save("t", name(0), {"l": [LONG]})
        assert await saver.values("t") == {"l": [LONG]}
        await saver.close()

    def test_clients(self, server: Instance) -> None:
        """What can't be used is refused, with a reason."""
        with closing(redis.Redis(port=server.port)) as client, pytest.raises(BadURL, match="pipeline"):
            holdfast.Saver(client.pipeline())
        with pytest.raises(BadURL, match="redis-py"):
            holdfast.Saver(redis.ConnectionPool())
        saver = holdfast.Saver(redis.asyncio.Redis(port=server.port))
        with pytest.raises(StoreError, match="call the async methods"):
            saver.get_tuple(config_of("t"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of a server that speaks TLS only, and its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    port = places.free_port()
    command = ["redis-server", "--port", "0", "--tls-port", str(port), "--save", "", "--tls-auth-clients", "no"]
    command += ["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file", "cert.pem"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        becomes_true(lambda: not places.is_free(port))
        yield port, folder / "cert.pem"
        process.terminate()


class TestTLS:
    @BOTH
    async def test_whom_to_trust(self, secure: tuple[int, Path], half: HalfName) -> None:
        port, certificate = secure
        for host, options, works in (
            ("localhost", f"ssl_ca={certificate}", True),
            ("127.0.0.1", f"ssl_ca={certificate}", False),
            ("127.0.0.1", f"ssl_ca={certificate}&ssl=verify_ca", True),
            ("localhost", "retry=0", False),
            ("localhost", "ssl=required", True),
        ):
            saver = Half(f"rediss://{host}:{port}/0?{options}", half)
            if works:
                await saver.save("t", name(0), {"l": [LONG]})
                assert await saver.values("t") == {"l": [LONG]}
            else:
                with pytest.raises(StoreError, match=r"(?i)certificate"):
                    await saver.get(config_of("t"))
            await saver.close()


RIGHTS = """
~holdfast:* +evalsha +eval +get +set +info +time +exists +unlink +persist +pttl +pexpireat
+hget +hset +hmget +hdel +hexists +hkeys +hlen +hstrlen +hincrby
+zadd +zrem +zrange +zrevrange +zrangebylex +zrevrangebylex +zlexcount +zrangebyscore +zscore
"""


class TestRights:
    @BOTH
    async def test_no_more_is_needed_than_the_docs_say(self, empty: Any, half: HalfName) -> None:
        url, admin = empty
        page = (Path(__file__).parents[2] / "docs" / "how-to" / "redis.md").read_text()
        assert " ".join(RIGHTS.split()) in " ".join(page.replace("\\\n", " ").split())
        admin.execute_command("ACL", "SETUSER", "app", "on", ">p@ss/word", "resetkeys", "-@all", *RIGHTS.split())
        saver = Half(with_options(url.replace("//", "//app:p%40ss%2Fword@"), ttl=60), half)
        for number in range(3):
            await saver.save("t", name(number), {"l": [LONG] * number}, ns="n" * number, run_id="r")
        await saver.put_writes(config_of("t", name(0)), [("__error__", 1)], "task")
        await saver.copy_thread("t", "u")
        await saver.prune(["t"])
        await saver.delete_for_runs(["r"])
        assert await saver.ids(filter={"run_id": "r"}) == await saver.threads() == []
        await saver.delete_thread("t")
        await saver.close()

    @BOTH
    async def test_a_right_that_lacks_is_told(self, empty: Any, half: HalfName) -> None:
        url, admin = empty
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">s3cret", "resetkeys", "-@all", "~holdfast:*", "+get")
        saver = Half(with_options(url.replace("//", "//poor:s3cret@"), retry=0), half)
        with pytest.raises(StoreError, match=r"poor@.*this user lacks a right") as caught:
            await saver.save("t", name(0))
        assert "s3cret" not in str(caught.value)
        await saver.close()
        wrong = Half(with_options(url.replace("//", "//poor:wr0ng@"), retry=5), half)
        began = time.monotonic()
        with pytest.raises(StoreError, match="check user and password"):
            await wrong.get(config_of("t"))
        assert time.monotonic() - began < 4
        await wrong.close()


class TestFormat:
    @BOTH
    async def test_a_newer_one_is_refused(self, empty: Any, half: HalfName) -> None:
        url, admin = empty
        saver = Half(url, half)
        backend = saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking
        with pytest.raises(StoreError, match="nothing was ever stored here"):
            await backend.check()  # type: ignore[attr-defined]
        await backend.setup()
        await backend.check()  # type: ignore[attr-defined]
        admin.set(FORMAT_KEY, "2")
        for call in (backend.setup, backend.check):  # type: ignore[attr-defined]
            with pytest.raises(SchemaTooNew, match="use a newer holdfast"):
                await call()
        admin.set(FORMAT_KEY, "mine")
        with pytest.raises(StoreError, match="holdfast never wrote"):
            await backend.setup()
        await saver.close()

    def test_who_only_looks_leaves_nothing(self, empty: Any) -> None:
        url, admin = empty
        store = holdfast.url.open_store(url, read_only=True)
        assert (run(store.blocking.find(Query(limit=5))).rows, run(store.blocking.threads())) == ([], [])
        assert admin.dbsize() == 0
        run(store.blocking.close())

    def test_the_scripts_are_in_the_wheel(self, tmp_path: Path) -> None:
        """A package is more than its Python files."""
        root = Path(__file__).parents[2]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            wheel = build.build_wheel(str(tmp_path))
        names = ZipFile(tmp_path / wheel).namelist()
        scripts = {path.name for path in (root / "src/holdfast/backends/redis/lua").glob("*.lua")}
        assert {Path(name).name for name in names if name.endswith(".lua")} == scripts


class TestEviction:
    @pytest.mark.parametrize(
        ("policy", "options", "warnings_"),
        [("allkeys-lru", {}, 1), ("volatile-ttl", {"ttl": 60}, 1), ("volatile-ttl", {}, 0)],
    )
    @BOTH
    async def test_a_server_that_throws_keys_away(
        self, empty: Any, policy: str, options: Any, warnings_: int, half: HalfName
    ) -> None:
        """It is told of once, when the store is set up."""
        url, admin = empty
        admin.config_set("maxmemory-policy", policy)
        saver = Half(with_options(url, **options), half)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await saver.save("t", name(0))
            await (saver.saver.asetup() if saver.is_async else asyncio.to_thread(saver.saver.setup))
        assert [f"maxmemory-policy {policy}" in str(each.message) for each in caught] == [True] * warnings_
        admin.config_set("maxmemory-policy", "noeviction")
        await saver.close()


def user(who: object) -> Any:
    """Metadata of our own."""
    return {"user": who}


class TestExpiry:
    @BOTH
    async def test_all_of_a_thread_at_one_moment(self, empty: Any, half: HalfName) -> None:
        """Whatever is written, and whenever; and what is left of it in the indexes is passed over, and goes."""
        url, admin = empty
        saver = Half(with_options(url, ttl=0.8), half)
        await saver.save("t", name(0), {"l": [LONG]}, user="ann")
        await asyncio.sleep(0.4)
        await saver.put_writes(config_of("t", name(0)), [("l", LONG)], "task")
        await saver.save("t", name(1), {"l": [LONG] * 2}, parent=name(0), ns="sub", user="ann")
        keys = Names("").place("t").keys
        moments = {admin.execute_command("PEXPIRETIME", key) for key in keys}
        assert len(moments) == 1
        assert min(moments) > time.time() * 1000
        await asyncio.sleep(0.5)  # the first put was longer ago than a thread lives
        assert len(await saver.list()) == 2
        await asyncio.sleep(0.4)
        assert await saver.ids() == await saver.ids(filter={"user": "ann"}) == await saver.threads() == []
        assert await saver.get(config_of("t")) is None
        assert everything(url).keys() == {FORMAT_KEY}
        await saver.close()

    async def test_a_thread_that_is_begun_again(self, empty: Any) -> None:
        """Nothing of the one that expired is in it."""
        url, _ = empty
        saver = Half(with_options(url, ttl=0.05), "async")
        for _ in range(3):
            await saver.save("t", name(0), {"l": [LONG]}, user="ann")
            await saver.put_writes(config_of("t", name(0)), [("l", LONG)], "task")
            await asyncio.sleep(0.08)
        await saver.save("t", name(1), {"l": ["new"]}, user="bob")
        assert await saver.ids() == [name(1)]
        assert (await saver.found("t")).pending_writes == []
        raw_audit(url, exact=False)
        await saver.close()

    def test_the_last_writer_decides(self, empty: Any) -> None:
        url, admin = empty
        with holdfast.Saver(with_options(url, ttl=60)) as mortal, holdfast.Saver(url) as lasting:
            for saver, expires in ((mortal, True), (lasting, False), (mortal, True)):
                saver.put(config_of("t"), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
                found = [key for key in Names("").place("t").keys if admin.exists(key)]
                assert [admin.pttl(key) > 0 for key in found] == [expires] * len(found)

    def test_a_hand_sweeps_the_indexes(self, empty: Any) -> None:
        """What threads leave behind that nobody ever looks for does not pile up."""
        url, admin = empty
        with holdfast.Saver(with_options(url, ttl=1)) as saver:
            for number in range(40):
                saver.put(config_of(f"gone {number}"), checkpoint_of(name(number), {}), user(number), {})
        rows, labels, threads = Names("").index[:3]
        time.sleep(1.1)
        assert admin.zcard(rows) > 1
        with holdfast.Saver(with_options(url, ttl=60)) as saver:
            for _ in range(45):
                saver.put(config_of("here"), checkpoint_of(name(99), {}), user("ann"), {})
        assert [admin.zcard(key) for key in (rows, labels, threads)] == [1, 1, 1]


class TestNames:
    def test_they_sort_as_texts_do(self) -> None:
        texts = [
            "",
            "\0",
            "\0\0",
            "\0\1",
            "\1",
            "\1\0",
            "\1\1",
            "\1\2",
            "\2",
            "a",
            "a\0",
            "a\0b",
            "a\1",
            "ab",
            "á",
            "🦀",
        ]
        assert sorted(texts, key=forth) == sorted(texts, key=back, reverse=True) == sorted(texts)
        assert [text_of(forth(text)) for text in texts] == [text_of_back(back(text)) for text in texts] == texts

    def test_applications_and_threads_have_tags_of_their_own(self) -> None:
        """However their texts are put together; and one slot for all keys of a thread."""
        pairs = [("", "a"), ("a", ""), ("a\0", "b"), ("a", "\0b"), ("{a}", "b"), ("a", "{b}"), ("A", "b")]
        keys = [Names(app).place(thread).keys for app, thread in pairs]
        assert len({key for each in keys for key in each}) == 7 * len(pairs)
        assert {redis.crc.key_slot(key) for key in keys[4]} == {redis.crc.key_slot(keys[4][0])}
        assert {key[:9] for each in keys for key in each} == {b"holdfast:"}

    @BOTH
    async def test_what_a_script_could_take_for_something_else(self, url: str, half: HalfName) -> None:
        """Names that look like numbers, booleans, patterns, separators, or keys of ours."""
        odd = [
            "0",
            "1",
            "-1",
            "nil",
            "%d+",
            "a:1",
            "1e3",
            "holdfast:format",
            "\xff",
            "\x00\xff",
            "+",
            "-",
            "(a",
            "[a",
            "r",
        ]
        saver = Half(url, half)
        for text in odd:
            for ns in ("", text):
                await saver.save(text, text, {text: [LONG, text]}, ns=ns, **{text: text})
                await saver.put_writes(config_of(text, text, ns), [(text, text)], text, text)
        assert await saver.threads() == sorted(odd)
        for text in odd:
            found = await saver.list(filter={text: text})
            assert [(each.config["configurable"]["thread_id"], each.checkpoint["id"]) for each in found] == [
                (text, text)
            ] * 2
            for ns in ("", text):
                one = await saver.found(text, text, ns)
                assert one.checkpoint["channel_values"] == {text: [LONG, text]}
                assert one.pending_writes == [(text, text, text)]
        await saver.close()


class TestNumbers:
    def test_revisions_are_exact(self, url: str) -> None:
        """Lua has no integers: the largest that a thread begins with, and one more, are two numbers."""
        store = holdfast.url.open_store(url)
        backend = store.blocking
        run(backend.apply(Change("t", writes=(Write(Key("t", "", "1"), "task", 0, "c", "", b""),))))
        with closing(connect(url)) as client:
            keys = backend._names.place("t").keys  # type: ignore[attr-defined]
            client.hset(keys[0], "rev", (1 << 53) - 2)
        for number in ((1 << 53) - 1, 1 << 53, (1 << 53) + 1):
            run(backend.apply(Change("t", rows=(Row(Key("t", "", "1"), None, {}, b"", b""),))))
            assert run(backend.fetch("t", "", {}, (), ())).revisions == {"t": number}
            with pytest.raises(Conflict):
                run(backend.apply(Change("t", trim={}, revision=number - 1)))
        run(backend.close())


class TestLimits:
    @pytest.mark.parametrize(("half", "more"), [("sync", 1), ("async", 1), ("async", (8 << 20) + 1)])
    async def test_values_above_what_is_stored_in_one_piece(self, url: str, half: HalfName, more: int) -> None:
        """They come in parts, as values and as pending writes."""
        value = "x" * ((RedisBackend.limits.value or 0) // 2 + more)
        saver = Half(url, half)
        await saver.save("t", name(0), {"v": value})
        await saver.put_writes(config_of("t", name(0)), [("v", value)], "task")
        found = await saver.found("t", name(0))
        assert found.checkpoint["channel_values"] == {"v": value}
        assert found.pending_writes == [("task", "v", value)]
        await saver.close()

    def test_a_value_as_long_as_the_limit(self, url: str) -> None:
        """The server takes it in one record, and so one that is rewritten in its place."""
        most = RedisBackend.limits.value or 0
        backend = holdfast.url.open_store(url).blocking
        data = bytes(most)
        write = Write(Key("t", "", "1"), "task", 0, "c", "", data)
        row = Row(write.key, None, {}, b"", b"")
        run(backend.apply(Change("t", rows=(row,), segments=(Segment("log", 0, data),), writes=(write,))))
        found = run(backend.fetch("t", "", {"log": 0}, ["1"], ["c"]))
        assert (found.segments, found.writes) == ([Segment("log", 0, data)], [write])
        run(backend.close())

    def test_many_records_in_one_change(self, url: str) -> None:
        """More than Lua's stack has room for, whatever is done with them."""
        backend = holdfast.url.open_store(url).blocking
        count = 9_000
        rows = tuple(Row(Key("t", "", f"{n:06}"), None, {}, b"", b"", frozenset({7})) for n in range(count))
        segments = tuple(Segment("log", n, b"x") for n in range(count))
        writes = tuple(Write(rows[0].key, f"{n}", 0, "c", "", b"") for n in range(500))
        run(backend.apply(Change("t", rows=rows, segments=segments, writes=writes)))
        assert len(run(backend.find(Query("t", limit=count))).rows) == count
        assert len(run(backend.find(Query(where=(frozenset({7}),), heads=True))).rows) == count
        assert len(run(backend.find(Query(keys=tuple(row.key for row in rows[:5000])))).rows) == 5000
        assert len(run(backend.fetch("t", "", {"log": count}, (), ())).segments) == count
        revision = run(backend.fetch("t", "", {}, (), ())).revisions["t"]
        run(backend.apply(Change("t", drop_rows=tuple(row.key for row in rows[:4500]), trim={}, revision=revision)))
        assert run(backend.fetch("t", "", {"log": count}, (), ())).segments == []
        run(backend.drop(["t"]))
        assert (run(backend.find(Query(limit=9))).rows, run(backend.threads())) == ([], [])
        run(backend.close())


def test_memory_is_measured(empty: Any) -> None:
    """What the docs say of memory is what the script in bench/ finds, in the order of its size."""
    url, _ = empty
    root = Path(__file__).parents[2]
    told = subprocess.run(
        [sys.executable, str(root / "bench" / "redis_memory.py"), url, "--turns", "30", "--json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(told.stdout)
    assert 300 < found["a checkpoint"] < 20_000
