"""DynamoDB, as Amazon's emulator has it: a table for each side, on one server that keeps them in a file.

What it takes is counted as DynamoDB bills it, item by item; times say what the savers ask of a server, and little of
how long the real one would take. The peer can't hold a checkpoint of more than 350 KB in DynamoDB: such ones it puts
into S3, for which a server runs beside.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from langgraph_checkpoint_aws import DynamoDBSaver  # type: ignore[import-untyped]

from stores.servers import database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, plain_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-aws"
_BUCKET = "holdfast"
_ASIDE = "HOLDFAST_BENCH_S3"
_S3 = Config(s3={"addressing_style": "path"})


@cache
def _session() -> Any:
    s3 = urlsplit(os.environ[_ASIDE])  # DynamoDB Local takes any credentials
    return boto3.session.Session(
        aws_access_key_id=s3.username, aws_secret_access_key=s3.password, region_name="us-east-1"
    )


def _client(url: str, service: str = "dynamodb") -> Any:
    return _session().client(service, endpoint_url=_endpoint(url), config=_S3)


def _endpoint(url: str) -> str:
    return parse_qs(urlsplit(url).query)["endpoint"][0]


def _prepare(url: str) -> None:
    client = _client(url)
    client.create_table(
        TableName=name_of(url),
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
        BillingMode="PAY_PER_REQUEST",
    )
    client.close()


@contextmanager
def _open(url: str) -> Iterator[Saver]:
    aside = {"bucket_name": _BUCKET, "endpoint_url": _endpoint(os.environ[_ASIDE]), "key_prefix": name_of(url)}
    yield DynamoDBSaver(
        name_of(url), session=_session(), endpoint_url=_endpoint(url), boto_config=_S3, s3_offload_config=aside
    )


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    with _open(url) as saver:
        yield saver


class DynamoDB(Store):
    """Tables of one server, ours alone or one that is given."""

    name = "dynamodb"
    title = "DynamoDB Local"
    sides = (
        SaverSide(
            f"{_PACKAGE} (DynamoDB)",
            key="peer",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=plain_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    listed = 200
    deltas = (False,)
    measured_by = "the names and values of every item, as DynamoDB bills them, and the peer's objects in S3"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._made: set[str] = set()
        self._servers = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._servers.enter_context(running("dynamodb"))
        os.environ[_ASIDE] = self._servers.enter_context(running("s3"))  # for the processes of a scenario, too
        self.durability = "SQLite's own default, in a file"
        self.versions = {name: version(name) for name in (_PACKAGE, "boto3")}

    def close(self) -> None:
        for url in list(self._made) if self._given else ():
            self.drop(url)
        self._servers.close()

    def create(self, name: str) -> str:
        url = database(self._url, f"bench_{name}")
        self.drop(url)
        self._made.add(url)
        return url

    def drop(self, url: str) -> None:
        client = _client(url)
        if name_of(url) in client.list_tables()["TableNames"]:
            client.delete_table(TableName=name_of(url))
        client.close()
        self._made.discard(url)

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        yield url

    def settle(self, url: str) -> None:
        """Nothing is put off."""

    def stored(self, url: str) -> int:
        client = _client(url)
        pages = client.get_paginator("scan").paginate(TableName=name_of(url), ConsistentRead=True)
        taken = sum(_size({"M": item}) for page in pages for item in page["Items"])
        client.close()
        objects = _client(os.environ[_ASIDE], "s3").get_paginator("list_objects_v2")
        for page in objects.paginate(Bucket=_BUCKET, Prefix=f"{name_of(url)}/"):
            taken += sum(each["Size"] for each in page.get("Contents", ()))
        return taken

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        client = _client(url)
        _prepare(url)
        count = iter(range(1 << 30))

        def put(data: bytes) -> None:
            key = {"PK": {"S": "bare"}, "SK": {"S": f"{next(count):09}"}}
            client.put_item(TableName=name_of(url), Item={**key, "data": {"B": data[:390_000]}})

        yield put
        client.close()


def _size(value: dict[str, Any]) -> int:
    """Bytes of a value, as DynamoDB counts them."""
    ((kind, content),) = value.items()
    match kind:
        case "S" | "B":
            return len(content if kind == "B" else content.encode())
        case "N":
            return len(content) // 2 + 1
        case "SS" | "BS" | "NS":
            return sum(map(len, content))
        case "L":
            return 3 + sum(1 + _size(each) for each in content)
        case "M":
            return sum(len(name.encode()) + _size(each) for name, each in content.items())
    return 1


def open_store(_: Path, given: str | None) -> DynamoDB:
    return DynamoDB(given)
