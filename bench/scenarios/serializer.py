"""The serializer alone, beside LangGraph's JsonPlusSerializer: messages to bytes and back."""

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from graphs import Talk
from holdfast.serde import CheckpointSerializer, Keys
from measure import Clock, Setting, interleave
from stores.sides import Side

_THEIRS, _OURS = Side("JsonPlusSerializer"), Side("holdfast", ours=True)
_TARGETS = {"dumps": 2.0, "loads": 2.5}
_FORMS: dict[str, Callable[[], CheckpointSerializer]] = {
    "": CheckpointSerializer,
    ", zstd": lambda: CheckpointSerializer(compress=True),
    ", AES": lambda: CheckpointSerializer(keys=Keys({"key": os.urandom(32)})),
    ", JSON": lambda: CheckpointSerializer(codec="json"),
}


def run(setting: Setting) -> None:
    for count in (40, 2000):
        _messages(setting, count)


def _messages(setting: Setting, count: int) -> None:
    talk = Talk(count)
    messages = [message for _ in range(count // 2) for message in (talk.human(), talk.ai())]
    repeats = max(1, setting.pick(4000, 1000) // count)
    for form, make in _FORMS.items():
        setting.say(f"{count} messages{form}")
        serializers: dict[Side, SerializerProtocol] = {_THEIRS: JsonPlusSerializer(), _OURS: make()}
        stored = {side: serializer.dumps_typed(messages) for side, serializer in serializers.items()}
        clock = Clock()

        def work(
            side: Side,
            _: int,
            serializers: dict[Side, SerializerProtocol] = serializers,
            stored: dict[Side, tuple[str, bytes]] = stored,
            clock: Clock = clock,
        ) -> None:
            clock.note("dumps", side, _time(lambda: serializers[side].dumps_typed(messages), repeats))
            clock.note("loads", side, _time(lambda: serializers[side].loads_typed(stored[side]), repeats))

        interleave((_THEIRS, _OURS), setting.pick(15, 7), work)
        for what, target in _TARGETS.items():
            named = f"{what}, {count} messages{form}"
            label = named if not form and count > 40 else ""
            setting.add(named, named, "ms", clock.median(what), target=None if form else target, chart=label)
        sizes = {side: len(data) / 1000 for side, (_, data) in stored.items()}
        setting.add(f"bytes, {count} messages{form}", f"bytes, {count} messages{form}", "KB", sizes)


def _time(call: Callable[[], Any], repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        call()
    return (perf_counter() - start) / repeats
