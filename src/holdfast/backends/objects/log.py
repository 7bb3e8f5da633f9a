"""A thread as a log of commits, each made by creating an object that nobody else can create.

A change is one object, `c<n+1>`, created by a writer that has read all up to `c<n>`: creating it is the compare and the
swap at once. Every so often commits are folded into a page, the head is swapped for one that says so, and then the
commits are taken away. Whoever creates a commit looks at the head afterwards: if it still is the head of the same
incarnation, and says that fewer commits were folded than the new one's number, then no commit from there on was ever
taken away, so this number was never used before, and what it was based on is all there is. Deleting a thread is
deleting its head. No clock, no lock and no lease is in any of this.
"""

from collections.abc import Sequence
from contextlib import suppress

from holdfast.backends.objects.changes import Draft
from holdfast.backends.objects.folding import fold, worth_folding
from holdfast.backends.objects.frames import PREFIX, Head, Index, framed, pack_index, unpack_index
from holdfast.backends.objects.names import HEAD, commit_name, commits_of
from holdfast.backends.objects.reading import Moved, open_commit, open_page, read_head
from holdfast.backends.objects.state import State
from holdfast.backends.objects.wires import Objects, Seen, Slot, Tag
from holdfast.engine.records import Change
from holdfast.engine.unique import unique
from holdfast.errors import Conflict, StoreError, Unreadable

_ATTEMPTS = 100
_EMBEDDED = 1 << 16
"""A thread whose first change is no longer than this begins as one object instead of two."""


