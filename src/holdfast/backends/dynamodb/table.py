"""The table itself: what it is made of, and how it comes to be there."""

from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.failures import IN_USE, NO_TABLE, Unmet, code_of
from holdfast.backends.dynamodb.items import int_of, key_of, number
from holdfast.backends.dynamodb.wire import Turns, Wire
from holdfast.errors import SchemaTooNew, StoreError

_FORMAT = 1
_EXPIRY = "x"
_SCHEMA = [("p", "HASH"), ("s", "RANGE")]


class Table:
    """A table, which may be there or not."""

    def __init__(self, wire: Wire, *, creates: bool) -> None:
        self._wire = wire
        self._creates = creates

    async def setup(self) -> None:
        """Create what is missing. Where all is there, one item is read and nothing else is asked for."""
        try:
            found = await self._format()
        except StoreError as error:
            if not _is_missing(error) or not self._creates:
                raise
            await self._create()
            found = None
        if found is None:
            await self._check_keys()
            item = key_of(keys.FORMAT) | {"f": number(_FORMAT)}
            try:
                await self._wire.put(item, "attribute_not_exists(p)")
            except Unmet:
                found = await self._format()
        self._check_format(found)
        if self._wire.access.ttl is not None:
            await self._let_expire()

    async def _let_expire(self) -> None:
        """Have DynamoDB delete items when their time is over, unless it does already."""
        told = (await self._wire.request("describe_time_to_live"))["TimeToLiveDescription"]
        if told["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
            try:
                await self._wire.request(
                    "update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": _EXPIRY}
                )
            except StoreError as error:
                if "already" not in str(error):  # somebody else was quicker
                    raise
        elif told.get("AttributeName") != _EXPIRY:
            msg = (
                f"{self._wire.access.name} expires items by {told.get('AttributeName')!r}, and ?ttl needs it to do so "
                f"by {_EXPIRY!r}: change that, or name another table"
            )
            raise StoreError(msg)

    async def check(self) -> None:
        """Raise unless the table is there, and of this format."""
        found = await self._format()
        if found is None:
            msg = f"{self._wire.access.name} is a table that holdfast has not set up: call Saver.setup()"
            raise StoreError(msg)
        self._check_format(found)

    async def _format(self) -> int | None:
        try:
            found = await self._wire.get(keys.FORMAT)
        except StoreError as error:
            if "ValidationException" in str(error):
                raise self._other_keys() from error
            raise
        return int_of(found, "f") if found else None

    def _check_format(self, found: int | None) -> None:
        if found is not None and found > _FORMAT:
            msg = (
                f"{self._wire.access.name} was set up by a newer holdfast (storage format {found}, this one knows "
                f"{_FORMAT}): upgrade holdfast"
            )
            raise SchemaTooNew(msg)

    async def _create(self) -> None:
        try:
            await self._wire.request(
                "create_table",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in _SCHEMA],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "B"} for name, _ in _SCHEMA],
                BillingMode="PAY_PER_REQUEST",
            )
        except StoreError as error:
            if not isinstance(error.__cause__, ClientError) or code_of(error.__cause__) != IN_USE:
                raise  # else somebody else creates it at this moment
        turns = Turns(self._wire)
        while (await self._described())["TableStatus"] != "ACTIVE":
            await turns.wait("the table is not ready yet")

    async def _described(self) -> dict[str, Any]:
        return (await self._wire.request("describe_table"))["Table"]  # type: ignore[no-any-return]

    async def _check_keys(self) -> None:
        told = await self._described()
        types = {each["AttributeName"]: each["AttributeType"] for each in told["AttributeDefinitions"]}
        if [(each["AttributeName"], each["KeyType"]) for each in told["KeySchema"]] != _SCHEMA or {
            types[name] for name, _ in _SCHEMA
        } != {"B"}:
            raise self._other_keys()

    def _other_keys(self) -> StoreError:
        return StoreError(
            f"{self._wire.access.name} is a table of something else: holdfast's has the partition key p and the sort "
            "key s, both binary. Name another one; it is created if it is not there"
        )


def _is_missing(error: StoreError) -> bool:
    return isinstance(error.__cause__, ClientError) and code_of(error.__cause__) == NO_TABLE
