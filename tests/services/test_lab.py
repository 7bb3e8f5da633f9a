"""What tests get from `servers`: a server that all share, an empty store in it, a server of their own."""

from pathlib import Path

import psycopg
import pymysql
import pytest
import servers

from services import fleet, places


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server is up, none is given, and this is not CI."""
    monkeypatch.setenv("HOLDFAST_SERVICES", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    for kind in fleet.KINDS.values():
        monkeypatch.delenv(kind.variable, raising=False)


@pytest.mark.usefixtures("nothing")
class TestUrlOf:
    def test_what_the_environment_names_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_TEST_MARIADB", "mysql://me@db.example/scratch")
        assert servers.url_of("mariadb") == "mysql://me@db.example/scratch"

    def test_a_replica_of_another_server_is_not_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_TEST_POSTGRES", "postgresql://me@db.example/scratch")
        with pytest.raises(pytest.skip.Exception, match="HOLDFAST_TEST_POSTGRES names a server of yours"):
            servers.url_of("postgres-replica")

    def test_without_a_server_a_test_is_skipped_and_told_what_to_do(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="python -m services up postgres"):
            servers.url_of("postgres")

    def test_without_a_server_a_test_fails_on_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "1")
        with pytest.raises(pytest.fail.Exception, match="no postgres"):
            servers.url_of("postgres")

    def test_an_optional_server_may_be_missing_on_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "1")
        with pytest.raises(pytest.skip.Exception, match="no mysql"):
            servers.url_of("mysql")

    def test_the_reason_for_which_a_server_is_missing_is_told(self, tmp_path: Path) -> None:
        places.claim(tmp_path / "mysql").joinpath("missing").write_text("there is no apt-get here")
        with pytest.raises(pytest.skip.Exception, match="there is no apt-get here"):
            servers.url_of("mysql")


@pytest.mark.parametrize("name", ["postgres", "mariadb", "mysql"])
class TestStores:
    def test_a_fresh_store_is_empty_though_others_are_not(self, name: str) -> None:
        with servers.fresh(name) as one, servers.fresh(name) as other:
            do(one, "CREATE TABLE kept (a int)")
            assert (tables(one), tables(other)) == (["kept"], [])

    def test_it_is_gone_afterwards_with_all_that_is_in_it(self, name: str) -> None:
        with servers.stores(name) as new:
            urls = [new(), new()]
            for url in urls:
                do(url, "CREATE TABLE kept (a int)")
        assert [exists(url) for url in urls] == [False, False]

    def test_it_is_gone_after_an_error_too(self, name: str) -> None:
        store = servers.fresh(name)
        url = store.__enter__()
        assert (exists(url), store.__exit__(ZeroDivisionError, ZeroDivisionError(), None)) == (True, False)
        assert not exists(url)


class TestPrivate:
    @pytest.mark.parametrize("name", ["postgres", "mariadb", "mysql", "pgbouncer"])
    def test_it_is_killed_and_started_again_with_what_was_committed(self, name: str) -> None:
        with servers.private(name) as server:
            do(server.url, "CREATE TABLE kept (a int)")
            url = server.url
            server.kill()
            assert (server.running(), reached(url)) == (False, False)
            server.start()
            assert (url, ["kept"]) == (server.url, tables(url))

    @pytest.mark.parametrize("name", ["postgres", "mariadb"])
    def test_stores_are_made_in_it_before_and_after_it_was_killed(self, name: str) -> None:
        with servers.private(name, fast=True) as server, servers.stores(server) as new:
            urls = [new()]
            server.kill()
            server.start()
            urls.append(new())
            assert [exists(url) for url in urls] == [True, True]

    @pytest.mark.parametrize("name", ["postgres", "mariadb"])
    def test_a_paused_one_stands_still_and_goes_on(self, name: str) -> None:
        with servers.private(name, fast=True) as server:
            server.pause()
            paused = (server.running(), server.answers())
            server.resume()
            assert (paused, server.answers()) == ((True, False), True)

    def test_nothing_is_left_of_it_and_of_what_it_needed(self) -> None:
        with servers.private("pgbouncer", fast=True) as server:
            both = [server, server.needs["postgres"]]
            family = [process for each in both if each.process for process in each.process.tree()]
        assert len(family) > 2
        assert not any(process.alive() for process in family)
        assert not any(each.folder.exists() for each in both)


def test_the_replica_reads_what_the_primary_wrote_and_writes_nothing() -> None:
    with servers.fresh("postgres") as url:
        do(url, "CREATE TABLE kept (a int)")
        servers.replicated()
        schema = url.partition("?")[2]
        replica = f"{servers.url_of('postgres-replica')}?{schema}"
        assert tables(replica) == ["kept"]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            do(replica, "CREATE TABLE more (a int)")


def test_a_role_with_a_password_needs_it() -> None:
    with servers.private("postgres", fast=True) as server:
        do(server.url, "CREATE ROLE guarded LOGIN PASSWORD 'right' IN ROLE passworded")
        with servers.postgres(server.url.replace("postgres@", "guarded:right@")) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("guarded",)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            servers.postgres(server.url.replace("postgres@", "guarded:wrong@"))


def do(url: str, statement: str) -> None:
    if url.startswith("postgres"):
        with servers.postgres(url) as connection:
            connection.execute(statement.encode())
    else:
        with servers.mysql(url) as wire, wire.cursor() as cursor:
            cursor.execute(statement)


def tables(url: str) -> list[str]:
    if url.startswith("postgres"):
        with servers.postgres(url) as connection:
            return [
                name
                for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema")
            ]
    with servers.mysql(url) as wire, wire.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        return [name for (name,) in cursor.fetchall()]


def exists(url: str) -> bool:
    """Whether the schema or database is there that the URL names."""
    if url.startswith("postgres"):
        with servers.postgres(url) as connection:
            return connection.execute("SELECT current_schema").fetchone() != (None,)
    return reached(url)


def reached(url: str) -> bool:
    try:
        (servers.postgres if url.startswith("postgres") else servers.mysql)(url).close()
    except (psycopg.OperationalError, pymysql.OperationalError):
        return False
    return True
