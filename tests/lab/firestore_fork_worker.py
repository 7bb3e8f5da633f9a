"""A process that uses a saver on Firestore, forks, and goes on with the same saver on both sides."""

import asyncio
import sys
import threading

from faultlab import put, receipt, some_values
from fork_worker import in_child, put_one, wait
from worker import say

import holdfast
from holdfast.errors import StoreError
from lab import config_of


def use(saver: holdfast.Saver, name: str) -> None:
    """Puts and reads on a thread of our own and on one that all sides use."""
    own = config_of(name)
    for step in range(3):
        values = some_values(step, name)
        own = put(saver, own, values, step)
        say(**receipt(own, values))
        say(**receipt(put(saver, config_of("shared"), values, step), values))
    assert saver.get_tuple(own)


def generations(saver: holdfast.Saver) -> None:
    """A child, and a child of it."""

    def child() -> None:
        use(saver, "child")
        in_child(lambda: use(saver, "grandchild"))
        wait()

    in_child(child)
    use(saver, "parent")


def busy(saver: holdfast.Saver) -> None:
    """Forks while other threads are in the middle of calls."""
    done = threading.Event()

    def go_on(number: int) -> None:
        while not done.is_set():
            put_one(saver, f"thread {number}")

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(4):
        in_child(lambda number=number: put_one(saver, f"busy {number}"))  # type: ignore[misc]
    done.set()
    for thread in threads:
        thread.join()


def after_a_loop(saver: holdfast.Saver) -> None:
    """gRPC's asyncio has a thread that a child lacks: there, every call is an error, and none waits for ever."""
    asyncio.run(saver.aget_tuple(config_of("shared")))

    def child() -> None:
        try:
            saver.get_tuple(config_of("shared"))
        except StoreError as error:
            assert "forked" in str(error)  # noqa: PT017
        else:
            raise AssertionError

    in_child(child)


CASES = {"generations": generations, "busy": busy, "after a loop": after_a_loop}


def main(url: str, *cases: str) -> None:
    """Fork as each case says, between a use before it and the end."""
    saver = holdfast.Saver(url)
    use(saver, "before")
    for case in cases:
        CASES[case](saver)
        wait()
    saver.close()
    say(op="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
