"""The only code that talks to DynamoDB: requests with retries, and several of them at once.

The client of botocore may be used by many threads. What an operation needs at one moment is asked for at one moment,
each request on a thread of its own; so a round trip is as long as its longest request.
"""

import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from holdfast.backends.dynamodb.failures import (
    CANCELLED,
    FAILED,
    FAILURES,
    Cancelled,
    Unmet,
    code_of,
    explained,
    is_busy,
    is_lost,
    told,
)
from holdfast.backends.dynamodb.items import Item, key_of
from holdfast.backends.dynamodb.keys import Place
from holdfast.backends.sql.retry import Patience
from holdfast.engine.unique import unique
from holdfast.errors import Closed, StoreError
from holdfast.fork import watch
from holdfast.run import run

T = TypeVar("T")

MOST_AT_ONCE = 100
"""Of how many items a transaction may be, and how many may be asked for by their keys."""
LARGEST = 3_500_000
"""Of how many bytes a transaction may be; DynamoDB takes 4 MB, and counts somewhat differently."""
_BATCH = 25
_FIRST, _LONGEST, _LEAST = 0.004, 0.25, 10.0
"""Seconds to wait for others: at first, at most at once, and in all at the least."""
_WRITES = frozenset(
    {"put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items", "create_table"}
    | {"update_time_to_live"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a table is reached by."""

    name: str
    table: str
    client: Callable[[], Any]
    retry: float = 30
    pool: int = 16
    read_only: bool = False
    secret: str = ""
    ttl: int | None = None
    is_ours: bool = True
    """Whether the client is closed with the wire."""


@dataclass(frozen=True, slots=True)
class Span:
    """Items of one partition whose places are from `low` to `high`, both included."""

    p: bytes
    low: bytes
    high: bytes
    labels: tuple[frozenset[bytes], ...] = ()
    """Of each set, one at least must be among an item's labels."""
    attributes: tuple[str, ...] = ()
    """Only these; all, if none is named."""

    def parameters(self) -> dict[str, Any]:
        """The query for them, the greatest places first."""
        values: Item = {":p": {"B": self.p}, ":low": {"B": self.low}, ":high": {"B": self.high}}
        asked: dict[str, Any] = {
            "KeyConditionExpression": "p = :p AND s BETWEEN :low AND :high",
            "ExpressionAttributeValues": values,
            "ScanIndexForward": False,
            "ConsistentRead": True,
        }
        if self.labels:
            clauses: list[str] = []
            for number, labels in enumerate(self.labels):
                names = [f":l{number}x{position}" for position in range(len(labels))]
                values |= {name: {"B": label} for name, label in zip(names, sorted(labels), strict=True)}
                clauses.append(f"({' OR '.join(f'contains(l, {name})' for name in names)})")
            asked["FilterExpression"] = " AND ".join(clauses)
        if self.attributes:
            names = [f"#{number}" for number in range(len(self.attributes))]
            asked["ProjectionExpression"] = ", ".join(names)
            asked["ExpressionAttributeNames"] = dict(zip(names, self.attributes, strict=True))
        return asked


class Wire:
    """Blocking: its methods never suspend."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._client: Any = None
        self._was_reached = False
        self._is_closed = False
        self._gate = threading.Condition()
        self._under_way = 0
        self._is_resting = False
        self._pool = self._threads()
        watch(self)

    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.access.pool, thread_name_prefix="holdfast-dynamodb")

    # Requests.

    async def get(self, place: Place) -> Item | None:
        """One item."""
        reply = await self.request("get_item", Key=key_of(place), ConsistentRead=True)
        return reply.get("Item")  # type: ignore[no-any-return]

    async def get_many(self, places: Iterable[Place], attributes: Sequence[str] = ()) -> list[Item]:
        """Those items that are there, in any order."""
        wanted = list(dict.fromkeys(places))
        pieces = [wanted[start : start + MOST_AT_ONCE] for start in range(0, len(wanted), MOST_AT_ONCE)]
        found = await self.gather([self._get_some(piece, attributes) for piece in pieces])
        return [item for items in found for item in items]

    async def _get_some(self, places: Sequence[Place], attributes: Sequence[str]) -> list[Item]:
        asked: dict[str, Any] = {"Keys": [key_of(place) for place in places], "ConsistentRead": True}
        if attributes:
            names = {f"#{number}": name for number, name in enumerate(attributes)}
            asked |= {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        table = self.access.table
        left: dict[str, Any] = {table: asked}
        found: list[Item] = []
        turns = Turns(self)
        while left:
            reply = await self.request("batch_get_item", is_of_table=False, RequestItems=left)
            got = reply["Responses"].get(table, [])
            found += got
            left = reply.get("UnprocessedKeys") or {}
            if left and not got:
                await turns.wait("it does not come to answering")
        return found

    async def page(self, span: Span, *, limit: int | None = None, start: Item | None = None) -> tuple[list[Item], Any]:
        """Some items of a span, the greatest first, and where to go on; at most 1 MB of them is looked at."""
        asked = span.parameters()
        if limit is not None:
            asked["Limit"] = max(1, limit)
        if start is not None:
            asked["ExclusiveStartKey"] = start
        reply = await self.request("query", **asked)
        return reply["Items"], reply.get("LastEvaluatedKey")

    async def ascending(self, span: Span, limit: int) -> tuple[list[Item], Any]:
        """The least items of a span, and where to go on."""
        asked = span.parameters() | {"ScanIndexForward": True, "Limit": limit}
        reply = await self.request("query", **asked)
        return reply["Items"], reply.get("LastEvaluatedKey")

    async def read(self, span: Span) -> list[Item]:
        """All items of a span, the greatest first."""
        found, more = await self.page(span)
        while more:
            items, more = await self.page(span, start=more)
            found += items
        return found

    async def put(self, item: Item, condition: str = "", values: Item | None = None) -> None:
        """Put one item; `Unmet` if the condition does not hold."""
        await self.request("put_item", **_conditional({"Item": item}, condition, values))

    async def update(self, place: Place, expression: str, condition: str, values: Item) -> Item:
        """Change one item, and return it; `Unmet` if the condition does not hold."""
        asked = _conditional({"Key": key_of(place), "UpdateExpression": expression}, condition, values)
        reply = await self.request("update_item", ReturnValues="ALL_NEW", **asked)
        return reply["Attributes"]  # type: ignore[no-any-return]

    async def transact(self, parts: Sequence[Item]) -> None:
        """Make several writes together, or none: `Cancelled` says why. An answer that is lost makes nothing twice."""
        # Amazon remembers it for ten minutes: what was made already is then not made again.
        mark = str(UUID(int=unique(128)))
        await self.request("transact_write_items", is_of_table=False, TransactItems=parts, ClientRequestToken=mark)

    async def write(self, puts: Sequence[Item], deletes: Sequence[Place] = ()) -> None:
        """Put and delete items, each by itself and in any order."""
        asked = [{"PutRequest": {"Item": item}} for item in puts]
        asked += [{"DeleteRequest": {"Key": key_of(place)}} for place in deletes]
        pieces = [asked[start : start + _BATCH] for start in range(0, len(asked), _BATCH)]
        await self.gather([self._write_some(piece) for piece in pieces])

    async def _write_some(self, asked: Sequence[Item]) -> None:
        left: dict[str, Any] = {self.access.table: asked}
        turns = Turns(self)
        while left:
            reply = await self.request("batch_write_item", is_of_table=False, RequestItems=left)
            before, left = sum(map(len, left.values())), reply.get("UnprocessedItems") or {}
            if left and sum(map(len, left.values())) == before:
                await turns.wait("it does not come to writing")

    # How they are made.

    async def request(self, operation: str, *, is_of_table: bool = True, **parameters: Any) -> Any:
        """One request, made again as long as it fails for a reason that passes."""
        access = self.access
        if access.read_only and operation in _WRITES:
            msg = f"{access.name} was opened to be read only"
            raise StoreError(msg)
        if is_of_table:
            parameters["TableName"] = access.table
        patience = Patience(access.retry)
        in_doubt = False
        while True:
            try:
                reply = self._send(operation, parameters)
            except FAILURES as error:
                lost = is_lost(error)
                if code_of(error) == CANCELLED:
                    cancelled = Cancelled(told(error, "CancellationReasons") or [], in_doubt=in_doubt)
                    if refusal := cancelled.refusal():
                        raise explained(error, access.name, access.secret, said=refusal) from error
                    raise cancelled from error
                if code_of(error) == FAILED:
                    raise Unmet(told(error, "Item"), in_doubt=in_doubt) from error
                pause = patience.pause() if is_busy(error) or (lost and self._was_reached) else None
                if pause is None:
                    raise explained(error, access.name, access.secret) from error
                in_doubt = in_doubt or lost
                time.sleep(pause)  # noqa: ASYNC251 - a blocking wire
            else:
                self._was_reached = True
                return reply

    def _send(self, operation: str, parameters: dict[str, Any]) -> Any:
        # Not behind the gate: making one takes a lock that a fork may hold already when it comes to the gate.
        made = self.access.client() if self._client is None and not self._is_closed else None
        with self._gate:
            while self._is_resting:
                self._gate.wait()
            if self._is_closed:
                raise _closed()
            client = self._client = self._client or made
            self._under_way += 1
        try:
            return getattr(client, operation)(**parameters)
        finally:
            with self._gate:
                self._under_way -= 1
                self._gate.notify_all()

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """What several return that know nothing of each other, in their order."""
        futures: list[tuple[Future[T], Coroutine[Any, Any, T]]] = []
        try:
            futures += ((self._pool.submit(run, coroutine), coroutine) for coroutine in coroutines[1:])
        except RuntimeError as error:
            if not self._is_closed:
                raise
            for coroutine in (*coroutines[:1], *coroutines[1 + len(futures) :]):
                coroutine.close()
            raise _closed() from error
        results = [await coroutine for coroutine in coroutines[:1]]
        # What no thread has come to yet is done here, so that threads which wait for others never wait for ever.
        results += [await coroutine if future.cancel() else future.result() for future, coroutine in futures]
        return results

    def close(self) -> None:
        """Let go of the threads, and of the client's connections if it is ours."""
        with self._gate:
            is_closed, self._is_closed = self._is_closed, True
        self._pool.shutdown()
        if self.access.is_ours and self._client is not None and not is_closed:
            self._client.close()

    # Forks.

    def rest(self) -> None:
        """Wait until no request is under way: its connection can't be shared with a child."""
        self._gate.acquire()
        self._is_resting = True
        while self._under_way:
            self._gate.wait()

    def resume(self, *, child: bool) -> None:
        """Go on; a child with connections and threads of its own."""
        self._is_resting = False
        if child:
            self._pool = self._threads()
            if self._client is not None:
                self._client.close()  # it opens new ones when it needs them
        self._gate.notify_all()
        self._gate.release()


def put_part(table: str, item: Item, condition: str = "", values: Item | None = None) -> Item:
    """A put as a part of a transaction."""
    return {"Put": _conditional({"TableName": table, "Item": item}, condition, values)}


def delete_part(table: str, place: Place, condition: str = "", values: Item | None = None) -> Item:
    """A deletion as a part of a transaction."""
    return {"Delete": _conditional({"TableName": table, "Key": key_of(place)}, condition, values)}


def check_part(table: str, place: Place, condition: str, values: Item | None = None) -> Item:
    """A condition as a part of a transaction."""
    return {"ConditionCheck": _conditional({"TableName": table, "Key": key_of(place)}, condition, values)}


def update_part(table: str, place: Place, expression: str, condition: str, values: Item) -> Item:
    """A change to an item as a part of a transaction."""
    asked = {"TableName": table, "Key": key_of(place), "UpdateExpression": expression}
    return {"Update": _conditional(asked, condition, values)}


def _conditional(asked: Item, condition: str, values: Item | None) -> Item:
    if condition:
        asked |= {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    if values:
        asked["ExpressionAttributeValues"] = values
    return asked


def _closed() -> Closed:
    return Closed("the saver was closed")


class Turns:
    """The patience of one operation with others that are at work on the same items: they are done in milliseconds."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._deadline = time.monotonic() + max(wire.access.retry, _LEAST)
        self._pause = _FIRST

    async def wait(self, why: str) -> None:
        """Wait for a while, or give up if there was enough of that."""
        if time.monotonic() > self._deadline:
            msg = f"{self._wire.access.name}: {why}; try again later"
            raise StoreError(msg)
        time.sleep(self._pause * random.uniform(0.5, 1.5))  # noqa: ASYNC251, S311 - it blocks, and hides nothing
        self._pause = min(2 * self._pause, _LONGEST)
