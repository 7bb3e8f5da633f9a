"""Whom to ask: where the service is, who we are there, and what it means when it says no."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import google.auth
import grpc
import grpc.aio
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1.services.firestore.transports import (
    FirestoreGrpcAsyncIOTransport,
    FirestoreGrpcTransport,
)

from holdfast.errors import Closed, StoreError

_HOST = "firestore.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/datastore",)
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A connection that nobody answers on is given up. Left to itself it would be used for a quarter of an hour.
    ("grpc.keepalive_time_ms", 30_000),
    # gRPC waits a second and more before it connects again, and fails all calls meanwhile.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # for as long it tries to connect
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Channels to one server would share a connection, also with those of event loops that have ended.
    ("grpc.use_local_subchannel_pool", 1),
)
_PASSING = (
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
)
_HINTS = {
    grpc.StatusCode.UNAVAILABLE: "may this machine reach it?",
    grpc.StatusCode.PERMISSION_DENIED: "the account needs the role roles/datastore.user on the project, and the API "
    "firestore.googleapis.com has to be enabled",
    grpc.StatusCode.UNAUTHENTICATED: "log in with `gcloud auth application-default login`, or name a key file in "
    "GOOGLE_APPLICATION_CREDENTIALS",
    grpc.StatusCode.NOT_FOUND: "is there such a project, with a database of this name? "
    "`gcloud firestore databases create` makes one",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "a quota of the project is used up",
}


@dataclass(slots=True)
class Access:
    """A database, and how it is reached. One for both halves of a store."""

    project: str
    database: str
    emulator: str = ""
    retry: float = 30
    timeout: float = 60
    read_only: bool = False
    was_reached: bool = False
    """A service that never answered is not waited for: more likely the URL is wrong."""
    is_closed: bool = False
    is_stranded: bool = False
    """Whether this is a forked process that gRPC can't be used in."""
    opened: list[Callable[[], None]] = field(default_factory=list)
    """What closes the connections of each half."""
    _credentials: Any = field(default=None, repr=False)

    @property
    def root(self) -> str:
        """What the names of all documents begin with."""
        return f"projects/{self.project}/databases/{self.database}"

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """What goes along with each call: for the service, where to send it; for an emulator, that all is allowed."""
        told = [("google-cloud-resource-prefix", self.root), ("x-goog-request-params", f"database={self.root}")]
        return [*told, ("authorization", "Bearer owner")] if self.emulator else told

    def blocking(self) -> FirestoreGrpcTransport:
        """A connection for blocking calls, from any thread."""
        if self.emulator:
            return FirestoreGrpcTransport(channel=grpc.insecure_channel(self.emulator, options=_OPTIONS))
        channel = FirestoreGrpcTransport.create_channel(_HOST, credentials=self.account(), options=_OPTIONS)
        return FirestoreGrpcTransport(channel=channel)

    def asyncio(self) -> FirestoreGrpcAsyncIOTransport:
        """A connection for the event loop that runs now."""
        if self.emulator:
            return FirestoreGrpcAsyncIOTransport(channel=grpc.aio.insecure_channel(self.emulator, options=_OPTIONS))
        channel = FirestoreGrpcAsyncIOTransport.create_channel(_HOST, credentials=self.account(), options=_OPTIONS)
        return FirestoreGrpcAsyncIOTransport(channel=channel)

    def check_open(self) -> None:
        """Raise `Closed` if it is; or an error, if a call would never end."""
        if self.is_closed:
            msg = "the saver was closed"
            raise Closed(msg)
        if self.is_stranded:
            msg = (
                f"{self}: this process was forked after an event loop had used the saver, and gRPC does not work in "
                "such a process: fork first, or start processes by spawn"
            )
            raise StoreError(msg)

    def check_writable(self) -> None:
        """Raise if all that is wanted is to look."""
        if self.read_only:
            msg = f"{self} was opened to be read, and not to be changed"
            raise StoreError(msg)

    def close(self) -> None:
        """Close the connections of both halves."""
        self.is_closed = True
        for close in self.opened:
            close()

    def account(self) -> Any:
        """Who we are, from wherever this machine says so."""
        if self._credentials is None:
            try:
                self._credentials, _ = google.auth.default(scopes=_SCOPES)
            except GoogleAuthError as error:
                hint = "log in with `gcloud auth application-default login`, or name a key file in "
                msg = f"{self}: no credentials of this machine were found: {hint}GOOGLE_APPLICATION_CREDENTIALS"
                raise StoreError(msg) from error
        return self._credentials

    def passes(self, error: grpc.RpcError, *, in_transaction: bool = False) -> bool:
        """Whether the same may well succeed a moment later."""
        code, words = code_of(error), words_of(error).lower()
        if code == grpc.StatusCode.UNAVAILABLE:
            return self.was_reached
        # A transaction that the service has forgotten: it took too long, or the service was restarted.
        is_forgotten = code == grpc.StatusCode.INVALID_ARGUMENT and "transaction" in words and "too big" not in words
        return code in _PASSING or (in_transaction and is_forgotten)

    def explained(self, error: grpc.RpcError) -> StoreError:
        """What failed, on what, and what to do."""
        hint = _HINTS.get(code_of(error))
        return StoreError(f"{self}: {' '.join(words_of(error).split())}{f': {hint}' if hint else ''}")

    def __str__(self) -> str:
        where = f" at {self.emulator}" if self.emulator else ""
        return f"firestore://{self.project}/{self.database}{where}"


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """What kind of failure it is; gRPC's errors are calls, too, and tell it as such."""
    code = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    return code if isinstance(code, grpc.StatusCode) else grpc.StatusCode.UNKNOWN


def words_of(error: grpc.RpcError) -> str:
    """What the service says of it."""
    return (error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else "") or type(error).__name__
