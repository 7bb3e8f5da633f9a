"""LangChain's and LangGraph's own classes, by stable names that don't depend on where they live today."""

import sys
from contextlib import suppress
from functools import cache
from importlib import import_module

from holdfast.serde.plans import Plan, SlotsPlan, plan_for

_MESSAGES = {
    "base": ("BaseMessage", "BaseMessageChunk"),
    "human": ("HumanMessage", "HumanMessageChunk"),
    "ai": ("AIMessage", "AIMessageChunk"),
    "system": ("SystemMessage", "SystemMessageChunk"),
    "chat": ("ChatMessage", "ChatMessageChunk"),
    "tool": ("ToolMessage", "ToolMessageChunk"),
    "function": ("FunctionMessage", "FunctionMessageChunk"),
    "modifier": ("RemoveMessage",),
}
_TYPES = ("Send", "TimeoutPolicy", "Interrupt", "Command", "StateSnapshot", "PregelTask", "Overwrite", "RetryPolicy")
_STORE = ("Item", "SearchItem", "GetOp")

PLACES: dict[str, tuple[str, str]] = {
    **{
        f"langchain.{name}": (f"langchain_core.messages.{module}", name)
        for module, names in _MESSAGES.items()
        for name in names
    },
    "langchain.Document": ("langchain_core.documents.base", "Document"),
    **{f"langgraph.{name}": ("langgraph.types", name) for name in _TYPES},
    **{f"langgraph.{name}": ("langgraph.store.base", name) for name in _STORE},
    "langgraph.DeltaSnapshot": ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"),
}
NAMES = {place: name for name, place in PLACES.items()}
_BY_PLACE = {f"{module}:{name}": stable for (module, name), stable in NAMES.items()}
_SLOTTED = {"langgraph.Send", "langgraph.Item", "langgraph.SearchItem"}


def name_of(cls: type) -> str | None:
    """The stable name of a class of theirs."""
    return NAMES.get((cls.__module__, cls.__qualname__))


@cache
def load() -> None:
    """Import their modules, once, by this package's own list, so that reading never has to."""
    for module in dict.fromkeys(module for module, _ in PLACES.values()):
        with suppress(ImportError):  # langgraph itself need not be installed
            import_module(module)


def find(name: str) -> type | None:
    """The class of theirs that has a name, or was stored by its place."""
    place = PLACES.get(_BY_PLACE.get(name, name))
    if place is None:
        return None
    module, cls = place
    found: type | None = getattr(sys.modules.get(module), cls, None)
    return found


def plan_of(cls: type) -> Plan | None:
    """The plan of a class, theirs or any other."""
    return plan_for(cls) if name_of(cls) is None else _own_plan(cls)


@cache  # theirs don't change, and every graph that is compiled has a serializer of its own
def _own_plan(cls: type) -> Plan | None:
    return SlotsPlan(cls) if name_of(cls) in _SLOTTED else plan_for(cls)
