"""From a URL, or a client that is already open, to a store.

The scheme picks the backend; its module and its driver are imported only then. Another package adds
a scheme by an entry point in the group `holdfast.backends`: its name is the scheme, its value a
function from `URL` to `Store`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from holdfast.errors import BadURL, MissingExtra

if TYPE_CHECKING:
    from holdfast.backends import Store


@dataclass(frozen=True, slots=True)
class Scheme:
    """Where a built-in backend lives, and what it needs to be installed."""

    module: str
    opener: str
    driver: str = ""
    extra: str = ""
    package: str = ""
    """What the driver is called where it is installed from, if it is imported under another name."""


SCHEMES: Mapping[str, Scheme] = {
    "memory": Scheme("holdfast.backends.memory", "open_memory"),
    "sqlite": Scheme("holdfast.backends.sql.sqlite", "open_sqlite"),
    "postgresql": Scheme("holdfast.backends.sql.postgres", "open_postgres", "psycopg", "postgres"),
    "postgres": Scheme("holdfast.backends.sql.postgres", "open_postgres", "psycopg", "postgres"),
    "mysql": Scheme("holdfast.backends.sql.mysql", "open_mysql", "pymysql", "mysql"),
    "mariadb": Scheme("holdfast.backends.sql.mysql", "open_mysql", "pymysql", "mysql"),
    "redis": Scheme("holdfast.backends.redis", "open_redis", "redis", "redis"),
    "rediss": Scheme("holdfast.backends.redis", "open_redis", "redis", "redis"),
    "mongodb": Scheme("holdfast.backends.mongodb", "open_mongodb", "pymongo", "mongodb"),
    "mongodb+srv": Scheme("holdfast.backends.mongodb", "open_mongodb", "pymongo", "mongodb"),
    "dynamodb": Scheme("holdfast.backends.dynamodb", "open_dynamodb", "boto3", "dynamodb"),
    "firestore": Scheme(
        "holdfast.backends.firestore", "open_firestore", "google", "firestore", package="google-cloud-firestore"
    ),
    "etcd": Scheme("holdfast.backends.etcd", "open_etcd", "grpc", "etcd"),
    "file": Scheme("holdfast.backends.objects.disk", "open_disk"),
    "s3": Scheme("holdfast.backends.objects.s3", "open_s3", "obstore", "s3"),
    "gs": Scheme("holdfast.backends.objects.gcs", "open_gcs", "obstore", "gcs"),
}

CLIENTS: Mapping[str, Scheme] = {
    "psycopg": Scheme("holdfast.backends.sql.postgres", "use_client"),
    "psycopg_pool": Scheme("holdfast.backends.sql.postgres", "use_client"),
    "pymysql": Scheme("holdfast.backends.sql.mysql", "use_connection"),
    "redis": Scheme("holdfast.backends.redis", "use_client"),
    "pymongo": Scheme("holdfast.backends.mongodb", "use_client"),
    "botocore": Scheme("holdfast.backends.dynamodb", "use_client"),
    "sqlite3": Scheme("holdfast.backends.sql.sqlite", "use_connection"),
    "holdfast": Scheme("holdfast.backends", "use_store"),
}
"""Clients that can be handed in, by the package that their class comes from."""


@dataclass(frozen=True, slots=True)
class URL:
    """A store's address, taken apart. Its repr hides the password."""

    scheme: str
    host: str = ""
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    path: str = ""
    namespace: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Not in the repr: drivers have options that are secrets, too."""
    text: str = field(default="", repr=False, compare=False)
    """The URL as it was given, for a driver that reads it by itself."""
    read_only: bool = False
    """Whether the store is only read: a backend that can should open it in a way that lets nothing be written."""

    @classmethod
    def parse(cls, text: str, *, namespace: str | None = None, read_only: bool = False) -> "URL":
        """Take a URL apart; `?namespace=` is a part of every one."""
        scheme, separator, _ = text.partition("://")
        if not separator:
            raise BadURL(_no_scheme(text))
        if "#" in text:
            msg = f"a '#' in the {scheme}:// URL has to be written as %23"
            raise BadURL(msg)
        parts = _split(text)
        if parts is None:
            msg = f"can't read the {scheme}:// URL: {_ODD}"
            raise BadURL(msg)
        netloc, path, user, password, has_hosts, port, pairs = parts
        options = dict(pairs)
        if len(options) < len(pairs):
            msg = f"the {scheme}:// URL gives an option twice"
            raise BadURL(msg)
        given = options.pop("namespace", None)
        if namespace is not None and given not in (None, namespace):
            msg = f"the URL says namespace={given!r}, the argument says {namespace!r}: give one of them"
            raise BadURL(msg)
        return cls(
            scheme=scheme.lower(),
            host=unquote(netloc.rpartition("@")[2] if has_hosts else _host(netloc)),
            port=port,
            user=unquote(user),
            password=unquote(password),
            path=unquote(path),
            namespace=namespace if namespace is not None else given or "",
            options=options,
            text=text,
            read_only=read_only,
        )

    def shown(self) -> str:
        """The URL for people's eyes: without user, password and options, any of which may be a secret."""
        is_ipv6 = ":" in self.host and "," not in self.host
        host = f"[{self.host}]" if is_ipv6 else self.host
        port = f":{self.port}" if self.port is not None else ""
        path = quote(self.path, safe="/:", errors="replace")
        return f"{self.scheme}://{host}{port}{path}{_shown_namespace(self.namespace)}"

    def refuse_options(self, *, known: Iterable[str] = ()) -> None:
        """Raise for an option that the backend does not know: a typo must not pass unseen."""
        if unknown := sorted(self.options.keys() - set(known)):
            accepted = ", ".join(["namespace", *sorted(known)])
            msg = f"{self.scheme}:// has no option {', '.join(map(repr, unknown))}; it knows {accepted}"
            raise BadURL(msg)


