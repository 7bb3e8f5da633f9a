"""What a migration may not do, found in its source before it ever runs.

A migration runs at each read of old data, in any process, years after it was written. So it may lean on
nothing that differs between two runs or that changes with the application's code. This finds mistakes;
it is no sandbox, for a migration is the application's own code.
"""

import ast
import dis
import inspect
import sys
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

_PURE = """
    __future__ abc base64 binascii bisect collections copy datetime decimal enum fractions functools hashlib html
    ipaddress itertools json math numbers operator re statistics string struct textwrap types typing unicodedata
    urllib.parse uuid holdfast.serde
"""
PURE = frozenset(_PURE.split())
"""Modules whose functions depend on their arguments alone, but for the names below."""

_IO = "reads or writes something outside its arguments", "let the data carry what it needs"
_CODE = "runs code that can't be read here", "write out what it does"
_CLOCK = "is different at each read", "take the value from the data, or write a constant"
_HIDDEN = "hides what is used", "name it"
_LOCAL = "depends on the machine's time zone", "hand in timezone.utc, or another fixed zone"
_PROCESS = "is different in each process", "use hashlib, or a field of the data"
_LIVE = "ties it to code that will change after it", "copy what it needs of it into this file"
_STATE = "is seen by the next call", "return what changes, keep nothing"
_ASYNC = "waits for something", "make it a plain `def` that works on its arguments alone"
_YIELD = "makes a generator of it", "return (data, type_hint)"

_BUILTINS = {
    **dict.fromkeys(("open", "input", "print", "breakpoint", "help", "exit", "quit"), _IO),
    **dict.fromkeys(("exec", "eval", "compile", "__import__"), _CODE),
    **dict.fromkeys(("globals", "locals", "vars", "getattr", "setattr", "delattr", "__builtins__"), _HIDDEN),
    **dict.fromkeys(("id", "hash"), _PROCESS),
}
_ATTRIBUTES = {
    **dict.fromkeys(("now", "utcnow", "today", "uuid1", "uuid4", "uuid6", "uuid7", "uuid8", "getnode"), _CLOCK),
    **dict.fromkeys(("getcontext", "setcontext", "file_digest"), _IO),
}
_DUNDERS = frozenset(("__name__", "__class__", "__init__", "__doc__"))
_CHANGES = """
    add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse setdefault sort
    update
"""
_MUTATORS = frozenset(_CHANGES.split())
_LOOKUPS = frozenset(("get", "setdefault", "values", "items", "pop"))


class Fault(NamedTuple):
    """Something impure: where, what, why it is refused, and what to do instead."""

    file: str
    line: int
    what: str
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what} {self.why}; {self.instead}"


def faults_of_module(module: ModuleType, cls: type) -> list[Fault]:
    """What is impure in a file that holds one migration and nothing else."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return faults_of_class(cls)
    reader = _Reader(module.__file__ or module.__name__, _bound(tree.body))
    reader.visit(tree)
    return reader.faults


def faults_of_class(cls: type) -> list[Fault]:
    """What is impure in a migration that stands among other code: in it, and in what it uses of its module."""
    faults: list[Fault] = []
    linker = _Linker({*cls.__mro__})
    for each in cls.__mro__:
        if each.__module__ == "builtins" or _is_pure(each.__module__):
            continue
        read = _faults_of_source(each)
        faults += read or ()
        for function in _functions(each):
            faults += linker.faults_of(function, read_already=read is not None)
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.file, fault.line))


def _is_pure(name: str) -> bool:
    """Whether a module is on the list, or a part of one that is; a module's C half has an underscore in front."""
    parts = name.split(".") if name in PURE else name.lstrip("_").split(".")
    return any(".".join(parts[:end]) in PURE for end in range(1, len(parts) + 1))


def _import_fault(file: str, line: int, name: str) -> Fault:
    root = name.partition(".")[0]
    if root in ("time", "random", "secrets"):
        return Fault(file, line, f"import of {name}", *_CLOCK)
    if root in sys.stdlib_module_names:
        allowed = ", ".join(sorted(PURE))
        return Fault(file, line, f"import of {name}", "reaches outside the data", f"these can be imported: {allowed}")
    return Fault(file, line, f"import of {name or 'a neighbour'}", *_LIVE)


