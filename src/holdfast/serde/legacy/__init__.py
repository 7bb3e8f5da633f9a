"""Reading what LangGraph's JsonPlusSerializer wrote: its msgpack, and the JSON of its older versions.

That serializer stores an instance as the module and the name of a callable, with arguments. Here a stored
name never leads to an import or a call: it is looked up in a table of Python's own plain types, and anything
else becomes a `Typed` under the name `module:Name`. So reading needs none of the classes that were stored,
and bytes that an attacker wrote give data or an error.
"""

import json
from collections.abc import Callable
from typing import Any

import ormsgpack
from xxhash import xxh3_128_hexdigest

from holdfast.errors import Unreadable
from holdfast.serde.depth import Depth
from holdfast.serde.legacy.plain import MALFORMED, PLAIN, array
from holdfast.serde.tree import Typed

__all__ = ["read"]


def read(tag: str, data: bytes) -> Any:
    """The tree of a value that JsonPlusSerializer stored under one of its type tags.

    Data that it can't have written ends in `Unreadable`.
    """
    reader = _READERS.get(tag)
    if reader is None:
        msg = _REFUSED.get(tag) or f"nothing here reads data with the type tag {tag!r}"
        raise Unreadable(msg)
    try:
        return reader(bytes(data))
    except MALFORMED as error:
        msg = f"data with the type tag {tag!r} is malformed: {error}"
        raise Unreadable(msg) from error


def _read_null(data: bytes) -> None:
    if data:
        msg = "data with the type tag 'null' isn't empty"
        raise Unreadable(msg)


_REFUSED = {
    "pickle": (
        "the value was pickled (JsonPlusSerializer with pickle_fallback=True), and a pickle can run any code when it "
        "is read: read it with that serializer once, if you trust the store, and store it anew"
    )
}


# --- instances, in either form


def _instance(module: Any, name: Any, args: Any, kwargs: Any, method: str = "") -> Any:
    """What was stored as a callable's name and its arguments."""
    if type(args) is not list or type(kwargs) is not dict:
        msg = f"the arguments of a stored {module}.{name} are of the wrong type"
        raise Unreadable(msg)
    build = PLAIN.get((_text(module), _text(name), method))
    if build:
        try:
            return build(*args, **kwargs)
        except MALFORMED as error:
            msg = f"a stored {module}.{name} can't be built: {error}"
            raise Unreadable(msg) from error
    if args and kwargs:
        msg = f"a stored {module}.{name} has both positional and named arguments"
        raise Unreadable(msg)
    if args and name == "Send" and module in _OF_LANGGRAPH:
        return _typed(module, name, dict(zip(("node", "arg", "timeout"), args, strict=False)))
    if args:
        kwargs = {"value": args[0]} if len(args) == 1 else {"args": args}
    return _typed(module, name, {**kwargs, "method": method} if method else kwargs)


def _model(module: Any, name: Any, data: Any) -> Typed:
    """A Pydantic model; one whose root isn't a mapping of names was stored as that root."""
    is_fields = type(data) is dict and all(type(key) is str for key in data)
    return _typed(module, name, data if is_fields else {"root": data})


def _typed(module: Any, name: Any, data: Any) -> Typed:
    if type(data) is not dict or not all(type(key) is str for key in data):
        msg = f"the fields of a stored {module}.{name} have no names"
        raise Unreadable(msg)
    if ":" in _text(module):
        msg = f"{module!r} is no module"
        raise Unreadable(msg)
    if module in _OF_LANGGRAPH and name in ("Interrupt", "Send"):
        module = "langgraph.types"
        if name == "Interrupt" and "id" not in data:
            data = _interrupt(data)
    return Typed(f"{module}:{_text(name)}", data)


_OF_LANGGRAPH = ("langgraph.types", "langgraph.constants")
"""Where LangGraph has kept `Send` and `Interrupt`."""


