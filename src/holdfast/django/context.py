"""What migrations are told of a checkpoint besides its place: the application's own fields."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Self

from holdfast.serde import CheckpointContext, CheckpointSerializer

_MOST = 10_000
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class AppContext(CheckpointContext):
    """A context with the fields that `HOLDFAST["CONTEXT"]` names, as attributes: `context.team`.

    A field is None where its lookup finds nothing. They were read before the migration is run, which is pure.
    """

    fields: Mapping[str, Any] = _NOTHING

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            known = ", ".join(self.fields) or "none"
            msg = f'no field {name!r} in HOLDFAST["CONTEXT"]; there is {known}'
            raise AttributeError(msg) from None

    def _replace(self, **changes: Any) -> Self:
        made = super()._replace(**changes)
        made.fields = self.fields
        return made


class Fields:
    """The application's fields of the threads that were read last."""

    def __init__(self, lookups: Mapping[str, str], *, alias: str, namespace: str) -> None:
        self._lookups = lookups
        self._alias = alias
        self._namespace = namespace
        self._unknown = MappingProxyType(dict.fromkeys(lookups))
        self._lock = threading.Lock()
        self._found: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def load(self, threads: Collection[str]) -> None:
        """Look them up, in one query."""
        from django.db.models import F  # noqa: PLC0415 - models come after apps

        from holdfast.django.models import Thread  # noqa: PLC0415 - as above

        # Under names that no field of the model has.
        asked = {f"holdfast_{name}": F(lookup) for name, lookup in self._lookups.items()}
        wanted = Thread.objects.using(self._alias).filter(app=self._namespace, thread__in=list(threads))
        rows = list(wanted.values("thread", **asked))
        with self._lock:
            for row in rows:
                name = row.pop("thread")
                self._found[name] = MappingProxyType({key.removeprefix("holdfast_"): row[key] for key in row})
                self._found.move_to_end(name)
            while len(self._found) > _MOST:
                self._found.popitem(last=False)

    def of(self, thread: str | None) -> Mapping[str, Any]:
        """Those of a thread."""
        return self._unknown if thread is None else self._found.get(thread, self._unknown)


class AppSerializer(CheckpointSerializer):
    """The serializer of a Django project, which tells migrations of the application's own fields."""

    fields: Fields | None = None

    def _completed(self, context: CheckpointContext) -> CheckpointContext:
        context = super()._completed(context)
        if self.fields is None:
            return context
        made = AppContext(*context)
        made.fields = self.fields.of(context.thread_id)
        return made
