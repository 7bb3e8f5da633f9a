"""The command that starts real servers, on real servers in a folder of its own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import servers
from machine import lacking
from services.processes import Process
from services.server import Instance

from services import fleet, places

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder for servers that their user can enter; no server is given from outside, and CI asks for nothing."""
    if fleet.KINDS["postgres"].version() is None:
        lacking("postgres is not installed")
    folder = places.claim(places.home()) / f"tests-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_SERVICES", str(folder))
        patch.delenv("CI", raising=False)
        for kind in fleet.KINDS.values():
            patch.delenv(kind.variable, raising=False)
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _all_down(home: Path) -> Iterator[None]:
    yield
    services("down")
    for name in fleet.KINDS:
        assert not fleet.find(name).running()
        shutil.rmtree(home / name, ignore_errors=True)


def services(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as one does in a shell."""
    command = [sys.executable, "-m", "services", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def started(name: str = "postgres") -> Instance:
    done = services("up", "--fast", name)
    assert (done.returncode, fleet.find(name).answers()) == (0, True), done.stderr
    return fleet.find(name)


def remembers(server: Instance) -> bool:
    """Whether a table is still there that `remember` made."""
    with servers.postgres(server.url) as connection:
        return connection.execute("SELECT to_regclass('public.remembered') IS NOT NULL").fetchone() == (True,)


def remember(server: Instance) -> None:
    with servers.postgres(server.url) as connection:
        connection.execute("CREATE TABLE public.remembered ()")


def test_a_server_that_answers_is_left_alone() -> None:
    first, second = started(), started()
    assert first.process == second.process


def test_down_ends_what_up_started() -> None:
    server = started()
    assert server.process
    family = server.process.tree()
    services("down", "postgres")
    assert (len(family) > 1, [process for process in family if process.alive()]) == (True, [])


def test_a_process_that_took_over_the_number_is_no_server_and_is_not_ended() -> None:
    server = started()
    services("down")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        state = server.folder / "state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "pid": bystander.pid}))
        assert not fleet.find("postgres").running()
        again = started()
        assert again.process
        assert again.process.pid != bystander.pid
        state.write_text(json.dumps({**json.loads(state.read_text()), "pid": bystander.pid}))
        services("down")
        assert bystander.poll() is None
        again.stop()
        bystander.kill()


def test_what_was_committed_outlives_a_server_that_is_killed() -> None:
    server = started()
    remember(server)
    server.kill()
    assert "down" in services("status", "postgres").stdout
    again = started()
    assert (server.url, True) == (again.url, remembers(again))


def test_a_server_that_was_killed_and_not_reaped_is_not_in_the_way() -> None:
    server = fleet.find("postgres")
    server.start(fast=True, port=places.free_port())  # as our child: nobody else can reap it
    assert server.process
    os.kill(server.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.process.pid, os.WEXITED | os.WNOWAIT)
    assert started().process != server.process


def test_fresh_data_is_empty() -> None:
    remember(started())
    services("up", "--fast", "--fresh", "postgres")
    assert not remembers(fleet.find("postgres"))


def test_a_replica_and_a_bouncer_follow_the_server_that_was_made_anew() -> None:
    started("postgres-replica")
    started("pgbouncer")
    services("up", "--fast", "--fresh", "postgres")
    assert all(fleet.find(name).answers() for name in ("postgres-replica", "pgbouncer"))
    remember(fleet.find("postgres"))
    servers.replicated()
    assert [remembers(fleet.find("postgres-replica")), remembers(fleet.find("pgbouncer"))] == [True, True]


def test_a_port_that_is_taken_is_left_to_its_owner() -> None:
    wanted = fleet.KINDS["postgres"].port
    with ExitStack() as stack:
        if places.is_free(wanted):
            stack.enter_context(socket.create_server(("127.0.0.1", wanted)))
        assert started().port not in {wanted, *range(32768, 65536)}


def test_two_at_once_start_one_server() -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: services("up", "--fast", "postgres"), range(2)))
    told = "".join(run.stderr for run in done)
    assert ([run.returncode for run in done], told.count("postgres          up on port")) == ([0, 0], 1)


def test_durable_is_asked_for_again_and_fast_is_not() -> None:
    server = started()
    services("up", "postgres")
    with servers.postgres(server.url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    durable = fleet.find("postgres").process
    assert durable == started().process


def test_a_server_that_does_not_start_shows_the_end_of_its_log() -> None:
    server = started()
    services("down")
    with server.data.joinpath("postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    done = services("up", "postgres")
    assert (done.returncode, "unrecognized configuration parameter" in done.stderr) == (1, True)
    assert services("up", "--fresh", "postgres").returncode == 0


def test_env_names_what_is_up() -> None:
    server = started()
    assert services("env").stdout == f"export HOLDFAST_TEST_POSTGRES={server.url}\n"


def test_a_server_that_is_given_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in fleet.KINDS.values():
        monkeypatch.setenv(kind.variable, "given")
    done = services("up")
    assert (done.returncode, services("env").stdout) == (0, "")
    assert "is left to HOLDFAST_TEST_MARIADB" in done.stderr


def test_run_lends_servers_to_a_command_and_passes_its_status_on() -> None:
    show = 'import os, sys; print(os.environ["HOLDFAST_TEST_POSTGRES"]); sys.exit(7)'
    done = services("run", "--fast", "postgres", "--", sys.executable, "-c", show)
    assert (done.returncode, done.stdout.startswith("postgresql://postgres@127.0.0.1:")) == (7, True), done.stderr
    assert list(places.home().joinpath("private").iterdir()) == []


def test_an_unknown_name_is_told() -> None:
    done = services("up", "oracle")
    assert (done.returncode, "no server is called oracle" in done.stderr) == (2, True)


def test_a_private_server_of_a_killed_process_is_ended_by_the_next_run() -> None:
    script = "from services import fleet\nwith fleet.private('postgres') as it: print(*it.process, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        pid, _, moment = owner.stdout.readline().strip().partition(" ")
        owner.kill()
    server = Process(int(pid), moment)
    assert server.alive()
    services("down")
    assert (server.alive(), list(places.home().joinpath("private").iterdir())) == (False, [])


def test_without_root_servers_run_as_the_user_that_asks(home: Path) -> None:
    if places.user() is None:
        pytest.skip("we are not root: every other test shows it")
    # The Python that we run may be in a folder that is closed to others.
    found = [each for each in (sys.executable, "/usr/bin/python3") if runs_for_nobody(each)]
    if not found:
        pytest.skip("no other user can run a Python here, or read this repository")
    folder = home / "of-nobody"
    folder.mkdir()
    shutil.chown(folder, "nobody")
    command = [found[0], "-m", "services", "run", "--fast", "postgres", "--", "env"]
    variables = {**os.environ, "HOLDFAST_SERVICES": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, user="nobody", extra_groups=[], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "HOLDFAST_TEST_POSTGRES=" in done.stdout) == (0, True), done.stderr


def runs_for_nobody(python: str) -> bool:
    command = ["env", python, "-c", "import sys, services; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(command, cwd=ROOT, user="nobody", capture_output=True, check=False).returncode == 0