class Log:
    """The log of one thread."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder
        self._head = f"{folder}/{HEAD}"

    async def current(self, slot: Slot) -> State | None:
        """The thread as it is now; None if there is none."""
        for _ in range(_ATTEMPTS):
            before, slot.state = slot.state, None
            with suppress(Moved):
                slot.state = await (self._refreshed(before) if before else self._loaded())
                return slot.state
        raise self._restless()

    async def apply(self, thread: str, slot: Slot, change: Change) -> None:
        """Make a change.

        What is remembered of the thread may be old: nobody is refused, or told that all is there already, without a
        look at what there is now.
        """
        looks = slot.state is None
        for _ in range(_ATTEMPTS):
            state = await self.current(slot) if looks else slot.state
            try:
                draft = Draft(change, state)
            except Conflict:
                if looks:
                    raise
                looks = True
                continue
            if state is None and not change.creates():
                return
            if state is None:
                done = await self._begin(thread, slot, draft)
            elif draft.is_needed():
                done = await self._commit(slot, state, draft)
            else:
                done = looks
            if done:
                await self._tidy(slot)
                return
            looks = True
        raise self._restless()

    async def drop(self, slot: Slot) -> None:
        """Delete the thread. What was under way on it finds no head, or another one."""
        slot.state = None
        seen = [each.name for each in await self._objects.look(self._folder, "")]
        if HEAD in seen:
            await self._objects.delete(self._folder, [HEAD])
        if others := [name for name in seen if name != HEAD]:
            # All of them belonged to the head that is gone, or to an older one: an incarnation begins with its head.
            await self._objects.delete(self._folder, others)

    async def _begin(self, thread: str, slot: Slot, draft: Draft) -> bool:
        """Begin the thread, with this change if it is short; whether the change was made."""
        index, chunks = draft.index, draft.payload.chunks
        packed = pack_index(index)
        is_short = len(packed) + draft.payload.size <= _EMBEDDED
        if not is_short:
            packed, chunks = pack_index(Index(unique(64), index.revision)), []
        head = Head(thread, f"{unique(64):016x}", 0, (), (), packed, unique(64))
        data = framed(head.pack(), chunks)
        tag = await self._objects.create(self._head, data)
        if tag is None:
            found = await read_head(self._objects, self._folder)
            if found is None or found[0].incarnation != head.incarnation:
                return False
            slot.state = None
            return is_short  # the reply was lost, and somebody may have gone on from it since
        slot.state = self._first_state(head, tag, b"".join(chunks))
        return is_short or await self._commit(slot, slot.state, draft)

    async def _commit(self, slot: Slot, state: State, draft: Draft) -> bool:
        """Create the next commit; whether that was made, and counts."""
        packed = pack_index(draft.index)
        number = state.last + 1
        name = commit_name(state.head.incarnation, number)
        data = framed(packed, draft.payload.chunks)
        slot.state = None  # whatever stops us halfway, what happened is not known then
        made = await self._objects.create(f"{self._folder}/{name}", data) is not None
        if not made and not await self._is_ours(name, draft.index.token):
            slot.state = state
            return False
        if await self._objects.tag(self._head) == state.tag:
            where = self._objects.where(name)
            state.commit(unpack_index(packed, name, where), name, PREFIX + len(packed))
            slot.state = state
            return True
        found = await read_head(self._objects, self._folder)
        if found and found[0].incarnation == state.head.incarnation:
            head = found[0]
            if head.folded < number or head.token_of(number) == draft.index.token:
                return True
        if made:
            with suppress(StoreError):  # nobody will ever look at it
                await self._objects.delete(self._folder, [name])
        return False

    async def _is_ours(self, name: str, token: int) -> bool:
        """Whether a commit that is there already is the one that we made: its reply may have been lost."""
        try:
            return (await open_commit(self._objects, self._folder, name)).says.token == token
        except Moved:
            return True  # it is folded, or the thread is gone: the head will tell whose it was

    async def _tidy(self, slot: Slot) -> None:
        """Fold, if it is time to. What was to be stored is stored: no failure of this is the caller's."""
        if slot.state is not None and worth_folding(slot.state):
            state, slot.state = slot.state, None
            with suppress(StoreError, Unreadable, Moved):
                slot.state = await fold(self._objects, self._folder, state)

    async def _refreshed(self, state: State) -> State | None:
        """The same state with the commits since; raises `Moved` if that can't be had."""
        seen = await self._objects.look(self._folder, commit_name(state.head.incarnation, state.last))
        if not await self._is_head_still(state.tag, seen):
            raise Moved(HEAD)
        await self._follow(state, [each.name for each in seen])
        return state

    async def _loaded(self) -> State | None:
        """The state as all objects of the thread make it; raises `Moved` if they change meanwhile."""
        found = await read_head(self._objects, self._folder)
        if found is None:
            return None
        head, tag, first = found
        seen = await self._objects.look(self._folder, commits_of(head.incarnation))
        if not await self._is_head_still(tag, seen):
            raise Moved(HEAD)
        state = self._first_state(head, tag, first)
        pages = await self._objects.each(lambda page: open_page(self._objects, self._folder, page), head.pages)
        for page, (name, index, start) in zip(head.pages, pages, strict=True):
            state.fold(index, name)
            state.starts[name], state.sizes[name] = start, page.size - start
        await self._follow(state, [each.name for each in seen])
        return state

    async def _is_head_still(self, tag: Tag, seen: Sequence[Seen]) -> bool:
        """Whether the head was this one when all else had been looked at; lists may spell versions differently."""
        return any(each == (HEAD, tag) for each in seen) or await self._objects.tag(self._head) == tag

    def _first_state(self, head: Head, tag: Tag, first: bytes) -> State:
        state = State(head, tag, last=head.folded, first=first)
        state.tokens = {head.folded - len(head.tokens) + 1 + n: token for n, token in enumerate(head.tokens)}
        if head.first:
            state.fold(unpack_index(head.first, HEAD, self._objects.where(self._head)), HEAD)
        return state

    async def _follow(self, state: State, names: list[str]) -> None:
        """Take in commits; others are noted as garbage: all that is not of this incarnation is of one that is gone."""
        commits = commits_of(state.head.incarnation)
        first = commit_name(state.head.incarnation, state.last + 1)
        new = [name for name in names if name.startswith(commits) and name >= first]
        state.garbage += [name for name in names if name != HEAD and name not in new]
        if new != [commit_name(state.head.incarnation, state.last + 1 + n) for n in range(len(new))]:
            raise Moved(new[0])
        for name, index, start in await self._objects.each(
            lambda name: open_commit(self._objects, self._folder, name), new
        ):
            state.commit(index, name, start)

    def _restless(self) -> StoreError:
        where = self._objects.where(self._folder)
        return StoreError(f"{where}: others changed this thread {_ATTEMPTS} times in a row; try again later")
