"""The app around the checkpointer: tables, threads as models, deletes, settings, context, permissions."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import IntegrityError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models import ProtectedError
from django.test import override_settings
from djangolab import ENGINES, Corner, apart, checkpointer, database
from talk.models import Bookmark, LongTalk, Note, Report, Talk, TalkThread, Team

from holdfast import Saver
from holdfast.django import DjangoCheckpointer, conf
from holdfast.django.formats import VENDORS, StorageFormat, migrations_of, read_format
from holdfast.django.models import Checkpoint, ReadOnly, Segment, Thread, Write
from holdfast.errors import StoreError
from holdfast.serde import BaseMigration, CheckpointSerializer, MigrationRegistry, new_key
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


@pytest.fixture(scope="module", params=ENGINES)
def alias(request: Any, tmp_path_factory: Any) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("db")) as alias:
        yield alias


@pytest.fixture
def corner(alias: str) -> Corner:
    return apart(alias)()


def put(saver: Any, thread: str, values: Any = (), number: int = 1) -> None:
    checkpoint = checkpoint_of(name(number), dict(values))
    config = saver.put(config_of(thread), checkpoint, {"step": number}, checkpoint["channel_versions"])
    saver.put_writes(config, [("later", LONG)], "task")


def left(corner: Corner, thread: Thread) -> list[int]:
    """How many records a thread has, besides itself."""
    return [
        model.objects.using(corner.alias).filter(thread=thread.pk).count() for model in (Checkpoint, Segment, Write)
    ]


# --- tables


def test_migrate_makes_what_the_library_makes(alias: str, tmp_path: Any) -> None:
    """By the same statements, recorded in the same way: a plain `Saver` finds nothing left to do."""
    found = connections[alias]
    assert len(migrations_of(found.vendor)) == read_format(found).version
    if found.vendor != "sqlite":
        return
    saver = Saver(f"sqlite:///{tmp_path}/own.db")
    saver.setup()
    with database("sqlite", tmp_path, migrate=False) as other:
        call_command("migrate", "holdfast", database=other, verbosity=0)
        query = "SELECT type, name, sql FROM sqlite_master WHERE name LIKE '%holdfast%' ORDER BY type, name"
        with connections[other].cursor() as cursor:
            ours = cursor.execute(query).fetchall()
            cursor.execute(f"ATTACH '{tmp_path}/own.db' AS own")
            theirs = cursor.execute(query.replace("sqlite_master", "own.sqlite_master")).fetchall()
            cursor.execute("DETACH own")
    saver.close()
    assert ours == theirs


def test_tables_that_are_there_already_are_taken_as_they_are(tmp_path: Any) -> None:
    with database("sqlite", tmp_path, migrate=False) as alias:
        path = connections[alias].settings_dict["NAME"]
        with Saver(f"sqlite:///{path}") as saver:
            put(saver, "t", {"m": LONG})
        call_command("migrate", "holdfast", database=alias, verbosity=0)
        assert checkpointer(Corner(alias, "")).get_tuple(config_of("t")).checkpoint["channel_values"]["m"] == LONG


def test_without_tables_it_is_said_what_to_do(tmp_path: Any) -> None:
    with database("sqlite", tmp_path, migrate=False) as alias:
        with pytest.raises(StoreError, match=f"manage.py migrate --database={alias}"):
            checkpointer(Corner(alias, "")).get_tuple(config_of("t"))
        assert connections[alias].introspection.table_names() == []


def test_migrations_can_be_undone(tmp_path: Any) -> None:
    with database("sqlite", tmp_path) as alias:
        call_command("migrate", "talk", "zero", database=alias, verbosity=0)
        call_command("migrate", "holdfast", "zero", database=alias, verbosity=0)
        assert [table for table in connections[alias].introspection.table_names() if "holdfast" in table] == []
        call_command("migrate", database=alias, verbosity=0)
        checkpointer(Corner(alias, "")).setup()


def test_a_model_that_is_there_gets_threads(alias: str) -> None:
    """By a migration such as the guide has, in which threads can be begun."""
    call_command("migrate", "talk", "0002", database=alias, verbosity=0)
    old = MigrationExecutor(connections[alias]).loader.project_state([("talk", "0002_more")]).apps
    notes = old.get_model("talk", "Note").objects.using(alias)
    notes.bulk_create([notes.model(title=f"{number}") for number in range(3)])
    call_command("migrate", "talk", database=alias, verbosity=0)
    found = Note.objects.using(alias).all()
    assert len({note.thread.thread for note in found}) == 3
    assert Note.objects.using(alias).create(title="new").thread.config["configurable"]["thread_id"]
    thread = found[0].thread
    found[0].delete()
    assert not Thread.objects.using(alias).filter(pk=thread.pk).exists()


def test_fixtures_with_records_are_refused(tmp_path: Any) -> None:
    """Their keys are of several columns, of which a fixture has one; threads and all else can be in one."""
    with database("sqlite", tmp_path) as alias, override_settings(HOLDFAST={"DATABASE": alias}):
        talk = Talk.objects.using(alias).create(title="one")
        put(DjangoCheckpointer(), talk.thread.thread, {"m": LONG})
        for label in ("Checkpoint", "Segment", "Write"):
            call_command(
                "dumpdata", f"holdfast.{label}", database=alias, output=f"{tmp_path}/{label}.json", verbosity=0
            )
            with pytest.raises(ReadOnly, match="dumpdata --exclude holdfast"):
                call_command("loaddata", f"{tmp_path}/{label}.json", database=alias, verbosity=0)
        call_command("dumpdata", "holdfast.Thread", "talk", database=alias, output=f"{tmp_path}/some.json", verbosity=0)
        talk.delete()
        call_command("loaddata", f"{tmp_path}/some.json", database=alias, verbosity=0)
        assert Talk.objects.using(alias).get().thread.thread == talk.thread.thread


def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_the_last_migration_leads_to_the_newest_format() -> None:
    """Whoever adds a storage format to the library adds a migration here."""
    from django.db.migrations.loader import MigrationLoader

    loaded = MigrationLoader(None).disk_migrations
    reached: dict[str, int] = {}
    for key in sorted(key for key in loaded if key[0] == "holdfast"):
        for operation in loaded[key].operations:
            for made in getattr(operation, "database_operations", []):
                if isinstance(made, StorageFormat):
                    reached.update(made.formats)
    assert {vendor: len(migrations_of(vendor)) for vendor in VENDORS} == reached


def test_flushing_leaves_no_record_and_keeps_the_format(tmp_path: Any) -> None:
    """As TransactionTestCase does after each test."""
    with database("sqlite", tmp_path) as alias:
        saver = checkpointer(Corner(alias, ""))
        put(saver, "t", {"m": LONG})
        call_command("flush", database=alias, verbosity=0, interactive=False)
        assert None is saver.get_tuple(config_of("t"))
        put(saver, "t", {"m": LONG})
        assert checkpointer(Corner(alias, "")).get_tuple(config_of("t")).checkpoint["channel_values"]["m"] == LONG


# --- threads as models


def test_deleting_an_object_deletes_its_thread(corner: Corner) -> None:
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        saver = DjangoCheckpointer(using=corner.alias)
        talk = Talk.objects.using(corner.alias).create(title="one")
        other = Talk.objects.using(corner.alias).create(title="other")
        for each in (talk, other):
            put(saver, each.thread.thread, {"m": LONG})
        assert left(corner, talk.thread) == [1, 1, 1]
        thread = talk.thread
        talk.delete()
        assert left(corner, thread) == [0, 0, 0]
        assert [other.thread.thread] == [info.thread for info in saver.threads()]
        other.delete()
        assert Thread.objects.using(corner.alias).of_this_app().count() == 0


def test_deleting_through_a_proxy_deletes_all_of_it(corner: Corner) -> None:
    """Of the object's model, and of Thread itself."""
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        saver = DjangoCheckpointer(using=corner.alias)
        talks = [LongTalk.objects.using(corner.alias).create(title="one"), Talk.objects.using(corner.alias).create()]
        for talk in talks:
            put(saver, talk.thread.thread, {"m": LONG})
        LongTalk.objects.using(corner.alias).get(pk=talks[0].pk).delete()
        TalkThread.objects.using(corner.alias).filter(pk=talks[1].thread_id).delete()
        assert [left(corner, talk.thread) for talk in talks] == [[0, 0, 0], [0, 0, 0]]
        assert Thread.objects.using(corner.alias).of_this_app().count() == 0
        assert not Talk.objects.using(corner.alias).filter(pk=talks[1].pk).exists()


