"""A process that stores generic models, or reads them in a process that has never named their arguments."""

import datetime as dt
import decimal
import sys
import uuid
from pathlib import Path
from typing import Any

import ormsgpack
import serde_models as models

from holdfast.serde import CheckpointSerializer


def stored() -> list[tuple[str, bytes]]:
    leaf = models.Leaf(name="x")
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    values = [
        models.Box[int](value=1),
        models.Box[str | None](value=None),
        models.Box[models.Leaf](value=leaf),
        models.Box[list[models.Leaf]](value=[leaf]),
        models.Box[dict[str, tuple[int, ...]]](value={"a": (1, 2)}),
        models.Box[models.Box[models.Color]](value=models.Box[models.Color](value=models.Color.RED)),
        models.TwoBoxes[models.Point, Any](one=models.Point(1), two=leaf),
        models.Box[dt.datetime](value=moment),
        models.Box[uuid.UUID](value=uuid.UUID(int=5)),
        models.Box[decimal.Decimal](value=decimal.Decimal("1.50")),
        models.IntBox(value=3),
        models.GenericPoint[int](3),
    ]
    both = (CheckpointSerializer(), CheckpointSerializer(codec="json"))
    return [serializer.dumps_typed(value) for serializer in both for value in values]


def main(path: Path) -> None:
    if not path.exists():
        path.write_bytes(ormsgpack.packb(stored()))
        return
    serializer = CheckpointSerializer()
    for tag, data in ormsgpack.unpackb(path.read_bytes()):
        sys.stdout.write(f"{serializer.loads_typed((tag, data))!r}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
