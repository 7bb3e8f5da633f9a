"""Two codecs, one meaning: both carry the same tree, with the same names, versions and shapes."""

from collections import deque
from typing import Any

import serde_models as models
import serde_values as gen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from sameness import difference

from holdfast.serde import CheckpointContext, CheckpointSerializer, ClassRegistry, MigrationRegistry, Typed
from holdfast.serde.migrations import BaseMigration
from holdfast.serde.shapes import fingerprint

Data = dict[str, Any]

PLACE = CheckpointContext()


class First(BaseMigration):
    """Is there to have a number."""

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> tuple[Data, str]:  # noqa: ARG002
        return data, type_hint


def serializers(**options: Any) -> list[CheckpointSerializer]:
    return [CheckpointSerializer(codec="msgpack", **options), CheckpointSerializer(codec="json", **options)]


def trees(serializers: list[CheckpointSerializer], value: Any) -> list[Any]:
    packed, readable = serializers
    return [
        packed._unpacker(PLACE).tree(packed.dumps_clear(value)[1]),
        readable._reader(PLACE).tree(readable.dumps_clear(value)[1]),
    ]


def plain(tree: Any) -> Any:
    """A tree in which each node is a tuple of all that was stored of it."""
    match tree:
        case Typed():
            given = None if tree.given is None else list(tree.given)
            return ("typed", tree.name, tree.version, tree.shape, given, plain(tree.data), plain(tree.rest))
        case dict():
            return (type(tree).__name__, [(plain(key), plain(item)) for key, item in tree.items()])
        case set() | frozenset():
            return (type(tree).__name__, sorted((plain(item) for item in tree), key=repr))
        case list() | tuple() | deque():
            return (type(tree).__name__, [plain(item) for item in tree])
        case slice():
            return ("slice", plain(tree.start), plain(tree.stop), plain(tree.step))
    return tree


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(gen.values | st.lists(gen.messages(gen.leaves), max_size=4))
def test_both_codecs_carry_the_same_tree(value: Any) -> None:
    """Whatever the value is."""
    packed, readable = trees(serializers(), value)
    assert difference(plain(packed), plain(readable)) is None


def test_a_node_says_what_it_was() -> None:
    """Its stable name, the number of the newest migration, the class's shape, and what was given."""
    classes = ClassRegistry()
    classes.register(models.Leaf, "leaf")
    both = serializers(classes=classes, migrations=MigrationRegistry(migrations=[First]))
    value = [models.Leaf(name="a"), models.Point(models.Leaf(name="a", value=1))]
    expected = [
        ("typed", "leaf", 1, fingerprint(models.Leaf), ["name"], ("dict", [("name", "a"), ("value", None)]), None),
        ("typed", "leaf", 1, fingerprint(models.Leaf), None, ("dict", [("name", "a"), ("value", 1)]), None),
    ]
    for tree in trees(both, value):
        assert plain(tree[0]) == expected[0]
        assert (tree[1].name, tree[1].version) == ("serde_models:Point", 1)
        assert plain(tree[1].data["x"]) == expected[1]


def test_a_run_is_a_list_of_nodes() -> None:
    """Migrations see no difference between one message and many."""
    packed, readable = serializers()
    messages = [HumanMessage("a"), HumanMessage("b", id="1")]
    alone = [plain(trees([packed, readable], message)[0]) for message in messages]
    for tree in trees([packed, readable], messages):
        assert [plain(node) for node in tree] == alone