def test_threads_that_nothing_leads_to_are_found(corner: Corner) -> None:
    """What an insert that failed has left behind is one; what has a record, or is led to, is none."""
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        threads = Thread.objects.using(corner.alias).of_this_app()
        put(DjangoCheckpointer(using=corner.alias), "used")
        talk = Talk.objects.using(corner.alias).create()
        Report.objects.using(corner.alias).create()
        Bookmark.objects.using(corner.alias).create(thread=Thread.objects.using(corner.alias).begin("marked"))
        with pytest.raises(IntegrityError):
            Talk.objects.using(corner.alias).create(pk=talk.pk)
        Thread.objects.using(corner.alias).begin("empty")
        assert threads.count() == 6
        threads.unused().delete()
        assert [threads.count(), threads.filter(thread="empty").count(), threads.unused().count()] == [4, 0, 0]


@pytest.mark.parametrize("how", ["checkpointer", "model", "queryset", "prune"])
def test_deleting_a_thread_does_what_the_field_says(corner: Corner, how: str) -> None:
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        saver = DjangoCheckpointer(using=corner.alias)
        talk = Talk.objects.using(corner.alias).create()
        mark = Bookmark.objects.using(corner.alias).create(thread=talk.thread)
        put(saver, talk.thread.thread, {"m": LONG})
        match how:
            case "checkpointer":
                saver.delete_thread(talk.thread.thread)
            case "model":
                talk.thread.delete()
            case "queryset":
                Thread.objects.using(corner.alias).filter(pk=talk.thread_id).delete()
            case "prune":
                saver.prune([talk.thread.thread], strategy="delete")
        assert left(corner, talk.thread) == [0, 0, 0]
        assert not Talk.objects.using(corner.alias).filter(pk=talk.pk).exists()
        mark.refresh_from_db()
        assert None is mark.thread_id


