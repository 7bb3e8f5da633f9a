"""A process that writes to a store on orders from its stdin, and acknowledges on stdout all that it stored."""

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

import texts
from faultlab import checkpoint_of, digest, put, receipt, some_values

import holdfast
from holdfast.errors import StoreError, ThreadDeleted
from lab import config_of, id_in


def say(**what: Any) -> None:
    """One write call a line: shorter than a pipe's atomic unit, so never torn by a kill."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Story:
    """What happens to one thread: it grows, is edited, branches off, gets writes, and is pruned now and then."""

    def __init__(self, saver: holdfast.Saver, thread: str, seed: int) -> None:
        self.saver = saver
        self.thread = thread
        self.random = random.Random(f"{thread} {seed}")
        self.values: dict[str, Any] = {}
        self.ids: list[str] = []
        self.step = 0

    async def resume(self) -> None:
        """Go on from whatever the last run left, and own up to it."""
        found = await self.saver.aget_tuple(config_of(self.thread))
        if found:
            self.values = dict(found.checkpoint["channel_values"])
            self.step = int(found.metadata["step"]) + 1
            self.ids = [id_in(found.config)]
            say(op="found", thread=self.thread, id=self.ids[0], digest=digest(self.values))

    async def go_on(self) -> None:
        roll = self.random.random()
        if roll < 0.03 and self.ids:
            say(op="pruning", thread=self.thread)
            await self.saver.aprune([self.thread])
            self.ids = [max(self.ids)]
            say(op="pruned", thread=self.thread)
        elif roll < 0.35 and self.ids:
            await self._write(self.random.choice(self.ids[-3:]))
        else:
            # Now and then the next one branches off an older checkpoint.
            parent = (self.random.choice(self.ids) if roll > 0.9 else self.ids[-1]) if self.ids else None
            await self._put(parent)

    async def _write(self, id: str) -> None:
        task = f"task {self.random.randrange(10**9)}"
        count = self.random.randint(1, 4)
        writes = [("messages", {"of": count, "text": "w" * self.random.randrange(900)}) for _ in range(count)]
        await self.saver.aput_writes(config_of(self.thread, id), writes, task)
        say(op="writes", thread=self.thread, id=id, task=task)

    async def _put(self, parent: str | None) -> None:
        self._change()
        checkpoint, metadata = checkpoint_of(self.values, self.step)
        config = config_of(self.thread, parent)
        stored = await self.saver.aput(config, checkpoint, metadata, checkpoint["channel_versions"])
        self.step += 1
        self.ids.append(id_in(stored))
        say(**receipt(stored, self.values))

    def _change(self) -> None:
        messages = list(self.values.get("messages", ()))
        state = dict(self.values.get("state", {}))
        messages.append({"n": self.step, "text": "m" * self.random.randrange(1500)})
        if self.random.random() < 0.2:
            messages[-1 - len(messages) // 4] = {"edited": self.step}
        if len(messages) > 80:
            del messages[:40]
        state[f"key {self.random.randrange(60)}"] = "s" * self.random.randrange(300)
        if self.random.random() < 0.1:
            del state[self.random.choice(list(state))]
        self.values = {"messages": messages, "state": state, "step": self.step}


class BlockingSaver:
    """The sync half of a saver under the names of the async one, so that one story tests both."""

    def __init__(self, saver: holdfast.Saver) -> None:
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._saver, name.removeprefix("a"))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call


async def write_on(url: str, seed: int, *, tasks: int, blocking: bool) -> None:
    """Write until somebody ends this process."""
    saver: Any = holdfast.Saver(url)
    stories = [Story(BlockingSaver(saver) if blocking else saver, f"thread {n}", seed) for n in range(tasks)]  # type: ignore[arg-type]
    await asyncio.gather(*(story.resume() for story in stories))

    async def forever(story: Story) -> None:
        while True:
            await story.go_on()

    if blocking:
        while True:
            for story in stories:
                await story.go_on()
    await asyncio.gather(*map(forever, stories))


def crash(url: str, seed: int, tasks: int, *, blocking: bool) -> None:
    """Fork a writer that is meant to be killed: it starts at once, everything is imported already."""
    writer = os.fork()
    if writer == 0:
        try:
            asyncio.run(write_on(url, seed, tasks=tasks, blocking=blocking))
        finally:
            os._exit(1)
    say(op="writer", pid=writer)
    _, status = os.waitpid(writer, 0)
    say(op="ended", signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def race(url: str, name: str, at: float) -> None:
    """Open a fresh file and store one checkpoint, at the same moment as others do."""
    while time.time() < at:
        pass
    try:
        with holdfast.Saver(url) as saver:
            values = some_values(2, name)
            stored = put(saver, config_of(name), values)
        say(**receipt(stored, values))
    except Exception as error:  # noqa: BLE001 - the test wants to see whatever it is
        say(op="failed", error=f"{type(error).__name__}: {error}")


def visit(url: str, name: str, rounds: int) -> None:
    """Open the file, use it and close it, over and over: whoever is the last one out takes an exclusive lock."""
    for step in range(rounds):
        race(url, f"{name}, {step}", 0)
    say(op="end")


def crowd(url: str, name: str, rounds: int) -> None:
    """Put, write and read on a thread of our own and on one that everybody uses."""
    said = []
    try:
        with holdfast.Saver(url) as saver:
            own = config_of(name)
            for step in range(rounds):
                for thread in [name, "everybody's"] if step % 4 == 0 else [name]:
                    parent = own if thread == name else config_of(thread)
                    if thread != name and (latest := saver.get_tuple(parent)):
                        parent = latest.config
                    values = some_values(step % 12, name)
                    stored = put(saver, parent, values, step)
                    said.append(receipt(stored, values))
                    task = f"{name} {step}"
                    saver.put_writes(stored, [("messages", {"of": 2}), ("state", {"of": 2})], task)
                    said.append({"op": "writes", "thread": thread, "id": id_in(stored), "task": task})
                    found = saver.get_tuple(stored)
                    assert found, "can't read back what was acknowledged"
                    assert digest(dict(found.checkpoint["channel_values"])) == digest(values)
                    own = stored if thread == name else own
    except Exception as error:  # noqa: BLE001 - the test wants to see whatever it is
        say(op="failed", error=f"{type(error).__name__}: {error}")
    for line in said:
        say(**line)
    say(op="end")


def rival(url: str, name: str, rounds: int) -> None:
    """Put on whatever is newest of a thread that others write to as well, and now and then prune or delete."""
    chance = random.Random(name)
    stored = 0
    with holdfast.Saver(url) as saver:
        for _ in range(rounds):
            try:
                latest = saver.get_tuple(config_of("a"))
                before = texts.texts_in(latest) if latest else []
                texts.put(saver, latest.config if latest else "a", *before[-20:], name, run_id=name)
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
    say(op="end", stored=stored)


def fill(url: str, rounds: int) -> None:
    """Put until it is done or something fails, then say what it was."""
    saver = holdfast.Saver(url)
    config = config_of("filled")
    try:
        for step in range(rounds):
            values = some_values(step + 1)
            config = put(saver, config, values, step)
            say(**receipt(config, values))
    except Exception as error:  # noqa: BLE001 - the test wants to see whatever it is
        say(op="failed", kind=type(error).__name__, error=str(error))
    else:
        say(op="end")


def become(user: int) -> None:
    """Go on as another user, with everything imported that this one might not be allowed to read."""
    with holdfast.Saver("sqlite:///:memory:") as saver:
        put(saver, config_of("a"), some_values(1))
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    say(op="became", user=os.geteuid())


def main() -> None:
    """Do what each line says."""
    orders: dict[str, Any] = {
        "crash": crash,
        "race": race,
        "visit": visit,
        "crowd": crowd,
        "rival": rival,
        "fill": fill,
        "become": become,
    }
    say(op="ready")
    for line in sys.stdin.buffer:
        order = json.loads(line)
        orders[order.pop("do")](**order)


if __name__ == "__main__":
    main()
