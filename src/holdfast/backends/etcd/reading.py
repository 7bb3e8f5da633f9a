"""Several reads as of one moment, and what they found."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.backends.etcd.keys import Keys, Span
from holdfast.backends.etcd.looks import Record
from holdfast.backends.etcd.operations import ranged
from holdfast.backends.etcd.stored import Elsewhere, find_data, unpack_row, unpack_task
from holdfast.backends.etcd.wires import Wire
from holdfast.engine.records import Key, Row, Segment, Write


class Reading:
    """Several reads of one moment."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys
        self._revision = 0
        self.revisions: dict[str, int] = {}
        self.segments: list[Segment] = []
        self.writes: list[Write] = []

    async def ask_all(self, questions: Sequence[Any], threads: Iterable[str] = ()) -> list[Any]:
        """Answers, and with them the revisions of threads."""
        new = [thread for thread in dict.fromkeys(threads) if thread not in self.revisions]
        records = [ranged(Span(self._keys.thread(thread))) for thread in new]
        answers, self._revision = await self._wire.read([*questions, *records], self._revision)
        for thread, answer in zip(new, answers[len(questions) :], strict=True):
            if answer.kvs:
                self.revisions[thread] = Record.of(answer.kvs[0]).revision
        return answers[: len(questions)]

    async def ask(self, question: Any, threads: Iterable[str] = ()) -> Any:
        """One answer."""
        return (await self.ask_all([question], threads))[0]

    async def rows(self, keys: Iterable[Key]) -> list[Row]:
        """Those of some rows that are there."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return []
        questions = [ranged(Span(self._keys.of(key.thread).row(key.ns, key.id))) for key in wanted]
        answers = await self.ask_all(questions, [key.thread for key in wanted])
        return [unpack_row(key, found.kvs[0].value)[0] for key, found in zip(wanted, answers, strict=True) if found.kvs]

    async def more(
        self, threads: Iterable[str], logs: Mapping[tuple[str, str], int], writes: Sequence[tuple[str, str, str, str]]
    ) -> None:
        """Read logs up to a number, and the writes between two checkpoints of a namespace, those included."""
        of = self._keys.of
        questions = [ranged(of(thread).log(log, 0, seq)) for (thread, log), seq in logs.items()]
        questions += [ranged(of(thread).writes_on(ns, newest, oldest)) for thread, ns, newest, oldest in writes]
        answers = await self.ask_all(questions, threads)
        segments = [
            (of(thread), pair)
            for (thread, _), found in zip(logs, answers[: len(logs)], strict=True)
            for pair in found.kvs
        ]
        tasks = [
            (of(thread), pair)
            for (thread, *_), found in zip(writes, answers[len(logs) :], strict=True)
            for pair in found.kvs
        ]
        data = await self._data([*segments, *tasks])
        for (keys, pair), value in zip(segments, data, strict=False):
            self.segments.append(Segment(*keys.read_segment(pair.key), value))
        for (keys, pair), value in zip(tasks, data[len(segments) :], strict=True):
            for parts in unpack_task(*keys.read_task(pair.key), value).values():
                self.writes += parts

    async def _data(self, pairs: Sequence[tuple[Any, Any]]) -> list[bytes]:
        """The data of keys, wherever it is."""
        data = [find_data(pair.value) for _, pair in pairs]
        away = [
            (number, keys.parts_of(*found))
            for number, ((keys, _), found) in enumerate(zip(pairs, data, strict=True))
            if isinstance(found, Elsewhere)
        ]
        if away:
            parts = await self.ask_all([ranged(span) for _, span in away])
            for (number, _), found in zip(away, parts, strict=True):
                data[number] = b"".join(pair.value for pair in found.kvs)
        return [each for each in data if isinstance(each, bytes)]
