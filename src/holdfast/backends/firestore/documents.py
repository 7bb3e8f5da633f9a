"""Records as documents, and back.

Each document has its content in one map, `data`, so that one exemption keeps all of it out of Firestore's indexes.
What is searched by lies beside it: `t`, a digest of the thread; of rows `n`, of thread and namespace, and `labels`; of
writes `of`, of the checkpoint that they belong to.

| collection | document | data |
|---|---|---|
| heads | a thread | thread, born, revision, rows, latest, made |
| rows | a checkpoint | thread, ns, id, parent, refs, settled, meta, body, born |
| segments | a change to a value | log, seq, data, size, born, token |
| writes | a pending write, or a part of one | ns, id, task, idx, part, channel, path, value, born, token |
| graves | a thread that was deleted and whose documents may still be there | thread |

`born` names the life of a thread. What is of another life than its head is not there, whoever may find it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.cloud.firestore_v1.types import document, firestore, query, write

from holdfast.backends.firestore.names import digest, row_name, segment_name, thread_name, write_name
from holdfast.backends.packing import pack_refs, row_of
from holdfast.engine.records import Key, Row, Segment, Write

Value: Any = document.Value.pb()
PbWrite: Any = write.Write.pb()
_BatchGet: Any = firestore.BatchGetDocumentsRequest.pb()
_RunQuery: Any = firestore.RunQueryRequest.pb()
_Operator: Any = query.StructuredQuery.FieldFilter.Operator
_SIMPLE = re.compile(r"[A-Za-z0-9_-]{0,200}")
_TOKEN = 12
_TOKENS = 16

Scalar = str | bytes | int | None
Wanted = tuple[str, str | Sequence[str]]
"""A field, and the value that it must have, or one of these."""


class Head(NamedTuple):
    """What is known of a thread: which life it is in, how many rows it has, the greatest id of any.

    `made` has the tokens of the last changes: one that is tried again finds itself there.
    """

    thread: str
    born: str
    revision: int
    rows: int = 0
    latest: str = ""
    made: bytes = b""

    def has_made(self, token: bytes) -> bool:
        """Whether a change is among the last."""
        return token in (self.made[at : at + _TOKEN] for at in range(0, len(self.made), _TOKEN))

    def after(self, token: bytes) -> "Head":
        """The same, once a change was made."""
        return self._replace(revision=self.revision + 1, made=(token + self.made)[: _TOKEN * _TOKENS])


class Places:
    """Where the documents of one application lie, and what is asked and written there."""

    def __init__(self, root: str, collection: str, namespace: str) -> None:
        self.root = root
        own = f"n-{namespace}" if _SIMPLE.fullmatch(namespace) else digest(namespace)
        self.home = f"{root}/documents/{collection}/{own}"
        self._collection = collection

    def kind(self, kind: str) -> str:
        """The id of a collection: of its own kind only, since exemptions from indexes go by it."""
        return f"{self._collection}-{kind}"

    def path(self, kind: str, name: str) -> str:
        """The full name of a document."""
        return f"{self.home}/{self.kind(kind)}/{name}"

    def head(self, thread: str) -> str:
        """The full name of a thread's head."""
        return self.path("heads", thread_name(thread))

    def row(self, key: Key) -> str:
        """The full name of a row."""
        return self.path("rows", row_name(key))

    def segment(self, thread: str, log: str, seq: int) -> str:
        """The full name of a segment."""
        return self.path("segments", segment_name(thread, log, seq))

    def write(self, write: Write, token: str) -> str:
        """The full name of a write. Parts but the first are named for their change too, and part 0 tells which."""
        name = write_name(write.key, write.task, write.idx)
        return self.path("writes", f"{name}.{token}.{write.part}" if write.part else name)

    def get(self, names: Iterable[str], fields: Sequence[str] = ()) -> Any:
        """A request for documents by their full names."""
        request = _BatchGet(database=self.root, documents=names)
        if fields:
            request.mask.field_paths.extend(fields)
        return request

    def query(
        self,
        kind: str,
        wanted: Wanted | None = None,
        fields: Iterable[str] = (),
        *,
        start: str = "",
        limit: int | None = None,
    ) -> Any:
        """A request for documents in the order of their names, from one name on, that have one value of several."""
        request = _RunQuery(parent=self.home)
        asked = request.structured_query
        asked.from_.add(collection_id=self.kind(kind))
        for field in fields:
            asked.select.fields.add(field_path=field)
        if wanted is not None:
            field, values = wanted
            condition = asked.where.field_filter
            condition.field.field_path = field
            if isinstance(values, str):
                condition.op = _Operator.EQUAL
                condition.value.string_value = values
            else:
                condition.op = _Operator.ARRAY_CONTAINS_ANY if field == "labels" else _Operator.IN
                condition.value.array_value.values.extend(Value(string_value=value) for value in values)
        asked.order_by.add(direction=1).field.field_path = "__name__"
        if start:
            asked.start_at.before = True
            asked.start_at.values.add(reference_value=self.path(kind, start))
        if limit is not None:
            asked.limit.value = limit
        return request

    # Documents to be written.

    def head_write(self, head: Head) -> Any:
        """A thread's head; on no condition, since the transaction that writes it has read it."""
        return _set(self.head(head.thread), {}, head._asdict())

    def row_write(self, row: Row, born: str, *, keep_settled: bool) -> Any:
        """A row, with what is settled for it as it is, if that is to be kept."""
        key = row.key
        data: dict[str, Scalar] = {
            **key._asdict(),
            "parent": row.parent,
            "refs": pack_refs(row.refs),
            "settled": pack_refs(row.settled) if row.settled else b"",
            "meta": row.meta,
            "body": row.body,
            "born": born,
        }
        beside: dict[str, str | list[str]] = {"t": digest(key.thread), "n": digest(key.thread, key.ns)}
        beside["labels"] = label_texts(row.labels)
        if not keep_settled:
            return _set(self.row(key), beside, data)
        del data["settled"]
        return _set(self.row(key), beside, data, mask=[*beside, *(f"data.{field}" for field in data)])

    def segment_write(self, thread: str, segment: Segment, born: str, token: str) -> Any:
        """A segment."""
        data: dict[str, Scalar] = {**segment._asdict(), "size": len(segment.data), "born": born, "token": token}
        return _set(self.segment(thread, segment.log, segment.seq), {"t": digest(thread)}, data)

    def write_write(self, one: Write, born: str, token: str) -> Any:
        """A pending write, or a part of one."""
        key = one.key
        data: dict[str, Scalar] = {**one._asdict(), "ns": key.ns, "id": key.id, "born": born, "token": token}
        del data["key"]
        return _set(self.write(one, token), {"t": digest(key.thread), "of": digest(*key)}, data)

    def grave_write(self, thread: str, born: str) -> Any:
        """The grave of a thread."""
        return _set(self.path("graves", born), {}, {"thread": thread})

    def update(self, name: str, beside: Mapping[str, list[str]], data: Mapping[str, Scalar]) -> Any:
        """Some fields of a document that is there."""
        made = _set(name, beside, data, mask=[*beside, *(f"data.{field}" for field in data)])
        made.current_document.exists = True
        return made