def _functions(cls: type) -> Iterator[FunctionType]:
    for value in vars(cls).values():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        # From 3.14 on, annotations are functions; they are never run.
        if isinstance(inner, FunctionType) and not inner.__name__.startswith("__annotate"):
            yield inner


def _faults_of_source(thing: type | FunctionType) -> list[Fault] | None:
    """The faults in the lines of a class or a function; None where there are no lines to read."""
    try:
        lines, start = inspect.findsource(thing)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == thing.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if start + 1 in (first, node.lineno):
                reader = _Reader(inspect.getsourcefile(thing) or "?", _bound(tree.body))
                reader.visit(node)
                return reader.faults
    return None


class _Linker:
    """Follows what a function uses of its module, by its compiled code."""

    def __init__(self, own: set[type]) -> None:
        self._own = own
        self._seen: set[CodeType] = set()

    def faults_of(self, function: FunctionType, *, read_already: bool) -> Iterator[Fault]:
        top = function.__code__
        if top in self._seen:
            return
        self._seen.add(top)
        cells = dict(zip(top.co_freevars, function.__closure__ or (), strict=True))
        for line, kind, name in _uses(top):
            at = top.co_filename, line
            if kind == "free" and name in cells and _is_filled(cells[name]):
                yield from self._faults_of_value(function, at, name, cells[name].cell_contents)
            elif kind == "global" and name in function.__globals__:
                yield from self._faults_of_value(function, at, name, function.__globals__[name])
            elif read_already:
                continue
            elif kind == "global" and name in _BUILTINS:
                yield Fault(*at, name, *_BUILTINS[name])
            elif kind == "attribute" and name in _ATTRIBUTES:
                yield Fault(*at, name, *_ATTRIBUTES[name])
            elif kind == "import" and not _is_pure(name):
                yield _import_fault(*at, name)
            elif kind == "store":
                yield Fault(*at, f"a change of {name}", *_STATE)

    def _faults_of_value(self, user: FunctionType, at: tuple[str, int], name: str, value: object) -> Iterator[Fault]:
        if isinstance(value, FunctionType) or (callable(value) and type(value).__module__ == "functools"):
            value = inspect.unwrap(value)
        if isinstance(value, ModuleType):
            if not _is_pure(value.__name__):
                yield _import_fault(*at, value.__name__)
            return
        if isinstance(value, FunctionType) and value.__module__ == user.__module__:
            read = _faults_of_source(value)
            yield from read or ()
            yield from self.faults_of(value, read_already=read is not None)
            return
        module = _module_of(value)
        called = getattr(value, "__name__", None)
        if isinstance(called, str) and called in _ATTRIBUTES:
            yield Fault(*at, name, *_ATTRIBUTES[called])
        elif module != "builtins" and not _is_pure(module) and not any(value is cls for cls in self._own):
            yield Fault(*at, f"{name} (of {module})", *_LIVE)


def _module_of(value: object) -> str:
    """Where a function or a class was defined, or the class of any other value."""
    if isinstance(value, BuiltinFunctionType) and getattr(value, "__module__", None) is None:
        value = value.__self__
    home = value if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value)
    return home.__module__ or "builtins"


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if the variable isn't set yet
    except ValueError:
        return False
    return True


def _uses(code: CodeType) -> Iterator[tuple[int, str, str]]:
    """The line, the kind and the name of all that a code object takes from outside or leaves there."""
    before: Any = None
    for instruction in dis.get_instructions(code):
        line = (instruction.positions.lineno if instruction.positions else None) or code.co_firstlineno
        operation, name = instruction.opname, instruction.argval
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield line, "global", name
        elif operation in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in code.co_freevars:
            yield line, "free", name
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            yield line, "attribute", name
        elif operation == "IMPORT_NAME":
            yield line, "import", name
        elif operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield line, "store", name
        elif operation == "STORE_ATTR" and "self" in (before if isinstance(before, tuple) else (before,)):
            yield line, "store", f"self.{name}"
        before = name
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and not constant.co_name.startswith("__annotate"):
            yield from _uses(constant)


