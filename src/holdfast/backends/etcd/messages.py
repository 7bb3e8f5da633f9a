"""The few messages of etcd's API that are needed, for protobuf's own runtime, without generated code.

They live in a pool of their own, so that whatever else in the process speaks to etcd may register the same names. Only
numbers and types of fields go over the wire; the names here are ours.
"""

from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "holdfast.etcd"
_SCALARS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int": FieldDescriptorProto.TYPE_INT64,
    "text": FieldDescriptorProto.TYPE_STRING,
}
# Enumerations travel as plain numbers. A trailing "*" is a list.
_FIELDS = {
    "Header": {"revision": (3, "int")},
    "KeyValue": {
        "key": (1, "bytes"),
        "create_revision": (2, "int"),
        "mod_revision": (3, "int"),
        "version": (4, "int"),
        "value": (5, "bytes"),
        "lease": (6, "int"),
    },
    "Range": {
        "key": (1, "bytes"),
        "range_end": (2, "bytes"),
        "limit": (3, "int"),
        "revision": (4, "int"),
        "keys_only": (8, "bool"),
        "count_only": (9, "bool"),
    },
    "Ranged": {"kvs": (2, "KeyValue*"), "more": (3, "bool"), "count": (4, "int")},
    "Put": {"key": (1, "bytes"), "value": (2, "bytes"), "lease": (3, "int")},
    "Delete": {"key": (1, "bytes"), "range_end": (2, "bytes")},
    "Operation": {"range": (1, "Range"), "put": (2, "Put"), "delete": (3, "Delete"), "txn": (4, "Txn")},
    "Outcome": {"range": (1, "Ranged"), "txn": (4, "TxnReply")},
    "Compare": {
        "result": (1, "int"),
        "target": (2, "int"),
        "key": (3, "bytes"),
        "version": (4, "int"),
        "create_revision": (5, "int"),
        "mod_revision": (6, "int"),
        "value": (7, "bytes"),
        "lease": (8, "int"),
        "range_end": (64, "bytes"),
    },
    "Txn": {"compare": (1, "Compare*"), "success": (2, "Operation*"), "failure": (3, "Operation*")},
    "TxnReply": {"header": (1, "Header"), "succeeded": (2, "bool"), "responses": (3, "Outcome*")},
    "Grant": {"ttl": (1, "int")},
    "Granted": {"lease": (2, "int")},
    "KeepAlive": {"lease": (1, "int")},
    "KeptAlive": {"ttl": (3, "int")},
    "Authenticate": {"name": (1, "text"), "password": (2, "text")},
    "Authenticated": {"token": (2, "text")},
}


def _described() -> FileDescriptorProto:
    file = FileDescriptorProto(name="holdfast/etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message: DescriptorProto = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            described = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind.endswith("*"):
                described.label = FieldDescriptorProto.LABEL_REPEATED
            if kind in _SCALARS:
                described.type = _SCALARS[kind]
            else:
                described.type = FieldDescriptorProto.TYPE_MESSAGE
                described.type_name = f".{_PACKAGE}.{kind.rstrip('*')}"
    return file


_pool = DescriptorPool()
_pool.Add(_described())


def _class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


KeyValue: Final = _class("KeyValue")
Range: Final = _class("Range")
Put: Final = _class("Put")
Delete: Final = _class("Delete")
Operation: Final = _class("Operation")
Compare: Final = _class("Compare")
Txn: Final = _class("Txn")
TxnReply: Final = _class("TxnReply")
Grant: Final = _class("Grant")
Granted: Final = _class("Granted")
KeepAlive: Final = _class("KeepAlive")
KeptAlive: Final = _class("KeptAlive")
Authenticate: Final = _class("Authenticate")
Authenticated: Final = _class("Authenticated")