def delete(found: Any, *, unchanged: bool = False) -> Any:
    """Delete a document that was found; `unchanged`: unless it is another one by now."""
    made = PbWrite(delete=found.name)
    if unchanged:
        made.current_document.update_time.CopyFrom(found.update_time)
    return made


def label_texts(labels: Iterable[int]) -> list[str]:
    """Labels as they are stored: emulators lose digits of numbers as large as these."""
    return [f"{label & 0xFFFF_FFFF_FFFF_FFFF:016x}" for label in labels]


def data_of(found: Any) -> Any:
    """The content of a document, by the names of its fields."""
    return found.fields["data"].map_value.fields


def head_of(found: Any) -> Head:
    """A head."""
    data = data_of(found)
    return Head(
        data["thread"].string_value,
        data["born"].string_value,
        data["revision"].integer_value,
        data["rows"].integer_value,
        data["latest"].string_value,
        data["made"].bytes_value,
    )


def key_of(found: Any) -> Key:
    """The key of a row."""
    data = data_of(found)
    return Key(data["thread"].string_value, data["ns"].string_value, data["id"].string_value)


def row_from(found: Any) -> Row:
    """A row; without a body if that was not asked for."""
    data = data_of(found)
    parent = data["parent"].string_value if data["parent"].HasField("string_value") else None
    refs, settled = data["refs"].bytes_value, data["settled"].bytes_value
    return row_of(key_of(found), parent, refs, settled, meta=data["meta"].bytes_value, body=data["body"].bytes_value)


def labels_of(found: Any) -> set[str]:
    """The labels of a row."""
    return {value.string_value for value in found.fields["labels"].array_value.values}


def write_from(thread: str, found: Any) -> Write:
    """A pending write, or a part of one."""
    data = data_of(found)
    return Write(
        Key(thread, data["ns"].string_value, data["id"].string_value),
        data["task"].string_value,
        data["idx"].integer_value,
        data["channel"].string_value,
        data["path"].string_value,
        data["value"].bytes_value,
        data["part"].integer_value,
    )


def _set(name: str, beside: Mapping[str, str | list[str]], data: Mapping[str, Scalar], mask: Sequence[str] = ()) -> Any:
    made = PbWrite()
    made.update.name = name
    fields = made.update.fields
    for field, value in beside.items():
        if isinstance(value, str):
            fields[field].string_value = value
        else:
            fields[field].array_value.SetInParent()
            fields[field].array_value.values.extend(Value(string_value=one) for one in value)
    inner = fields["data"].map_value.fields
    for field, content in data.items():
        match content:
            case str():
                inner[field].string_value = content
            case bytes():
                inner[field].bytes_value = content
            case int():
                inner[field].integer_value = content
            case None:
                inner[field].null_value = 0
    if mask:
        made.update_mask.field_paths.extend(mask)
    return made