def _no_scheme(text: str) -> str:
    scheme = text.partition(":")[0].lower()
    if scheme == "sqlite":
        return "a file's URL has three slashes before a relative path, four before an absolute one: sqlite:///agent.db"
    if scheme in SCHEMES:
        return f"a store's URL has two slashes behind the colon: {scheme}://…"
    return "not a store's URL (no scheme): expected something like sqlite:///agent.db or memory://"


_ODD = (
    "is the port a number, and are special characters of user and password written as %XX "
    "(@ %40, : %3A, / %2F, ? %3F, # %23, % %25), and every option as name=value?"
)


def _split(text: str) -> tuple[str, str, str, str, bool, int | None, list[tuple[str, str]]] | None:
    """The parts of a URL, or None. What is wrong with it is not said in urllib's words: they quote passwords."""
    try:
        parts = urlsplit(text)
        # Several hosts, each with a port of its own, are for drivers that know of such.
        has_hosts = "," in parts.netloc
        port = None if has_hosts else parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return None
    # With an "@" elsewhere, what looks like a host, port and path is a part of the password.
    if parts.netloc.count("@") > 1 or (parts.netloc and "@" in parts.path + parts.query):
        return None
    return parts.netloc, parts.path, user, password, has_hosts, port, pairs


def _host(netloc: str) -> str:
    """The host as it is written; urllib would put it in lower case, which a name is not always free of."""
    host = netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def open_store(source: object, *, namespace: str | None = None, read_only: bool = False, corner: str = "") -> "Store":
    """Open a URL, or wrap a client that is already open and stays its owner's to close.

    `read_only` is for URLs: nothing can be written then, where the backend knows how to see to that. `corner` is put
    behind the namespace, for what is to be kept apart from an application's threads.
    """
    if not isinstance(namespace, str | None):
        msg = f"namespace must be text, not {type(namespace).__name__}"  # type: ignore[unreachable] # who has no types
        raise BadURL(msg)
    if isinstance(source, str):
        url = URL.parse(source, namespace=namespace, read_only=read_only)
        url = replace(url, namespace=url.namespace + corner)
        return _opener(url.scheme)(url)  # type: ignore[no-any-return]
    packages = [base.__module__.partition(".")[0] for base in type(source).__mro__]
    known = next((CLIENTS[package] for package in packages if package in CLIENTS), None)
    if known is None:
        accepted = ", ".join(sorted(CLIENTS))
        example = f"sqlite:///{source}" if isinstance(source, PurePath) else "sqlite:///agent.db"
        msg = f"expected a URL such as {example}, or a client of {accepted}, not {type(source).__name__}"
        raise BadURL(msg)
    use = getattr(import_module(known.module), known.opener)
    return use(source, namespace=(namespace or "") + corner)  # type: ignore[no-any-return]


def shown(source: object, *, namespace: str | None = None) -> str:
    """A store's name for people's eyes: its URL without secrets, or the kind of a client that was handed in."""
    if isinstance(source, str):
        return URL.parse(source, namespace=namespace).shown()
    kind = type(source)
    return f"on a {kind.__module__.partition('.')[0]}.{kind.__qualname__}{_shown_namespace(namespace or '')}"


def _shown_namespace(namespace: str) -> str:
    return f"?namespace={quote(namespace, errors='replace')}" if namespace else ""


def backend_module(scheme: str) -> ModuleType:
    """The module of a built-in backend; `MissingExtra` if its driver is not installed."""
    known = SCHEMES[scheme]
    try:
        return import_module(known.module)
    except ImportError as error:
        if known.driver and (error.name or "").partition(".")[0] == known.driver:
            raise MissingExtra(f"{scheme}://", known.package or known.driver, known.extra) from error
        raise


def _opener(scheme: str) -> Any:
    if scheme in SCHEMES:
        return getattr(backend_module(scheme), SCHEMES[scheme].opener)
    for plugin in entry_points(group="holdfast.backends", name=scheme):
        return plugin.load()
    msg = f"no store is known as {scheme}://; known are {', '.join(f'{s}://' for s in sorted(SCHEMES))}"
    raise BadURL(msg)