def _interrupt(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of an interrupt, from those before LangGraph 0.6: its id is made of its namespace."""
    namespace = data.get("ns") or []
    if type(namespace) is not list or not all(type(part) is str for part in namespace):
        msg = "the namespace of a stored Interrupt is no list of text"
        raise Unreadable(msg)
    id = xxh3_128_hexdigest("|".join(namespace).encode()) if namespace else "placeholder-id"
    return {"value": data.get("value"), "id": id}


def _text(name: Any) -> str:
    if type(name) is not str or not name:
        msg = f"a stored instance has {name!r} for a module or a name"
        raise Unreadable(msg)
    return name


# --- msgpack


def _read_msgpack(data: bytes) -> Any:
    unpacker = _Unpacker(len(data))
    try:
        return unpacker.unpack(data)
    except MALFORMED:
        if unpacker.error is not None:
            raise unpacker.error from None
        raise


class _Unpacker:
    """Unpacks one value; the values in extension types are pieces of their own within it.

    `error` is what went wrong first inside a piece: ormsgpack reports that there was an error, but drops it.
    """

    def __init__(self, size: int) -> None:
        self.error: BaseException | None = None
        self._depth = Depth(size)

    def unpack(self, data: bytes) -> Any:
        """Unpack a piece, which must be one value and nothing else."""
        levels = self._depth.down(data)
        try:
            # ormsgpack ignores what follows a value, and would read JSON text as the number 123.
            pair = ormsgpack.unpackb(_PAIR + data + _END, ext_hook=self._extension, option=ormsgpack.OPT_NON_STR_KEYS)
        finally:
            self._depth.up(levels)
        if type(pair[1]) is bytes and pair[1] == _END[2:]:
            return pair[0]
        msg = "more data follows the value"
        raise Unreadable(msg)

    def _extension(self, code: int, data: bytes) -> Any:
        try:
            stored = self.unpack(data)
            if code == _DELTA_SNAPSHOT:
                return Typed("langgraph.DeltaSnapshot", {"value": stored})
            if code not in _EXTENSIONS:
                msg = f"nothing here reads the extension type {code}"
                raise Unreadable(msg)
            length, build = _EXTENSIONS[code]
            if type(stored) is not list or len(stored) != length:
                msg = f"extension type {code} holds {type(stored).__name__}, not {length} parts"
                raise Unreadable(msg)
            return build(*stored)
        except BaseException as error:
            self.error = self.error or error
            raise


_PAIR = b"\x92"
_END = b"\xc4\x07the end"
_DELTA_SNAPSHOT = 7

_EXTENSIONS: dict[int, tuple[int, Callable[..., Any]]] = {
    0: (3, lambda module, name, arg: _instance(module, name, [arg], {})),
    1: (3, lambda module, name, args: _instance(module, name, args, {})),
    2: (3, lambda module, name, kwargs: _instance(module, name, [], kwargs)),
    3: (4, lambda module, name, arg, method: _instance(module, name, [arg], {}, _text(method))),
    4: (3, _model),
    5: (4, lambda module, name, data, _: _model(module, name, data)),
    6: (4, array),
}


# --- JSON


def _read_json(data: bytes) -> Any:
    # Left to itself, json guesses among three encodings.
    return json.loads(data.decode("utf-8", "surrogatepass"), object_hook=_object)


def _object(stored: dict[str, Any]) -> Any:
    """A JSON object: data, or an instance if it has the marks of one."""
    form, kind, path = stored.get("lc"), stored.get("type"), stored.get("id")
    if type(form) is not int or type(kind) is not str or path is None or (form, kind) not in _ENVELOPES:
        return stored
    if type(path) is not list or not all(type(part) is str for part in path):
        msg = f"a stored instance has {path!r} for a name"
        raise Unreadable(msg)
    if kind != "constructor":
        msg = _ENVELOPES[form, kind].format(".".join(path))
        raise Unreadable(msg)
    *modules, name = path or [""]
    module = ".".join(modules)
    if form == 1:
        if modules and modules[0] in ("langchain", "langchain_core"):
            module = _LANGCHAIN.get(name, module)
        return _typed(module, name, stored.get("kwargs", {}))
    args, kwargs, method = stored.get("args", []), stored.get("kwargs", {}), stored.get("method")
    if not args and type(method) is list:  # a Pydantic model; the methods are ways to construct it
        return _model(module, name, kwargs)
    return _instance(module, name, args, kwargs, method if type(method) is str else "")


_ENVELOPES = {
    (1, "constructor"): "",
    (2, "constructor"): "",
    (1, "not_implemented"): "{} was stored as a mere note that it can't be stored: the value itself is lost",
    (1, "secret"): "the secret {} was stored by name only: set it in the application, the value isn't in the store",
}

# The ids in JSON name the places where LangChain's classes were years ago; these are where they are.
_LANGCHAIN = {
    name: f"langchain_core.{module}"
    for module, names in {
        "agents": ("AgentAction", "AgentActionMessageLog", "AgentFinish"),
        "documents.base": ("Document",),
        "messages.ai": ("AIMessage", "AIMessageChunk"),
        "messages.base": ("BaseMessage", "BaseMessageChunk"),
        "messages.chat": ("ChatMessage", "ChatMessageChunk"),
        "messages.function": ("FunctionMessage", "FunctionMessageChunk"),
        "messages.human": ("HumanMessage", "HumanMessageChunk"),
        "messages.modifier": ("RemoveMessage",),
        "messages.system": ("SystemMessage", "SystemMessageChunk"),
        "messages.tool": ("ToolMessage", "ToolMessageChunk"),
        "outputs.chat_generation": ("ChatGeneration", "ChatGenerationChunk"),
        "outputs.generation": ("Generation", "GenerationChunk"),
        "prompt_values": ("ChatPromptValue", "ChatPromptValueConcrete", "StringPromptValue"),
    }.items()
    for name in names
}

_READERS: dict[str, Callable[[bytes], Any]] = {
    "null": _read_null,
    "bytes": lambda data: data,
    "bytearray": bytearray,
    "msgpack": _read_msgpack,
    "json": _read_json,
}
