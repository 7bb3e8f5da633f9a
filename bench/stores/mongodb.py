"""MongoDB: a database for each side, on a replica set of one that writes its journal before it answers."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langgraph.checkpoint.mongodb import MongoDBSaver
from pymongo import MongoClient

from stores.servers import careless, database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, plain_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-mongodb"


def _prepare(url: str) -> None:
    with _open(url):
        pass  # it makes its indexes when it is opened


@contextmanager
def _open(url: str) -> Iterator[Saver]:
    with MongoDBSaver.from_conn_string(url, name_of(url)) as saver:
        yield saver


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    with MongoDBSaver.from_conn_string(url, name_of(url)) as saver:
        yield saver


class MongoDB(Store):
    """Databases of one server, ours alone or one that is given."""

    name = "mongodb"
    title = "MongoDB"
    sides = (
        SaverSide(
            _PACKAGE,
            key="peer",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=plain_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    deltas = (False,)
    measured_by = "totalSize of dbStats, collections and indexes, after a checkpoint"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._made: set[str] = set()
        self._server = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._server.enter_context(running("mongodb"))
        self._main: MongoClient[Any] = self._server.enter_context(MongoClient(self._url))
        config = self._main.admin.command("replSetGetConfig")["config"]
        default = self._main.admin.command("getDefaultRWConcern")["defaultWriteConcern"]
        waits = bool(config["writeConcernMajorityJournalDefault"]) and default["w"] == "majority"
        self.durability = f"default write concern {default['w']}, with journal: {waits}"
        if not waits:
            raise careless(self.durability)
        self.versions = {name: version(name) for name in (_PACKAGE, "pymongo")}
        self.versions |= {"MongoDB": self._main.server_info()["version"]}

    def close(self) -> None:
        for url in list(self._made) if self._given else ():  # a server of our own goes with all it has
            self.drop(url)
        self._server.close()

    def create(self, name: str) -> str:
        url = database(self._url, f"bench_{name}")
        self.drop(url)
        self._made.add(url)
        return url

    def drop(self, url: str) -> None:
        self._main.drop_database(name_of(url))
        self._made.discard(url)

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        yield f"{url}{'&' if '?' in url else '?'}w=1&journal=false"

    def settle(self, url: str) -> None:
        del url
        self._main.admin.command("fsync")

    def stored(self, url: str) -> int:
        return int(self._main[name_of(url)].command("dbStats")["totalSize"])

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        collection = self._main[name_of(url)]["bare"]

        def put(data: bytes) -> None:
            collection.insert_one({"data": data})

        yield put


def open_store(_: Path, given: str | None) -> MongoDB:
    return MongoDB(given)
