"""Where a value belongs: what migrations are told, and what encryption binds a value to."""

from typing import Any, NamedTuple, Protocol, runtime_checkable


class CheckpointContext(NamedTuple):
    """Where a value is stored.

    What isn't known is None: a value of another saver's, or one that was serialized by hand, has no
    thread. `bound` names the very record that holds the value, and encryption ties the value to it.
    """

    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str | None = None
    channel: str | None = None
    graph: str | None = None
    bound: tuple[Any, ...] = ()

    def __str__(self) -> str:
        parts = [f"channel {self.channel!r}"] if self.channel is not None else []
        parts += [f"checkpoint {self.checkpoint_id!r}"] if self.checkpoint_id is not None else []
        parts += [f"thread {self.thread_id!r}"] if self.thread_id is not None else []
        parts += [f"namespace {self.checkpoint_ns!r}"] if self.checkpoint_ns else []
        parts += [f"graph {self.graph!r}"] if self.graph else []
        return ", ".join(parts)


NOWHERE = CheckpointContext()


@runtime_checkable
class ContextSerializer(Protocol):
    """A serializer that wants to know where each value belongs."""

    def dumps_in(self, context: CheckpointContext, value: Any, /) -> tuple[str, bytes]:
        """Serialize a value for its place."""
        ...

    def loads_in(self, context: CheckpointContext, data: tuple[str, bytes], /) -> Any:
        """Read a value back from its place."""
        ...
