"""Any serializer will do: what it makes of a value is what is stored."""

import json
import logging
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import Unreadable
from holdfast.saver import Saver
from holdfast.testing.half import LONG, Half, Suite, config_of, name
from holdfast.testing.retention import grow

_KEY = b"a key of sixteen"


class Minimal:
    """The least that is a serializer: two methods, JSON, and a count of what it was asked."""

    def __init__(self) -> None:
        self.dumped = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Anything that JSON knows."""
        self.dumped += 1
        return "minimal", json.dumps(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Only what it wrote itself."""
        assert data[0] == "minimal"
        return json.loads(data[1])


class Untyped:
    """An old serializer, of the kind that LangGraph wraps by itself."""

    def dumps(self, obj: Any) -> bytes:
        """Anything that JSON knows."""
        return json.dumps(obj).encode()

    def loads(self, data: bytes) -> Any:
        """The same back."""
        return json.loads(data)


class SerializerRules(Suite):
    """Other serializers than LangGraph's own, and those that change while a saver lives."""

    async def exercise(self, half: Half, thread: str = "t") -> None:
        """A little of everything."""
        states = await grow(half, thread, 5)
        assert [await half.values(thread, name(n)) for n in range(5)] == states
        assert (await half.found(thread)).metadata == {"run_id": "r4", "step": 4}
        assert len(await half.list(config_of(thread), filter={"run_id": "r3"})) == 1
        await half.save(thread, name(9), parent=name(4), empty=["l"])
        history = await half.history(config_of(thread, name(9)), ["l"])
        assert history == {"l": {"seed": states[4]["l"], "writes": [("task4", "l", 4)]}}
        await half.copy_thread(thread, f"{thread} copy")
        await half.delete_for_runs(["r2"])
        await half.prune([f"{thread} copy"])
        assert await half.history(config_of(f"{thread} copy"), ["l"]) == history
        assert await half.values(thread, name(4)) == states[4]

    async def test_encrypted(self, half: Half) -> None:
        """Everything works, and equal values cost nothing although their bytes differ each time."""
        half.saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=_KEY)
        await self.exercise(half)

    async def test_encrypted_needs_the_key(self, half: Half, twin: Half) -> None:
        """With another key nothing is read, and the error says what could not be."""
        half.saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=_KEY)
        twin.saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=_KEY[::-1])
        await half.save("t", name(1), {"l": [LONG]})
        with pytest.raises(Unreadable, match=name(1)):
            await twin.values("t")

    async def test_a_minimal_one(self, half: Half) -> None:
        """Two methods are all that is asked of a serializer."""
        half.saver.serde = Minimal()
        await self.exercise(half)
        assert half.saver.serde.dumped

    async def test_an_untyped_one(self, half: Half) -> None:
        """LangGraph wraps old ones when they are handed in; they work then."""
        other = half.another(serde=Untyped())
        await self.exercise(other)

    async def test_one_that_comes_later(self, half: Half) -> None:
        """From then on it is used, and what the first one wrote needs the first one."""
        half.saver.serde = first = JsonPlusSerializer()
        states = await grow(half, "t", 3)
        half.saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=_KEY)
        more = await grow(half, "t", 2, start=3)
        # This one reads what was not encrypted, too.
        assert [await half.values("t", name(n)) for n in range(5)] == states + more
        half.saver.serde = first
        assert [await half.values("t", name(n)) for n in range(3)] == states
        with pytest.raises(Unreadable):
            await half.values("t", name(4))

    async def test_with_allowlist(self, half: Half) -> None:
        """LangGraph makes clones of a saver when it compiles a graph; they are one store."""
        half.saver.serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        made = half.saver.with_allowlist([("holdfast.testing.lists", "Note")])
        assert isinstance(made, Saver)
        assert made is not half.saver
        clone = half.with_saver(made)
        states = await grow(half, "t", 3)
        states += await grow(clone, "t", 3, start=3)
        states += await grow(half, "t", 2, start=6)
        for saver in (half, clone):
            assert [await saver.values("t", name(n)) for n in range(8)] == states
        await clone.delete_thread("t")
        assert await half.list() == []

    async def test_encrypted_with_allowlist(self, half: Half) -> None:
        """The clone of an encrypting saver encrypts with the same key."""
        half.saver.serde = EncryptedSerializer.from_pycryptodome_aes(
            JsonPlusSerializer(allowed_msgpack_modules=None), key=_KEY
        )
        made = half.saver.with_allowlist([("holdfast.testing.lists", "Note")])
        assert isinstance(made, Saver)
        await half.with_saver(made).save("t", name(1), {"l": [HumanMessage(LONG, id="1")]})
        assert (await half.values("t"))["l"][0].content == LONG

    async def test_one_that_fails(self, half: Half, caplog: pytest.LogCaptureFixture) -> None:
        """A put whose value can't be serialized stores nothing, and the next one is as if it had not been."""
        caplog.set_level(logging.ERROR)
        states = await grow(half, "t", 2)
        with pytest.raises(TypeError):
            await half.save("t", name(2), {"l": [*states[1]["l"], object()]}, parent=name(1))
        assert await half.ids() == [name(1), name(0)]
        states += await grow(half, "t", 2, start=2)
        assert [await half.values("t", name(n)) for n in range(4)] == states
