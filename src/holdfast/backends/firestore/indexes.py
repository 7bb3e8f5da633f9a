"""What Firestore should not index, as the `firebase` command takes it.

No index has to be made: all that holdfast asks for is answered by those that Firestore makes of each field by itself.
These exemptions save what it would make in vain, of payloads and of orders that nobody asks for. Without them
everything works, and each write costs more time and storage than it has to.
"""

import json
from collections.abc import Mapping
from typing import Any

_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "heads": {"data": ()},
    "rows": {"data": (), "t": ("order",), "n": ("order",), "labels": ("contains",)},
    "segments": {"data": (), "t": ("order",)},
    "writes": {"data": (), "t": ("order",), "of": ("order",)},
    "graves": {"data": ()},
}
_INDEXES = {
    "order": {"order": "ASCENDING", "queryScope": "COLLECTION"},
    "contains": {"arrayConfig": "CONTAINS", "queryScope": "COLLECTION"},
}


def indexes(collection: str) -> str:
    """The content of `firestore.indexes.json` for a root collection."""
    overrides: list[dict[str, Any]] = [
        {
            "collectionGroup": f"{collection}-{kind}",
            "fieldPath": field,
            "ttl": False,
            "indexes": [_INDEXES[index] for index in kept],
        }
        for kind, fields in _FIELDS.items()
        for field, kept in fields.items()
    ]
    return json.dumps({"indexes": [], "fieldOverrides": overrides}, indent=2)
