"""What others do while a checkpoint is being stored or pruned, made to happen at the worst moment."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

import holdfast
from holdfast.engine import retention
from holdfast.engine.engine import Engine
from holdfast.run import run

LONG = "x" * 2000
URLS = ["memory://", "sqlite:///:memory:"]


class Meddling(JsonPlusSerializer):
    """A serializer while which somebody changes the value: as a node does that runs beside a put."""

    meddle: Callable[[], None] = staticmethod(lambda: None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        done = super().dumps_typed(obj)
        meddle, self.meddle = self.meddle, lambda: None
        meddle()
        return done


def put(saver: holdfast.Saver, config: RunnableConfig, **values: Any) -> RunnableConfig:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {name: value for name, value in values.items() if value is not None}
    checkpoint["channel_versions"] = dict.fromkeys(values, 1)
    return saver.put(config, checkpoint, {}, {})


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "value", [[{"text": "x" * 2000}], {"a": {"text": "x" * 2000}}, {1: {"text": "x" * 2000}, "": 1}]
)
def test_a_change_during_a_put_is_stored_by_the_next(url: str, value: Any) -> None:
    """Whatever a put misses because it comes too late, the one after it does not."""
    serde = Meddling()
    with holdfast.Saver(url, serde=serde) as saver:
        config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        inner = next(iter(value.values())) if isinstance(value, dict) else value[0]
        for text in ("one", "two", "three"):
            serde.meddle = lambda text=text: inner.update(text=text * 500)  # type: ignore[misc]
            config = put(saver, config, value=value)
            config = put(saver, config, value=value)
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"]["value"] == value


@pytest.mark.parametrize("url", URLS)
def test_a_write_that_comes_while_its_checkpoint_is_pruned(url: str) -> None:
    """It was acknowledged, so the survivor's delta channel has it."""
    with holdfast.Saver(url) as saver:
        config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        first = put(saver, config, d=_DeltaSnapshot([0]))
        last = put(saver, first, d=None)
        backend = saver._store.blocking

        class Interrupted:
            def __getattr__(self, name: str) -> Any:
                return getattr(backend, name)

            async def apply(self, change: Any) -> None:
                if change.drop_rows and not late:
                    late.append("task")
                    saver.put_writes(first, [("d", ["late"])], "task")
                await backend.apply(change)

        late: list[str] = []
        engine = Engine(Interrupted(), saver.serde, saver._known)
        run(retention.prune(engine, ["t"], "keep_latest"))
        assert [found.config for found in saver.list(config)] == [last]
        history = saver.get_delta_channel_history(config=last, channels=["d"])["d"]
        assert history == {"seed": _DeltaSnapshot([0]), "writes": [("task", "d", ["late"])]}
        assert late
