"""Deleting threads.

Without its head a thread is gone, with all that it had, at once and for everybody. Its documents are deleted after
that, some hundred at a time. A grave tells that this has to be done: if whoever began is kept from it, the next
deletion finishes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from holdfast.backends.firestore.access import code_of
from holdfast.backends.firestore.changes import born_of
from holdfast.backends.firestore.documents import PbWrite, data_of, delete, head_of
from holdfast.backends.firestore.names import digest
from holdfast.backends.firestore.pages import Reader, Selection
from holdfast.backends.firestore.wires import Transaction
from holdfast.errors import StoreError

_PAGE = 300
_CONDITIONS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Undertaker:
    """Deletes threads of one application."""

    reader: Reader

    async def bury(self, thread: str) -> str:
        """Take a thread's head, and note that the rest has to go; which life has ended."""
        places = self.reader.places
        name = places.head(thread)
        born = ""

        async def body(transaction: Transaction) -> Sequence[Any]:
            nonlocal born
            (answer,) = await transaction.ask(places.get([name]))
            if not answer.documents:
                return []
            head = head_of(answer.documents[0])
            if born and head.born != born:
                return []  # the last attempt did it, though nobody heard, and the thread was begun anew since
            born = head.born
            return [delete(answer.documents[0]), places.grave_write(thread, born)]

        await self.reader.wire.transact(body)
        return born

    async def clear(self, thread: str, born: str) -> None:
        """Delete what is left of a life that has ended; then its grave."""
        for kind in ("rows", "writes", "segments"):
            chosen = Selection(kind, ("t", digest(thread)), ("data.born",))
            start: str | None = ""
            while start is not None:
                page = await self.reader.page(chosen, start=start, limit=_PAGE)
                dead = [one for one in page.documents if born_of(one) == born]
                if not dead or await self._delete(dead):
                    start = page.next
        await self.reader.wire.make([PbWrite(delete=self.reader.places.path("graves", born))])

    async def clear_forgotten(self) -> None:
        """Finish what somebody began and was kept from, one at a time."""
        (answer,) = await self.reader.wire.read(self.reader.places.query("graves", limit=1))
        for one in answer.documents:
            await self.clear(data_of(one)["thread"].string_value, one.name.rpartition("/")[2])

    async def _delete(self, dead: Sequence[Any]) -> bool:
        """Delete documents, unless one of them is another one by now: names come again in the next life."""
        try:
            await self.reader.wire.make([delete(one, unchanged=True) for one in dead])
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.RpcError) and code_of(cause) in _CONDITIONS:
                return False
            raise
        return True
