"""Changes to a list and a dict, of every kind that a node might make."""

from typing import Any

from hypothesis import strategies as st

from holdfast.engine.logs import INLINE_LIMIT

Edit = tuple[str, int, Any]
"""Its kind, where, and a new element."""

TEXTS = st.builds(lambda n, long: f"{n} {'x' * (150 if long else 3)}", st.integers(0, 9), st.booleans())
ELEMENTS = st.one_of(TEXTS, st.integers(0, 5), st.booleans(), st.builds(lambda t: {"k": [t]}, TEXTS))
KINDS = (
    *("append", "append", "extend", "set", "pop", "trim", "insert", "clear", "reverse", "turn", "turn", "turn"),
    *("same", "many"),
)
"""Those named more than once come more often."""
EDITS: st.SearchStrategy[Edit] = st.tuples(st.sampled_from(KINDS), st.integers(0, 20), ELEMENTS)


def _turned(item: Any) -> Any:
    return {int: bool, bool: float, float: int}.get(type(item), lambda same: same)(item) if item in (0, 1) else item


def first_state() -> dict[str, Any]:
    """Enough of a list and a dict that neither sits inside a row, and that it is worth a look where else they are."""
    count = 2 * INLINE_LIMIT // 150 + 1
    return {"items": [f"{n} {'x' * 150}" for n in range(count)], "table": {f"k{n}": "x" * 150 for n in range(count)}}


def edit(state: dict[str, Any], kind: str, at: int, element: Any) -> None:
    """Change a list and a dict in place, as a node might."""
    items: list[Any] = state.setdefault("items", [])
    table: dict[Any, Any] = state.setdefault("table", {})
    at = at % (len(items) + 1)
    key = f"k{at}"
    if kind in ("append", "extend"):
        items.extend([element] * (3 if kind == "extend" else 1))
        table[f"k{len(table)}"] = element
    elif kind == "set":
        items[at : at + 1] = [element]
        table[key] = element
    elif kind == "pop":
        del items[at : at + 1]
        table.pop(key, None)
    elif kind == "trim":
        del items[:at]
        table[key] = table.pop(key, element)
    elif kind == "insert":
        items.insert(at, element)
        state["table"] = {key: element, **table}
    elif kind == "clear":
        items.clear()
        state["table"] = {}
    elif kind == "reverse":
        items.reverse()
        state["table"] = dict(reversed(table.items()))
    elif kind == "turn":
        # What is equal to Python, and another value to a reader.
        state["items"] = [_turned(item) for item in items]
        table["k0"] = 1 if table.get("k0") is True else True
    elif kind == "many":
        items.extend(range(at * 7))
        state["items"] = list(items)
