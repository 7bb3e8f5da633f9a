"""A process that uses a saver on etcd, forks, and goes on with the same saver on both sides."""

import sys

import fork_worker
from fork_worker import busy, generations, use, wait, with_a_loop
from pg_fork_worker import inside_a_loop
from worker import say

import holdfast

fork_worker.ROUNDS = 4

CASES = {"generations": generations, "busy": busy, "async": with_a_loop, "inside a loop": inside_a_loop}


def main(url: str, *cases: str) -> None:
    """Fork as each case says, between a use before it and the end."""
    saver = holdfast.Saver(url)
    use(saver, "before")
    for case in cases:
        CASES[case](saver, url)  # type: ignore[operator]
        wait()
    saver.close()
    say(op="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
