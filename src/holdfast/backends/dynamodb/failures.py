"""What goes wrong with DynamoDB: what passes by itself, and what to tell of the rest."""

import re
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as Unconnected,
)

from holdfast.backends.dynamodb.items import Item
from holdfast.errors import StoreError

FAILURES = (BotoCoreError, ClientError)
"""What the driver raises when something goes wrong between us and the server."""

CANCELLED = "TransactionCanceledException"
FAILED = "ConditionalCheckFailedException"
NO_TABLE = "ResourceNotFoundException"
IN_USE = "ResourceInUseException"
_FAILED_HERE = "ConditionalCheckFailed"

# Too much at once, or somebody else's transaction is at the same item: the next try may well succeed.
_BUSY = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "ThrottlingError",
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "TransactionConflictException",
        "TransactionConflict",
        "TransactionInProgressException",
        "ReplicatedWriteConflictException",
        "LimitExceededException",
    }
)
# The server itself failed, and nobody knows what became of the request.
_LOST = frozenset({"InternalServerError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException"})
_FIRST_OF_SERVER = 500


class Cancelled(Exception):
    """A transaction was not made. `reasons` has one for each of its parts."""

    def __init__(self, reasons: Sequence[Item], *, in_doubt: bool) -> None:
        super().__init__([reason.get("Code") for reason in reasons])
        self.reasons = reasons
        self.in_doubt = in_doubt
        """Whether an answer was lost before: then it may have been made, and be in its own way."""

    def failed(self, number: int) -> bool:
        """Whether the condition of a part does not hold."""
        return number < len(self.reasons) and bool(self.reasons[number].get("Code") == _FAILED_HERE)

    def found(self, number: int) -> Item | None:
        """What is there in place of a part whose condition does not hold."""
        return self.reasons[number].get("Item") or None

    def refusal(self) -> str:
        """What is wrong with it and stays so, whoever else is at work: it is too large, for instance."""
        passing = _BUSY | {"None", _FAILED_HERE}
        wrong = [reason for reason in self.reasons if reason.get("Code", "None") not in passing]
        return "; ".join(f"{reason.get('Code')} {reason.get('Message', '')}" for reason in wrong)


class Unmet(Exception):
    """The condition of a single write does not hold; `item` is what is there instead."""

    def __init__(self, item: Item | None, *, in_doubt: bool) -> None:
        super().__init__()
        self.item = item
        self.in_doubt = in_doubt


def code_of(error: Exception) -> str:
    """The name of an error that the server told; empty for others."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def told(error: Exception, what: str) -> Any:
    """What else the server told with an error; None if it did not."""
    return error.response.get(what) if isinstance(error, ClientError) else None


def is_lost(error: Exception) -> bool:
    """Whether nobody knows what became of the request."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code_of(error) in _LOST or int(status) >= _FIRST_OF_SERVER
    return isinstance(error, HTTPClientError | Unconnected)


def is_busy(error: Exception) -> bool:
    """Whether the server did not do it for now, and may do it a moment later."""
    return code_of(error) in _BUSY


def explained(error: Exception, where: str, secret: str = "", *, said: str = "") -> StoreError:
    """What failed, on what, and what to do."""
    code = code_of(error)
    told = error.response["Error"].get("Message", "") if isinstance(error, ClientError) else str(error)
    said = said or " ".join(filter(None, (code, told))) or type(error).__name__
    if secret:
        said = re.sub(re.escape(secret), "***", said)
    return StoreError(f"{where}: {said}{_hint(error, code, said)}")


RUN_TIME = (
    "dynamodb:GetItem, BatchGetItem, Query, PutItem, UpdateItem, DeleteItem, BatchWriteItem and ConditionCheckItem"
)
SET_UP = "dynamodb:CreateTable and DescribeTable, and with ?ttl also DescribeTimeToLive and UpdateTimeToLive"
_RIGHTS = (
    f"this identity lacks a right on the table. To run, holdfast needs {RUN_TIME}; to create the table by itself, "
    f"{SET_UP}"
)


def _hint(error: Exception, code: str, said: str) -> str:
    for codes, hint in _HINTS:
        if code in codes:
            return f": {hint}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return ": give them as boto3 wants them (environment, profile, role), or in the URL: dynamodb://key:secret@region/table"
    if isinstance(error, NoRegionError):
        return ": name the region in the URL"
    if isinstance(error, Unconnected | HTTPClientError):
        return ": is the region right, is the server running, and may this machine reach it?"
    if "Item size" in said:
        return ": a row holds the names of all channels and its metadata as they are; have fewer, or shorter ones"
    return ""


_HINTS = (
    ({"AccessDeniedException", "AccessDenied"}, _RIGHTS),
    (
        {"UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "InvalidClientTokenId"},
        "check the credentials, and whether they have expired",
    ),
    ({NO_TABLE}, "there is no such table here: call Saver.setup(), or correct its name or the region in the URL"),
    ({"ProvisionedThroughputExceededException"}, "the table has too little capacity: make it PAY_PER_REQUEST"),
    ({"ThrottlingException"}, "too much at once for the table, or for a part of it; try again"),
)
