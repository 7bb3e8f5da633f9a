"""Makes the golden files of stored forms that have none yet. One that is there is never written again.

    PYTHONPATH=tests/lab python tests/golden/make.py

Run it after adding a form to `tests/lab/serde_golden.py`. A file that can no longer be read is a broken promise to
everybody who has such data; it is mended in the code, not here.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import serde_golden

FOLDER = Path(__file__).parent / "serde"
INDEX = FOLDER / "index.json"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    index: dict[str, Any] = json.loads(INDEX.read_text()) if INDEX.exists() else {}
    kept = {path.stem for path in FOLDER.glob("*.bin")}
    if kept != set(index):
        sys.exit(f"files and index don't agree: {sorted(kept ^ set(index))}")
    for name, value, (tag, data) in (*serde_golden.forms(), *serde_golden.placeholders()):
        if name in kept:
            continue
        with (FOLDER / f"{name}.bin").open("xb") as file:
            file.write(data)
        index[name] = {"tag": tag, "value": value, "sha256": hashlib.sha256(data).hexdigest()}
        sys.stdout.write(f"made {name}\n")
    INDEX.write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