def _bound(body: Sequence[ast.AST]) -> set[str]:
    """The names that statements bind in their own scope, and comprehensions in theirs."""
    names: set[str] = set()
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue
            case ast.Lambda():
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
        waiting += ast.iter_child_nodes(node)
    return names


class _Reader(ast.NodeVisitor):
    """Reads a file, a class or a function, and notes what is impure in it."""

    def __init__(self, file: str, outer: set[str]) -> None:
        self.faults: list[Fault] = []
        self._file = file
        self._outer = outer
        self._scopes: list[set[str]] = []
        self._owners: set[str] = set()
        self._in_class = False
        self._function = ""

    def _note(self, node: ast.AST, what: str, why: tuple[str, str]) -> None:
        self.faults.append(Fault(self._file, getattr(node, "lineno", 0), what, *why))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outside, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = outside

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node, node.name, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._note(node, f"async def {node.name}", _ASYNC)
        self._enter(node, node.name, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(node, "", [node.body])

    def _enter(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str, body: Sequence[ast.AST]
    ) -> None:
        outside = self._in_class, self._function, self._owners
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        names = [argument.arg for argument in named if argument is not None]
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in decorators)
        if self._in_class and names and not is_static and not isinstance(node, ast.Lambda):
            self._owners = {*self._owners, names[0]}
        self._in_class, self._function = False, name
        self._scopes.append({*names, *_bound(body)})
        self.generic_visit(node)
        self._scopes.pop()
        self._in_class, self._function, self._owners = outside

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if not _is_pure(alias.name):
                self.faults.append(_import_fault(self._file, node.lineno, alias.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            if node.level:
                self._note(node, f"import of {'.' * node.level}{module}", _LIVE)
            elif not _is_pure(module) and f"{module}.{alias.name}" not in PURE:
                self.faults.append(_import_fault(self._file, node.lineno, module))
            elif alias.name == "*":
                self._note(node, f"from {module} import *", _HIDDEN)
            elif alias.name in _ATTRIBUTES:
                self._note(node, alias.name, _ATTRIBUTES[alias.name])

    def visit_Name(self, node: ast.Name) -> None:
        known = self._outer.union(*self._scopes)
        if isinstance(node.ctx, ast.Load) and node.id in _BUILTINS and node.id not in known:
            self._note(node, node.id, _BUILTINS[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._check_target(node)
        elif node.attr in _ATTRIBUTES and not self._is_owner(node.value):
            self._note(node, node.attr, _ATTRIBUTES[node.attr])
        if node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in _DUNDERS:
            self._note(node, node.attr, _HIDDEN)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._check_target(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            attribute, given = node.func.attr, len(node.args) + len(node.keywords)
            if attribute in _MUTATORS and not self._is_owner(node.func.value):
                self._check_target(node.func)
            if (attribute == "astimezone" and given == 0) or (attribute == "fromtimestamp" and given == 1):
                self._note(node, f"{attribute} without a zone", _LOCAL)
        self.generic_visit(node)

    def _is_owner(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._owners

    def _check_target(self, node: ast.expr) -> None:
        """Refuse a change, inside a function, of anything that outlives the call."""
        if not self._scopes:
            return
        root = node
        while not isinstance(root, ast.Name):
            match root:
                case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                    root = inner
                case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in _LOOKUPS:
                    root = inner
                case ast.Call(func=ast.Name(id="type" | "super") as inner):
                    root = inner
                case _:
                    return
        if root.id in self._owners or not any(root.id in scope for scope in self._scopes):
            self._note(node, f"a change of {ast.unparse(node)}", _STATE)

    def visit_Global(self, node: ast.Global) -> None:
        self._note(node, f"global {', '.join(node.names)}", _STATE)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._note(node, f"nonlocal {', '.join(node.names)}", _STATE)

    def _visit_async(self, node: ast.AST) -> None:
        self._note(node, "async", _ASYNC)
        self.generic_visit(node)

    visit_Await = visit_AsyncFor = visit_AsyncWith = _visit_async  # noqa: N815 - ast's names

    def _visit_yield(self, node: ast.AST) -> None:
        if self._function == "migrate_data":
            self._note(node, "yield", _YIELD)
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = _visit_yield  # noqa: N815 - ast's names
