"""The backend: records in documents.

Reading takes two round trips. The first finds rows; the second reads, as of the same time, all that they need: the
heads of their threads, segments by name, and writes by the checkpoint that they belong to. Nothing is locked.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc

from holdfast.backends.firestore.access import code_of
from holdfast.backends.firestore.changes import Attempt, TooLarge, born_of, new_token, token_of
from holdfast.backends.firestore.documents import (
    Head,
    PbWrite,
    Places,
    data_of,
    delete,
    head_of,
    key_of,
    label_texts,
    labels_of,
    row_from,
    write_from,
)
from holdfast.backends.firestore.names import (
    digest,
    first_below,
    first_of,
    row_cluster,
    row_name,
    thread_cluster,
    thread_name,
)
from holdfast.backends.firestore.pieces import pieces
from holdfast.backends.firestore.wires import Answer, Transaction, Wire
from holdfast.backends.packing import matches, place
from holdfast.engine.records import Change, Found, Key, Limits, Query, Row, Segment, ThreadInfo, Write
from holdfast.errors import Conflict, SchemaTooNew, StoreError

FORMAT = 1

_LIMITS = Limits(segments=128, batch=300, value=900_000, row=400_000)
_PAGE = 300
_PER_GET = 1_000
_PER_QUERY = 30
"""Alternatives that one query may have."""
_HEADS = tuple(f"data.{name}" for name in ("thread", "ns", "id", "parent", "refs", "settled", "meta", "born"))
_NEEDED = ("data.thread", "data.born", "data.revision", "data.data")

T = TypeVar("T")
Needs = dict[str, tuple[str, str, int]]
"""Segments by their full names: thread, log, number."""


class Page(NamedTuple):
    """Some documents in order, and where the next ones begin; None if there are none."""

    documents: list[Any]
    next: str | None
    time: Any


class FirestoreBackend:
    """One application's documents, over one wire."""

    limits = _LIMITS

    def __init__(self, wire: Wire, places: Places) -> None:
        self.wire = wire
        self._places = places

    async def setup(self) -> None:
        """Note the storage format; there is nothing else to create."""
        if await self._format() is None:
            made = PbWrite()
            made.update.name = self._places.home
            made.update.fields["format"].integer_value = FORMAT
            await self.wire.make([made])  # whoever else does so writes the same

    async def check(self, *, outdated: bool = False) -> None:
        """Look whether the format is noted."""
        del outdated  # there is one format so far
        if await self._format() is None:
            msg = f"{self.wire.access}: there is no store of holdfast's in {self._places.home.partition('/documents/')[2]}"
            raise StoreError(msg)

    async def close(self) -> None:
        """Close the connections."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """Rows first, then what they need; again only where rows turn out to be of threads that are gone."""
        found = Found()
        lives: dict[str, Head] = {}
        left, start, time = query.limit, "", None
        while left is None or left > 0:
            page = await self._rows(query, start, time, left)
            rows = [(row_from(one), born_of(one)) for one in page.documents][:left]
            time, start = page.time, page.next or ""
            if rows:
                kept = await self._complete(found, rows, time, lives, heads=query.heads)
                left = None if left is None else left - kept
            if page.next is None:
                break
        return found

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """The head with the segments, then the writes as of the same time."""
        needs = self._needs([(thread, log, seq) for log, seq in logs.items()])
        gets = self._gets([self._places.head(thread), *needs])
        answers = await self._read([*gets, *self._writes_of([Key(thread, ns, id_) for id_ in ids] if channels else [])])
        by_name = _by_name(answers[: len(gets)])
        head = by_name.pop(self._places.head(thread), None)
        if head is None:
            return Found()
        lives = {thread: head_of(head)}
        found = Found(revisions={thread: lives[thread].revision})
        found.segments.extend(_segments(by_name, needs, lives))
        wanted = frozenset(channels)
        found.writes.extend(write for write in _whole(answers[len(gets) :], lives, [thread]) if write.channel in wanted)
        return found

    async def apply(self, change: Change, /) -> None:
        """In one transaction, or if it does not fit, in several; see `pieces`."""
        token = new_token()
        try:
            await self.wire.transact(Attempt(self._places, change, token).body)
        except TooLarge:
            try:
                await self._in_pieces(change, token)
            except Conflict as conflict:
                if change.parent or change.leans or change.revision is not None:
                    raise
                msg = f"thread {change.thread!r} was changed while much was being written to it; try again"
                raise StoreError(msg) from conflict

    async def drop(self, threads: Sequence[str], /) -> None:
        """Take the head of each, with which all of it is gone; then clear away what is left."""
        for thread in dict.fromkeys(threads):
            born = await self._bury(thread)
            if born:
                await self._clear(thread, born)
        await self._clear_forgotten()

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Heads, by name."""
        start = "" if after is None else thread_cluster(after) or thread_name(after)
        found: list[ThreadInfo] = []
        while len(found) < limit:
            page = await self._page("heads", None, (), start, limit + 1, lambda one: thread_cluster(head_of(one).thread))
            heads = sorted(map(head_of, page.documents))
            found += [
                ThreadInfo(head.thread, head.count, head.latest)
                for head in heads
                if head.count and (after is None or head.thread > after)
            ]
            if page.next is None:
                break
            start = page.next
        return found[:limit]

    # Reading.

    async def _format(self) -> int | None:
        (answer,) = await self.wire.read(self._places.get([self._places.home]))
        if not answer.documents:
            return None
        version: int = answer.documents[0].fields["format"].integer_value
        if version > FORMAT:
            msg = f"{self.wire.access}: storage format {version}, and this holdfast knows {FORMAT}: install a newer one"
            raise SchemaTooNew(msg)
        return version

    async def _rows(self, query: Query, start: str, time: Any, left: int | None) -> Page:
        """The next documents that may be rows in question."""
        fields = (*_HEADS, "labels") if query.heads else ()
        keys = _exact(query)
        if keys is not None:
            names = [self._places.row(key) for key in keys]
            answers = await self._read([self._places.get(some, fields) for some in _chunks(names, _PER_GET)])
            documents = [one for answer in answers for one in answer.documents if _is_wanted(one, query)]
            return Page(sorted(documents, key=lambda one: place(key_of(one))), None, answers[0].read_time)
        wanted, is_exact = _wanted(query)
        limit = None if left is None else left if is_exact else max(left, _PAGE)
        page = await self._page(
            "rows", wanted, fields, max(start, _start(query)), limit, lambda one: row_cluster(key_of(one)), time
        )
        documents = sorted(page.documents, key=lambda one: place(key_of(one)))
        is_past = query.id is not None and bool(documents) and key_of(documents[-1]).id < query.id
        return Page([one for one in documents if _is_wanted(one, query)], None if is_past else page.next, page.time)

    async def _page(
        self,
        kind: str,
        wanted: tuple[str, str | list[str]] | None,
        fields: Sequence[str],
        start: str,
        limit: int | None,
        cluster: Callable[[Any], str | None],
        time: Any = None,
    ) -> Page:
        """So many documents by name, or a few more: never a part of a cluster."""
        field, values = wanted or ("", "")
        each = [values] if isinstance(values, str) else _chunks(values, _PER_QUERY)
        documents: list[Any] = []
        while True:
            requests = [
                self._places.query(kind, (field, some) if field else None, fields, start=start, limit=limit)
                for some in each
            ]
            answers = await self._read(requests, time)
            time = answers[0].read_time if time is None else time
            found = sorted(_by_name(answers).items())[:limit]
            documents += [one for _, one in found]
            if limit is None or len(found) < limit:
                return Page(documents, None, time)
            start = found[-1][0].rpartition("/")[2] + "!"
            last = cluster(documents[-1])
            if last is None:
                return Page(documents, start, time)
            before = [one for one in documents if cluster(one) != last]
            if before:
                return Page(before, last, time)

    async def _read(self, requests: Sequence[Any], time: Any = None) -> list[Answer]:
        """All at once as of one time; if none is given, one of them alone is asked first, and tells it."""
        answers: list[Answer] = []
        if time is None:
            answers = await self.wire.read(requests[0])
            requests, time = requests[1:], answers[0].read_time
        for request in requests:
            request.read_time.CopyFrom(time)
        return answers + (await self.wire.read(*requests) if requests else [])

    async def _complete(
        self, found: Found, rows: Sequence[tuple[Row, str]], time: Any, lives: dict[str, Head], *, heads: bool
    ) -> int:
        """Add rows with all that they need, but none that is of another life than its thread; how many were added."""
        threads = sorted({row.key.thread for row, _ in rows})
        needs: Needs = {}
        writes: list[Any] = []
        if not heads:
            needs = self._needs([(row.key.thread, log, seq) for row, _ in rows for log, seq in row.logs().items()])
            writes = self._writes_of([row.key for row, _ in rows])
        gets = self._gets([*map(self._places.head, threads), *needs])
        answers = await self._read([*gets, *writes], time)
        by_name = _by_name(answers[: len(gets)])
        for thread in threads:
            if head := by_name.get(self._places.head(thread)):
                lives[thread] = head_of(head)
        kept = [row for row, born in rows if row.key.thread in lives and lives[row.key.thread].born == born]
        found.rows.extend(row._replace(body=b"") if heads else row for row in kept)
        found.revisions.update((row.key.thread, lives[row.key.thread].revision) for row in kept)
        known = {(segment.log, segment.seq) for segment in found.segments}
        found.segments.extend(one for one in _segments(by_name, needs, lives) if (one.log, one.seq) not in known)
        owned = {row.key for row in kept}
        found.writes.extend(write for write in _whole(answers[len(gets) :], lives, threads) if write.key in owned)
        return len(kept)

    def _needs(self, logs: Iterable[tuple[str, str, int]]) -> Needs:
        last: dict[tuple[str, str], int] = {}
        for thread, log, seq in logs:
            last[thread, log] = max(seq, last.get((thread, log), 0))
        return {
            self._places.segment(thread, log, seq): (thread, log, seq)
            for (thread, log), upto in last.items()
            for seq in range(upto + 1)
        }

    def _gets(self, names: Sequence[str]) -> list[Any]:
        return [self._places.get(some, _NEEDED) for some in _chunks(names, _PER_GET)]

    def _writes_of(self, keys: Iterable[Key]) -> list[Any]:
        owners = list(dict.fromkeys(digest(*key) for key in keys))
        return [self._places.query("writes", ("of", some)) for some in _chunks(owners, _PER_QUERY)]

    # Writing.

    async def _in_pieces(self, change: Change, token: bytes) -> None:
        """One after the other. One that takes things away is repeated until nothing of that is left."""
        more = 0
        for piece in pieces(change):
            while True:
                revision = None if piece.revision is None else piece.revision + more
                attempt = Attempt(self._places, piece._replace(revision=revision), token, may_be_partial=True)
                try:
                    await self.wire.transact(attempt.body)
                except TooLarge:
                    msg = f"a change to thread {change.thread!r} has a record that Firestore can't take in one commit"
                    raise StoreError(msg) from None
                if not attempt.is_partial:
                    break
                more += 1

    async def _bury(self, thread: str) -> str:
        """Take a thread's head, and note that the rest has to go; which life has ended."""
        name = self._places.head(thread)
        born = ""

        async def body(transaction: Transaction) -> Sequence[Any]:
            nonlocal born
            (answer,) = await transaction.ask(self._places.get([name]))
            if not answer.documents:
                return []
            head = head_of(answer.documents[0])
            if born and head.born != born:
                return []  # the last attempt did it, though nobody heard, and the thread was begun anew since
            born = head.born
            return [delete(answer.documents[0]), self._places.grave_write(thread, born)]

        await self.wire.transact(body)
        return born

    async def _clear(self, thread: str, born: str) -> None:
        """Delete what is left of a life that has ended; then its grave."""
        for kind in ("rows", "writes", "segments"):
            start: str | None = ""
            while start is not None:
                wanted = ("t", digest(thread))
                page = await self._page(kind, wanted, ("data.born",), start, _PAGE, lambda _: None)
                dead = [one for one in page.documents if born_of(one) == born]
                # A name may be another life's by now.
                if not dead or await self._make([delete(one, unchanged=True) for one in dead]):
                    start = page.next
        await self.wire.make([PbWrite(delete=self._places.path("graves", born))])

    async def _clear_forgotten(self) -> None:
        """Finish what others began and were kept from, one of them at a time."""
        (answer,) = await self.wire.read(self._places.query("graves", limit=1))
        for one in answer.documents:
            await self._clear(data_of(one)["thread"].string_value, one.name.rpartition("/")[2])

    async def _make(self, writes: Sequence[Any]) -> bool:
        """Make conditional writes; whether all conditions held."""
        try:
            await self.wire.make(writes)
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.RpcError) and code_of(cause) in _CONDITIONS:
                return False
            raise
        return True


