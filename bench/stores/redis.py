"""Redis: a database for each side, on one server that flushes its log before it answers.

langgraph-checkpoint-redis can't be measured here: it needs RedisJSON and a RediSearch that knows it. No package of PyPI
was found to bring them, and Debian's RediSearch is 1.2, from before. langgraph-checkpoint-aws has a saver for Valkey,
which stores checkpoints under plain keys.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis
from langgraph_checkpoint_aws.checkpoint.valkey import (  # type: ignore[import-untyped]
    AsyncValkeySaver,
    ValkeySaver,
)

from stores.servers import careless, database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, their_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-aws"
_FLUSH = "appendfsync"
_DATABASES = 16
_AT_ONCE = 1000


def _prepare(_: str) -> None:
    """It has nothing to prepare."""


@contextmanager
def _open(url: str) -> Iterator[Saver]:
    with ValkeySaver.from_conn_string(url) as saver:
        yield saver


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    # As many connections as there are tasks: its pool fails where others wait.
    async with AsyncValkeySaver.from_conn_string(url, pool_size=64) as saver:
        yield saver


class Redis(Store):
    """Databases of one server, ours alone or one that is given."""

    name = "redis"
    title = "Redis"
    sides = (
        SaverSide(
            f"{_PACKAGE} (Valkey)",
            key="peer",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=their_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    listed = 400
    deltas = (False,)
    measured_by = "MEMORY USAGE of every key, all its elements looked at"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._free = [*range(_DATABASES)]
        self._server = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._server.enter_context(running("redis"))
        self._main: Any = self._server.enter_context(closing(redis.Redis.from_url(self._url)))
        settings = self._main.config_get("append*")
        self.durability = ", ".join(f"{name}={settings[name]}" for name in ("appendonly", _FLUSH))
        if settings["appendonly"] != "yes" or settings[_FLUSH] != "always":
            raise careless(self.durability)
        self.versions = {name: version(name) for name in (_PACKAGE, "redis", "valkey")}
        told = self._main.info("server")
        self.title = "Valkey" if "valkey_version" in told else "Redis"
        self.versions |= {self.title: told.get("valkey_version", told["redis_version"])}

    def close(self) -> None:
        if self._given:
            self._main.flushall()
        self._server.close()

    def create(self, name: str) -> str:
        del name  # databases have numbers
        url = database(self._url, str(self._free.pop(0)))
        self._do(url, "FLUSHDB")
        return url

    def drop(self, url: str) -> None:
        self._do(url, "FLUSHDB")
        self._free.append(int(name_of(url)))

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        # It can be set for the whole server only; whoever measures does so after the block.
        self._main.config_set(_FLUSH, "no")
        try:
            yield url
        finally:
            self._main.config_set(_FLUSH, "always")

    def settle(self, url: str) -> None:
        """Nothing is put off."""

    def stored(self, url: str) -> int:
        taken = 0
        with closing(redis.Redis.from_url(url)) as client:
            keys = list(client.scan_iter(count=_AT_ONCE))
            for first in range(0, len(keys), _AT_ONCE):
                pipeline: Any = client.pipeline(transaction=False)
                for key in keys[first : first + _AT_ONCE]:
                    pipeline.memory_usage(key, samples=0)
                taken += sum(pipeline.execute())
        return taken

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        with closing(redis.Redis.from_url(url)) as client:

            def put(data: bytes) -> None:
                client.rpush("bare", data)

            yield put

    def _do(self, url: str, command: str) -> None:
        with closing(redis.Redis.from_url(url)) as client:
            anything: Any = client
            anything.execute_command(command)


def open_store(_: Path, given: str | None) -> Redis:
    return Redis(given)
