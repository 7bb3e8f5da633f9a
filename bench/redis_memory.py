"""How much of a Redis server's memory a checkpoint takes, by MEMORY USAGE of every key.

    python bench/redis_memory.py redis://127.0.0.1:6379/0 --turns 200

A chat that grows by two messages of 200 characters each turn, three checkpoints and four pending writes a turn, as
LangGraph makes them. Removed again at the end.
"""

import argparse
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint

import holdfast
from holdfast.backends.redis.names import INDEX_KEYS, THREAD_KEYS, Names

_KINDS = {
    b"t": "the thread", b"r": "rows", b"s": "segments", b"w": "writes", b"d": "names of writes", b"i": "rows by id",
    b"n": "rows by namespace", b"rows": "index of rows", b"labels": "index of metadata", b"threads": "index of threads",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a server that may be written to")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    namespace = f"bench-{uuid4().hex}"
    with holdfast.Saver(options.url, namespace=namespace) as saver, closing(_client(options.url)) as client:
        thread = str(uuid4())
        payload = chat(saver, thread, options.turns)
        taken = usage(client, namespace, thread)
        saver.delete_thread(thread)
    checkpoints = 3 * options.turns
    figures = {"a checkpoint": round(sum(taken.values()) / checkpoints), "of it text": round(payload / checkpoints)}
    figures |= {kind: round(bytes_ / checkpoints) for kind, bytes_ in taken.items()}
    print(
        json.dumps(figures) if options.json else "\n".join(f"{what:18} {count:8,}" for what, count in figures.items())
    )


def chat(saver: holdfast.Saver, thread: str, turns: int) -> int:
    """Put what a chat of so many turns puts; how many characters its messages have in all."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    messages: list[Any] = []
    for turn in range(turns):
        for step, message in enumerate((HumanMessage("h" * 200), None, AIMessage("a" * 200))):
            messages = [*messages, message] if message else messages
            checkpoint: Checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": messages, "branch:to:model": None}
            checkpoint["channel_versions"] = {
                "messages": f"{3 * turn + step:032}.1",
                "branch:to:model": f"{turn:032}.1",
            }
            metadata: Any = {"source": "loop", "step": 3 * turn + step, "parents": {}, "run_id": str(uuid4())}
            config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
            if step:
                writes = [("messages", message or messages[-1]), ("branch:to:model", None)]
                saver.put_writes(config, writes, str(uuid4()))
    return sum(len(message.content) for message in messages)


def usage(client: Any, namespace: str, thread: str) -> dict[str, int]:
    """Bytes by kind of key."""
    names = Names(namespace)
    keys = [*zip(THREAD_KEYS, names.place(thread).keys, strict=True), *zip(INDEX_KEYS, names.index, strict=True)]
    # All elements are looked at, not a sample of five.
    return {_KINDS[what]: taken for what, key in keys if (taken := client.memory_usage(key, samples=0))}


def _client(url: str) -> Any:
    return redis.Redis.from_url(urlsplit(url)._replace(query="").geturl())


if __name__ == "__main__":
    main()
