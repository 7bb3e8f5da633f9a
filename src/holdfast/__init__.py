"""holdfast keeps the state of LangGraph agents: one API, any store, history that costs what changed."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.saver import Saver

__all__ = ["Saver", "__version__", "errors"]
__version__ = version("holdfast")


def __getattr__(name: str) -> Any:
    # LangGraph takes a while to import; `import holdfast` alone does not wait for it.
    if name == "Saver":
        return import_module("holdfast.saver").Saver
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
