"""A checkpoint on its way to the store: what is looked at, and what it needs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Saver
from holdfast.backends.memory import MemoryBackend
from holdfast.engine import draft as draft_module
from holdfast.engine.digest import digest
from holdfast.engine.records import Change
from holdfast.testing.half import checkpoint_of, config_of, name

TEXT = "as it was " * 1_000


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Values that were digested to tell whether they changed."""
    found: list[Any] = []

    def noted(value: Any) -> Any:
        found.append(value)
        return digest(value)

    monkeypatch.setattr(draft_module, "digest", noted)
    return found


def put(saver: Saver, number: int, **values: Any) -> None:
    saver.put(config_of("t", name(number - 1) if number else None), checkpoint_of(name(number), values), {}, {})


@pytest.mark.parametrize("text", [TEXT, TEXT.encode()])
def test_a_text_that_is_handed_on_is_not_looked_at(text: Any, looked_at: list[Any]) -> None:
    """Nobody can change it, so the same one is the same; an equal one is looked at once, and then known too."""
    with Saver("memory://") as saver:
        for number in range(3):
            put(saver, number, text=text)
        assert looked_at == []
        equal = text[:1] + text[1:]
        for number in range(3, 6):
            put(saver, number, text=equal)
        assert looked_at == [equal]
        assert [found.checkpoint["channel_values"] for found in saver.list(config_of("t"))] == [{"text": text}] * 6


def test_a_text_that_was_read_is_known(looked_at: list[Any]) -> None:
    """As in a process that goes on with a thread: what it was given is what it hands on."""
    with Saver("memory://") as saver:
        put(saver, 0, text=TEXT)
        other = saver.with_allowlist([("nowhere", "Nothing")])  # with another serializer, which remembers nothing
        found = other.get_tuple(config_of("t"))
        assert found is not None
        read = found.checkpoint["channel_values"]["text"]
        assert read is not TEXT
        other.put(found.config, checkpoint_of(name(1), {"text": read}), {}, {})
        assert looked_at == []


def test_what_was_only_trusted_is_no_proof() -> None:
    """Another text that LangGraph does not report is missed, as it was asked for; when it is reported, it is stored."""
    other = TEXT + "other"
    with Saver("memory://", trust_versions=True) as saver:
        for number, (text, version) in enumerate([(TEXT, 1), (other, 1), (other, 2)]):
            checkpoint = checkpoint_of(name(number), {"text": text})
            checkpoint["channel_versions"] = {"text": version}
            new: Any = {"text": version} if number != 1 else {}
            saver.put(config_of("t", name(number - 1) if number else None), checkpoint, {}, new)
        found = saver.get_tuple(config_of("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"text": other}


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.one_of(
                st.integers(0, 2).map(lambda n: TEXT + str(n)),
                st.integers(1, 4).map(lambda n: [TEXT] * n),
                st.integers(1, 4).map(lambda n: {str(k): TEXT for k in range(n)}),
                st.just("short"),
            ),
        ),
        max_size=8,
    )
)
def test_a_draft_knows_the_logs_that_its_row_names(steps: list[dict[str, Any]]) -> None:
    """What is remembered of the last row is what the next one is checked against."""
    made: list[Change] = []

    class Noting(MemoryBackend):
        async def apply(self, change: Change, /) -> None:
            made.append(change)
            await super().apply(change)

    with Saver("memory://") as saver:
        backend: Any = saver._store.blocking
        backend.__class__ = Noting
        for number, values in enumerate(steps):
            put(saver, number, **values)
            assert saver._known.place(saver.serde, "t", "").last == (name(number), made[-1].rows[0].logs())