_CONDITIONS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS)


def _exact(query: Query) -> Sequence[Key] | None:
    """The keys of all rows that can be meant, if they are known."""
    if query.keys:
        return list(dict.fromkeys(query.keys))
    if query.thread is not None and query.ns is not None and query.id is not None:
        return [Key(query.thread, query.ns, query.id)]
    return None


def _wanted(query: Query) -> tuple[tuple[str, str | list[str]] | None, bool]:
    """What Firestore is asked for, and whether that is all that is wanted, but for where it begins.

    It can't search by two fields and keep an order without an index made for that. So of one thread all rows are read,
    and of several sets of labels one is searched for.
    """
    if query.thread is not None and query.ns is not None:
        return ("n", digest(query.thread, query.ns)), not query.where
    if query.thread is not None:
        return ("t", digest(query.thread)), not query.where and query.id is None
    if query.where:
        return ("labels", label_texts(sorted(min(query.where, key=len)))), len(query.where) == 1 and query.ns is None
    return None, query.ns is None and query.id is None


def _start(query: Query) -> str:
    """The first name that can be meant."""
    starts = [""]
    if query.after is not None:
        starts.append(row_cluster(query.after) or row_name(query.after) + "!")
    if query.before is not None:
        starts.append(first_below(query.before))
    starts += (first_of(id_) for id_ in (query.upto, query.id) if id_ is not None)
    return max(starts)