def test_a_field_can_keep_its_thread(corner: Corner) -> None:
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        saver = DjangoCheckpointer(using=corner.alias)
        report = Report.objects.using(corner.alias).create()
        thread = report.thread
        put(saver, thread.thread)
        with pytest.raises(ProtectedError):
            saver.delete_thread(thread.thread)
        assert left(corner, thread)[0] == 1
        report.delete()
        assert left(corner, thread)[0] == 1


@pytest.mark.parametrize("text", ["a", "A", "a ", "á", "a%", "a\0b", "a\1b", "a/b", "日本" * 100])
def test_names_are_exact(corner: Corner, text: str) -> None:
    """A thread that was begun as a model is the one that a graph puts its checkpoints on."""
    with override_settings(HOLDFAST={"NAMESPACE": corner.namespace}):
        threads = Thread.objects.using(corner.alias)
        begun = threads.begin(text)
        put(DjangoCheckpointer(using=corner.alias), text)
        assert [text] == [thread.thread for thread in threads.of_this_app()]
        assert (begun, {"configurable": {"thread_id": text}}) == (threads.begin(text), begun.config)
        assert [name(1)] == [row.id for row in Checkpoint.objects.using(corner.alias).filter(thread=begun)]


def test_records_are_read_only(corner: Corner) -> None:
    put(checkpointer(corner), "t")
    row = Checkpoint.objects.using(corner.alias).filter(app=corner.namespace).get()
    for change in (row.save, row.delete, Checkpoint.objects.all().delete, Checkpoint.objects.update):
        with pytest.raises(ReadOnly):
            change()


# --- settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"CODECS": "json"}, "is not known"),
        ({"CODEC": "yaml"}, "'json' or 'msgpack'"),
        ({"DATABASE": "nowhere"}, "alias of DATABASES"),
        ({"REGISTRY": "talk.models"}, "list of modules"),
        ({"REGISTRY": ["talk.nothing"]}, "can't be imported"),
        ({"MIGRATIONS": "talk.nothing"}, "can't be used"),
        ({"KEYS": "k1:c2hvcnQ="}, "new_key"),
        ({"COMPRESS": 99}, "level of zstd"),
        ({"CONTEXT": {"team": "nothing__there"}}, "no lookup from a thread"),
        ({"CONTEXT": ["team"]}, "it is a dict"),
        ({"CONTEXT": {"channel": "talk__title"}}, "has itself"),
        ({"CONTEXT": {"count": "talk__title"}}, "has itself"),
        ({"RETENTION": {"weeks": 1}}, '"days"'),
        ({"RETRY": -1}, "number of seconds"),
        ({"DATABASE": ["default"]}, "alias of DATABASES"),
        ({"RETENTION": {"days": True}}, '"days"'),
        ({"RETENTION": {"days": float("nan")}}, '"days"'),
        ({"RETENTION": {"days": 1e12}}, '"days"'),
        ([], "HOLDFAST is []"),
        (None, "HOLDFAST is None"),
    ],
)
def test_settings_are_checked(given: Any, said: str) -> None:
    """Each error has a number of its own, says what is wrong, and what to write instead."""
    with override_settings(HOLDFAST=given):
        messages = [message for message in run_checks() if (message.id or "").startswith("holdfast.")]
    assert any(said in f"{message.msg} {message.hint}" for message in messages), messages
    assert all(message.hint for message in messages)


