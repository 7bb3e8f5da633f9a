"""The backend: records in documents.

Reading takes two round trips. The first finds rows; the second reads, as of the same time, all that they need: the
heads of their threads, segments by name, and writes by the checkpoint that they belong to. Nothing is locked.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.backends.firestore.changes import Attempt, TooLarge, born_of, new_token, token_of
from holdfast.backends.firestore.documents import (
    Head,
    PbWrite,
    Places,
    data_of,
    head_of,
    key_of,
    row_from,
    write_from,
)
from holdfast.backends.firestore.graves import Undertaker
from holdfast.backends.firestore.names import digest, thread_cluster, thread_name
from holdfast.backends.firestore.pages import (
    PER_GET,
    PER_QUERY,
    Page,
    Reader,
    Selection,
    by_name,
    chunks,
    exact_keys,
    first_name,
    is_wanted,
    selection,
)
from holdfast.backends.firestore.pieces import pieces
from holdfast.backends.firestore.wires import Answer, Wire
from holdfast.backends.packing import place
from holdfast.engine.records import Change, Found, Key, Limits, Query, Row, Segment, ThreadInfo, Write
from holdfast.errors import Conflict, SchemaTooNew, StoreError

FORMAT = 1

_LIMITS = Limits(segments=128, batch=300, value=900_000, row=400_000, press=1 << 14)
_PAGE = 300
_HEADS = ("labels", *(f"data.{name}" for name in ("thread", "ns", "id", "parent", "refs", "settled", "meta", "born")))
_NEEDED = ("data.thread", "data.born", "data.revision", "data.data")

Needs = dict[str, tuple[str, str, int]]
"""Segments by their full names: thread, log, number."""


class FirestoreBackend:
    """One application's documents, over one wire."""

    limits = _LIMITS

    def __init__(self, wire: Wire, places: Places) -> None:
        self.wire = wire
        self._places = places
        self._reader = Reader(wire, places)

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
            where = self._places.home.partition("/documents/")[2]
            msg = f"{self.wire.access}: there is no store of holdfast's in {where}; is the URL right?"
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
            time, taken = page.time, page.documents[:left]
            if taken:
                rows = [(row_from(one), born_of(one)) for one in taken]
                kept = await self._complete(found, rows, time, lives, heads=query.heads)
                left = None if left is None else left - kept
            if len(taken) < len(page.documents):
                query, start = query._replace(after=key_of(taken[-1])), ""
            elif page.next is None:
                break
            else:
                start = page.next
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
        """The head with the first segments, then the rest and the writes as of the same time."""
        needs = self._needs([(thread, log, seq) for log, seq in logs.items()])
        gets = self._gets([self._places.head(thread), *needs])
        answers = await self._reader.read(
            [*gets, *self._writes_of([Key(thread, ns, id_) for id_ in ids] if channels else [])]
        )
        found_by_name = by_name(answers[: len(gets)])
        head = found_by_name.pop(self._places.head(thread), None)
        if head is None:
            return Found()
        lives = {thread: head_of(head)}
        found = Found(revisions={thread: lives[thread].revision})
        found.segments.extend(_segments(found_by_name, needs, lives))
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
        undertaker = Undertaker(self._reader)
        lives = {thread: await undertaker.bury(thread) for thread in dict.fromkeys(threads)}
        for thread, born in lives.items():
            if born:
                await undertaker.clear(thread, born)
        await undertaker.clear_forgotten()

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Heads, by name."""
        chosen = Selection("heads", cluster=lambda one: thread_cluster(head_of(one).thread))
        start = "" if after is None else thread_cluster(after) or thread_name(after) + "!"
        found: list[ThreadInfo] = []
        time = None
        while len(found) < limit:
            page = await self._reader.page(chosen, start=start, limit=limit - len(found), time=time)
            found += [
                ThreadInfo(head.thread, head.rows, head.latest)
                for head in sorted(map(head_of, page.documents))
                if head.rows and (after is None or head.thread > after)
            ]
            if page.next is None:
                break
            start, time = page.next, page.time
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
        fields = _HEADS if query.heads else ()
        keys = exact_keys(query)
        if keys is not None:
            names = [self._places.row(key) for key in keys]
            answers = await self._reader.read([self._places.get(some, fields) for some in chunks(names, PER_GET)])
            documents = [one for answer in answers for one in answer.documents if is_wanted(one, query)]
            return Page(sorted(documents, key=lambda one: place(key_of(one))), None, answers[0].read_time)
        chosen, is_all = selection(query, fields)
        limit = None if left is None else left if is_all else max(left, _PAGE)
        page = await self._reader.page(chosen, start=max(start, first_name(query)), limit=limit, time=time)
        documents = sorted(page.documents, key=lambda one: place(key_of(one)))
        is_past = query.id is not None and bool(documents) and key_of(documents[-1]).id < query.id
        return Page([one for one in documents if is_wanted(one, query)], None if is_past else page.next, page.time)

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
        answers = await self._reader.read([*gets, *writes], time)
        found_by_name = by_name(answers[: len(gets)])
        for thread in threads:
            if head := found_by_name.get(self._places.head(thread)):
                lives[thread] = head_of(head)
        kept = [row for row, born in rows if row.key.thread in lives and lives[row.key.thread].born == born]
        found.rows.extend(row._replace(body=b"") if heads else row for row in kept)
        found.revisions.update((row.key.thread, lives[row.key.thread].revision) for row in kept)
        known = {(segment.log, segment.seq) for segment in found.segments}
        found.segments.extend(one for one in _segments(found_by_name, needs, lives) if (one.log, one.seq) not in known)
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
        return [self._places.get(some, _NEEDED) for some in chunks(names, PER_GET)]

    def _writes_of(self, keys: Iterable[Key]) -> list[Any]:
        owners = list(dict.fromkeys(digest(*key) for key in keys))
        return [self._places.query("writes", ("of", some)) for some in chunks(owners, PER_QUERY)]

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


def _segments(found: Mapping[str, Any], needs: Needs, lives: Mapping[str, Head]) -> Iterable[Segment]:
    for name, (thread, log, seq) in needs.items():
        one = found.get(name)
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
