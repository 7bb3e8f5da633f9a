"""holdfast keeps the state of LangGraph agents: one API, any store, history that costs what changed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.saver import Saver

    __version__: str

__all__ = ["Saver", "__version__", "errors"]


def __getattr__(name: str) -> Any:
    # LangGraph and the packages' metadata take a while to load; `import holdfast` does not wait for them.
    if name == "Saver":
        return import_module("holdfast.saver").Saver
    if name == "__version__":
        return import_module("importlib.metadata").version("holdfast")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