def test_good_settings_pass() -> None:
    given = {
        "DATABASE": "default",
        "NAMESPACE": "desk",
        "REGISTRY": [],
        "CODEC": "msgpack",
        "COMPRESS": True,
        "KEYS": f"k1:{new_key()}",
        "CONTEXT": {"team": "talk__team__name"},
        "RETENTION": {"days": 30, "strategy": "delete"},
    }
    with override_settings(HOLDFAST=given):
        assert [message for message in run_checks() if (message.id or "").startswith("holdfast.")] == []
        assert "k1" not in repr(conf.current())


@pytest.mark.parametrize("given", ["k1:c2VjcmV0", "c2VjcmV0", "c2VjcmV0=", {"c2VjcmV0": "c2VjcmV0"}, ["c2VjcmV0"]])
def test_keys_are_never_shown(given: Any) -> None:
    with override_settings(HOLDFAST={"KEYS": given}):
        messages = [message for message in run_checks() if message.id == "holdfast.E001"]
    assert (len(messages), "c2VjcmV0" in str(messages)) == (1, False)


def test_routers_choose_the_database(corner: Corner) -> None:
    class Router:
        def db_for_write(self, model: Any, **_: Any) -> str | None:
            return corner.alias if model._meta.app_label == "holdfast" else None

        def db_for_read(self, model: Any, **_: Any) -> str | None:
            raise AssertionError("what is read is read where it is written")

    with override_settings(DATABASE_ROUTERS=[Router()], HOLDFAST={"NAMESPACE": corner.namespace}):
        saver = DjangoCheckpointer()
        put(saver, "t")
    assert corner.alias == saver.alias
    assert [info.thread for info in checkpointer(corner).threads()] == ["t"]


def test_models_are_where_their_threads_are(tmp_path: Any) -> None:
    """Those that lead to a thread, and those that the context is looked up in."""
    with database("sqlite", tmp_path, migrate=False) as alias:
        context = {"CONTEXT": {"team": "talk__team__name"}}
        with override_settings(HOLDFAST={"DATABASE": alias, **context}):
            told = [message.msg for message in run_checks() if message.id == "holdfast.E007"]
    assert sorted(each.split()[0] for each in told) == [
        f"talk.{name}" for name in ("Bookmark", "Note", "Report", "Talk", "Team")
    ]


def test_routers_choose_where_tables_are(tmp_path: Any) -> None:
    class Router:
        def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
            return False if app_label in ("holdfast", "talk") else None

    with override_settings(DATABASE_ROUTERS=[Router()]), database("sqlite", tmp_path) as alias:
        tables = connections[alias].introspection.table_names()
    assert ([table for table in tables if "holdfast" in table], "auth_user" in tables) == ([], True)


# --- context


def test_migrations_are_told_of_the_applications_own_fields(corner: Corner) -> None:
    from talk.state import Ticket, WithTeam

    settings = {"NAMESPACE": corner.namespace, "CONTEXT": {"team": "talk__team__name", "title": "talk__title"}}
    with override_settings(HOLDFAST=settings):
        team = Team.objects.using(corner.alias).create(name="hardware")
        talk = Talk.objects.using(corner.alias).create(team=team, title="Printer")
        put(DjangoCheckpointer(using=corner.alias), talk.thread.thread, {"ticket": Ticket(subject="fire")})
        put(DjangoCheckpointer(using=corner.alias), "nobody's", {"ticket": Ticket(subject="fire")})
        saver = DjangoCheckpointer(using=corner.alias)
        saver.serde._use(  # type: ignore[attr-defined]
            type(saver.serde._types)(saver.serde.classes, MigrationRegistry(migrations=[WithTeam]), strict=False)  # type: ignore[attr-defined]
        )
        read = {
            info.thread: saver.get_tuple(config_of(info.thread)).checkpoint["channel_values"]["ticket"]  # type: ignore[union-attr]
            for info in saver.threads()
        }
    assert {
        talk.thread.thread: Ticket(subject="fire hardware Printer"),
        "nobody's": Ticket(subject="fire None None"),
    } == read


def test_migrations_are_base_migrations() -> None:
    from talk.state import WithTeam

    assert issubclass(WithTeam, BaseMigration)
    assert isinstance(DjangoCheckpointer().serde, CheckpointSerializer)
