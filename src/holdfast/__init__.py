"""holdfast keeps the state of LangGraph agents and of long-running jobs, in any store, at the cost of what changed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.jobs import JobStore, job, worker
    from holdfast.saver import Saver

    __version__: str

__all__ = ["JobStore", "Saver", "__version__", "errors", "job", "worker"]


def __getattr__(name: str) -> Any:
    # LangGraph and the packages' metadata take a while to load; `import holdfast` does not wait for them.
    if name == "Saver":
        return import_module("holdfast.saver").Saver
    if name in ("JobStore", "job", "worker"):
        return getattr(import_module("holdfast.jobs"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("holdfast")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
