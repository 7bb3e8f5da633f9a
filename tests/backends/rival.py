"""A process that writes to a thread that others write to as well, until its input ends."""

import random
import sys

from sqlitelab import config_of, put

import holdfast
from holdfast.errors import StoreError, ThreadDeleted


def main(url: str, name: str, rounds: str) -> None:
    """Put on whatever is newest, look at it, and now and then prune or delete."""
    chance = random.Random(name)
    stored = 0
    with holdfast.Saver(url) as saver:
        print("ready", flush=True)  # noqa: T201 - its only way to speak
        sys.stdin.readline()
        for _ in range(int(rounds)):
            try:
                latest = saver.get_tuple(config_of("a"))
                texts = latest.checkpoint["channel_values"]["messages"][1:] if latest else []
                put(saver, latest.config if latest else "a", *texts[-20:], name, run_id=name)
                stored += 1
                roll = chance.random()
                if roll < 0.05:
                    saver.prune(["a"])
                elif roll < 0.1:
                    saver.delete_for_runs([name])
                elif roll < 0.12:
                    saver.delete_thread("a")
            except ThreadDeleted:
                continue
            except StoreError as error:
                if "changed" not in str(error):
                    raise
    print(stored, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
