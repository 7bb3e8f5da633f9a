"""What changed since a lock was made, and whether the data that was written under it survives that."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from holdfast.errors import NewerVersion
from holdfast.serde.lock.survey import Entry, Survey
from holdfast.serde.lock.typetext import MIGRATED, parse, renamed, takes, tightened
from holdfast.serde.migrations import MigrationRegistry
from holdfast.serde.serializer import CheckpointSerializer

Verdict = Literal["breaking", "migrated", "fine"]


class Difference(NamedTuple):
    """One change to one class.

    `field` is a field, or a member of an enum; None if the class as a whole is meant. `before` and `after`
    are what the lock and the code have, None where there is nothing. `todo` says what to do about a
    breaking one. A breaking change that newer migrations take care of is `migrated`.
    """

    name: str
    field: str | None
    what: str
    verdict: Verdict
    why: str
    todo: str = ""
    before: str | None = None
    after: str | None = None

    @property
    def survives(self) -> bool:
        """Whether old data can still be read, all of it."""
        return self.verdict != "breaking"


def check(serializer: CheckpointSerializer, locked: Mapping[str, Any]) -> list[Difference]:
    """Every change since the lock was made, by class and field; `NewerVersion` if the lock is newer than the code."""
    version, latest = locked["migration"], serializer.migrations.latest
    if version > latest:
        msg = (
            f"the lock was made at migration {version}, this code has migrations up to {latest}: "
            "it is older than what was deployed, or a migration was taken away"
        )
        raise NewerVersion(msg)
    return list(_Comparison(serializer, locked).differences())


class _Comparison:
    """One serializer beside one lock."""

    def __init__(self, serializer: CheckpointSerializer, locked: Mapping[str, Any]) -> None:
        self._survey = Survey(serializer)
        self._entries = self._survey.entries()
        self._locked: Mapping[str, Entry] = locked["classes"]
        self._version: int = locked["migration"]
        self._migrations: MigrationRegistry = serializer.migrations

    def differences(self) -> Iterator[Difference]:
        """By class and field."""
        known: set[str] = set()
        for name, old in sorted(self._locked.items()):
            cls = self._survey.find(name)
            if cls is None:
                yield self._settled(_gone(name, name), [name])
                continue
            known.add(now := self._survey.name_of(cls))
            if now != name:
                yield Difference(name, None, "renamed", "fine", f"{now!r} answers to it", before=name, after=now)
            new = self._survey.entry(cls)
            aliases = [alias for alias in old.get("aliases", ()) if self._survey.find(alias)]
            for found in self._of_class(name, old, new, drops=self._survey.drops(cls)):
                yield self._settled(found, [name, *filter(self._stays, aliases)])
            for alias in old.get("aliases", ()):
                if alias not in aliases:
                    yield self._settled(_gone(name, alias), [alias])
        for name in sorted(self._entries.keys() - known):
            yield Difference(name, None, "class added", "fine", "there is no old data of it", after=name)

    def _stays(self, alias: str) -> bool:
        """Whether data that was stored by an alias still goes by it after all migrations.

        What was stored by a class's place goes by its first name before any of them, and an alias that one of them
        is about is renamed by it.
        """
        return (":" not in alias or "[" in alias) and not self._migrations.concerns(alias, 0)

    def _settled(self, found: Difference, names: list[str]) -> Difference:
        """A breaking change with what there is against it: migrations newer than the lock, for each of the names."""
        if found.verdict != "breaking":
            return found
        uncovered = [name for name in names if not self._migrations.concerns(name, self._version)]
        if not uncovered:
            numbers = [str(number) for number in self._numbers(names)]
            plural = "migrations" if len(numbers) > 1 else "migration"
            return found._replace(verdict="migrated", why=f"{plural} {', '.join(numbers)} for it", todo="")
        if len(uncovered) < len(names):
            rest = ", ".join(map(repr, uncovered))
            return found._replace(
                why=f"{found.why}; a migration is there, but not for data that was stored as {rest}",
                todo=f"add {rest} to the migration's types",
            )
        number = self._migrations.latest + 1
        return found._replace(todo=f"write migration {number:04} with types = ({names[0]!r},), or {found.todo}")

    def _numbers(self, names: list[str]) -> list[int]:
        newer = [(number, migration.types) for number, migration in self._migrations if number > self._version]
        return [number for number, types in newer if types is None or set(types) & set(names)]

    def _of_class(self, name: str, old: Entry, new: Entry, *, drops: bool) -> Iterator[Difference]:
        if ("members" in old) != ("members" in new):
            yield Difference(
                name,
                None,
                "kind changed",
                "breaking",
                "a member of an enum has no fields, and the other way round",
                "give the new class another name",
                old["kind"],
                new["kind"],
            )
            return
        if old["kind"] != new["kind"]:
            why = "fields are stored the same way"
            yield Difference(name, None, "kind changed", "fine", why, "", old["kind"], new["kind"])
        if old.get("extra") == "allow" and new.get("extra") != "allow":
            yield Difference(
                name,
                None,
                "extra fields are no longer kept",
                "breaking",
                f"those that are stored would be {'dropped' if drops else 'refused'}",
                'keep extra="allow"',
                'extra="allow"',
                f'extra="{new.get("extra", "ignore")}"',
            )
        if "members" in old:
            yield from _of_members(name, old["members"], new["members"])
        else:
            yield from self._of_fields(name, old, new, drops=drops)

    def _of_fields(self, name: str, old: Entry, new: Entry, *, drops: bool) -> Iterator[Difference]:
        before, after = old["fields"], new["fields"]
        for field in sorted(before.keys() | after.keys()):
            if field not in after:
                yield self._removed(name, field, old, new, drops=drops)
            elif field not in before:
                yield _added(name, field, after[field])
            else:
                yield from self._of_field(name, field, before[field], after[field])

    def _removed(self, name: str, field: str, old: Entry, new: Entry, *, drops: bool) -> Difference:
        told = old["fields"][field]
        if new.get("extra") == "allow":
            why = 'its data is kept as an extra field (extra="allow")'
            return Difference(name, field, "field removed", "fine", why, "", _shown(field, told))
        same = [
            other
            for other, it in new["fields"].items()
            if other not in old["fields"] and self._takes(it["type"], told["type"])
        ]
        renaming = (
            f' (if {same[0]!r} is its new name: data["{same[0]}"] = data.pop("{field}"))' if len(same) == 1 else ""
        )
        return Difference(
            name,
            field,
            "field removed",
            "breaking",
            'its stored values would be dropped (extra="ignore")'
            if drops
            else "stored data that has it would be refused",
            f"keep the field for now{renaming}",
            _shown(field, told),
        )

    def _of_field(self, name: str, field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
        shown = {"before": _shown(field, old), "after": _shown(field, new)}
        if told := self._of_type(old["type"], new["type"]):
            yield Difference(name, field, *told, shown["before"], shown["after"])
        if new["required"] and not old["required"]:
            why = "data from before the field was there has no value for it, and relied on the default"
            yield Difference(name, field, "became required", "breaking", why, "keep the default", **shown)
        elif old["required"] and not new["required"]:
            yield Difference(name, field, "no longer required", "fine", "stored values stay", **shown)
        elif old.get("default") != new.get("default"):
            why = "stored values stay; data from before the field was there gets the new default"
            yield Difference(name, field, "default changed", "fine", why, **shown)
        was, now = old.get("constraints", []), new.get("constraints", [])
        if tighter := tightened(was, now):
            why = f"stored values may not meet {', '.join(tighter)}"
            yield Difference(name, field, "constraints tightened", "breaking", why, "keep the old ones", **shown)
        elif was != now:
            yield Difference(name, field, "constraints loosened", "fine", "stored values meet them", **shown)

    def _of_type(self, before: str, after: str) -> tuple[str, Verdict, str, str] | None:
        """What changed, the verdict, why, and what to do; None if it is the same type."""
        old, new = renamed(parse(before), self._name_now), parse(after)
        if old == new:
            return None
        if not takes(new, old):
            why = f"stored values of {before} need not be right for {after}"
            return "type changed", "breaking", why, f"let the field take both: {before} | {after}"
        if MIGRATED in str(old):
            return "type changed", "migrated", "a migration takes care of the values in it", ""
        return "type widened", "fine", "it takes all that the old one did", ""

    def _takes(self, new: str, old: str) -> bool:
        return takes(parse(new), renamed(parse(old), self._name_now))

    def _name_now(self, name: str) -> str:
        if name not in self._locked:
            return name
        cls = self._survey.find(name)
        if cls is not None:
            return self._survey.name_of(cls)
        return MIGRATED if self._migrations.concerns(name, self._version) else name


def _gone(name: str, stored: str) -> Difference:
    what = "class removed" if stored == name else "alias removed"
    why = f"nothing answers to {stored!r} any more, so what is stored by that name would not load"
    todo = f"give the class that took its place the alias {stored!r}"
    return Difference(name, None, what, "breaking", why, todo, before=stored)


def _added(name: str, field: str, told: Mapping[str, Any]) -> Difference:
    if told["required"]:
        why = "stored data has no value for it, and it has no default"
        return Difference(name, field, "field added", "breaking", why, "give it a default", after=_shown(field, told))
    return Difference(name, field, "field added", "fine", "old data gets its default", after=_shown(field, told))


def _of_members(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for member in sorted(old.keys() | new.keys()):
        before = f"{member} = {old[member]}" if member in old else None
        after = f"{member} = {new[member]}" if member in new else None
        if before is None:
            yield Difference(name, member, "member added", "fine", "no old data has it", after=after)
        elif after is None:
            heir = next((other for other, value in new.items() if value == old[member]), None)
            if heir is not None:
                why = f"it is found by its value, as {heir}"
                yield Difference(name, member, "member renamed", "fine", why, "", before, f"{heir} = {new[heir]}")
            else:
                why = "stored data that has it would not load"
                yield Difference(name, member, "member removed", "breaking", why, "keep the member", before)
        elif before != after:
            why = "stored members take the new value without a word, and values stored as such are lost"
            yield Difference(name, member, "value changed", "breaking", why, "keep the old value", before, after)


def _shown(field: str, told: Mapping[str, Any]) -> str:
    limits = "".join(f" {limit}" for limit in told.get("constraints", ()))
    default = f" = {told['default']}" if "default" in told else "" if told["required"] else " = …"
    return f"{field}: {told['type']}{limits}{default}"