def _is_wanted(one: Any, query: Query) -> bool:
    labels = labels_of(one) if query.where else set()
    if not all(labels.intersection(label_texts(some)) for some in query.where):
        return False
    return matches(Row(key_of(one), None, {}, b""), query._replace(where=()))


def _segments(by_name: Mapping[str, Any], needs: Needs, lives: Mapping[str, Head]) -> Iterable[Segment]:
    for name, (thread, log, seq) in needs.items():
        one = by_name.get(name)
        if one is not None and thread in lives and born_of(one) == lives[thread].born:
            yield Segment(log, seq, data_of(one)["data"].bytes_value)


def _whole(answers: Iterable[Answer], lives: Mapping[str, Head], threads: Iterable[str]) -> list[Write]:
    """Writes of threads that live, without parts that another attempt than that of part 0 left behind."""
    by_digest = {digest(thread): thread for thread in threads if thread in lives}
    stored: dict[str, list[tuple[str, Write]]] = defaultdict(list)
    tokens: dict[str, str] = {}
    for answer in answers:
        for one in answer.documents:
            thread = by_digest.get(one.fields["t"].string_value)
            if thread is None or born_of(one) != lives[thread].born:
                continue
            name = one.name.rpartition("/")[2].partition(".")[0]
            write = write_from(thread, one)
            stored[name].append((token_of(one), write))
            if not write.part:
                tokens[name] = token_of(one)
    return [write for name, parts in stored.items() for token, write in parts if token == tokens.get(name)]


def _by_name(answers: Iterable[Answer]) -> dict[str, Any]:
    return {one.name: one for answer in answers for one in answer.documents}


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
