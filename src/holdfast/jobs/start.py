"""`holdfast.job(…)` and `holdfast.worker(…)`: how a job is started."""

from typing import Any, get_args

from pydantic import BaseModel

from holdfast.jobs.configs import canonical, hash_of
from holdfast.jobs.lock import SECONDS, check_seconds
from holdfast.jobs.models import Checkpoint
from holdfast.jobs.resuming import OnMismatch, Settings
from holdfast.jobs.shared import SharedJob
from holdfast.jobs.store import JobStore
from holdfast.jobs.tracker import Job

EVERY, KEPT, PAUSE = 100, 3, 10.0


def job(
    name: str,
    *,
    store: JobStore[Any] | str,
    config: Any = None,
    state: BaseModel | None = None,
    every: int = EVERY,
    seconds: float = PAUSE,
    keep_last: int = KEPT,
    resume: bool = True,
    on_mismatch: OnMismatch = "error",
    skip_damaged: bool = False,
    wait: float | None = 0,
    lease: float = SECONDS,
    holder: str | None = None,
    progress: bool | None = None,
) -> Job:
    """A job that goes on where it stopped: `with holdfast.job("extract", store=url, config=settings) as job:`.

    `store` is a `JobStore`, or a URL, of which the last `keep_last` checkpoints are kept. A save is due after `every`
    items or so many `seconds`, at the end, and when the process is told to end. `config` is whatever decides what comes
    out: if it is another one than that of the checkpoint, that is an error, unless `on_mismatch` says what else to do:
    "restart" or "continue". `state`, a Pydantic model, is saved and found again as `job.state`.

    One process at a time runs a job; another waits for as many seconds as `wait` says (None: as long as it takes), then
    gets `JobLocked`. `lease` is how long a process may be silent before it is taken for dead. `resume=False` begins
    anew. With `skip_damaged`, a checkpoint that is not what was saved is passed over with a warning.
    """
    if on_mismatch not in get_args(OnMismatch):
        msg = f"on_mismatch must be one of {', '.join(get_args(OnMismatch))}, not {on_mismatch!r}"
        raise ValueError(msg)
    given: object = state
    if given is not None and not isinstance(given, BaseModel):
        msg = f"state must be a Pydantic model, not a {type(given).__name__}; without one, job.state is a dict to fill"
        raise TypeError(msg)
    settings = Settings(
        state=state,
        **_configured(name, config, every, seconds),
        every=every,
        seconds=seconds,
        lease=lease,
        wait=wait,
        holder=holder,
        progress=progress,
        resume=resume,
        on_mismatch=on_mismatch,
        skip_damaged=skip_damaged,
    )
    home = _home(store, name, None if state is None else type(state), keep_last)
    return Job(home, settings, owns_store=not isinstance(store, JobStore))


def worker(
    name: str,
    *,
    store: JobStore[Any] | str,
    config: Any = None,
    every: int = EVERY,
    seconds: float = PAUSE,
    keep_last: int = KEPT,
    lease: float = SECONDS,
    holder: str | None = None,
    progress: bool | None = None,
) -> SharedJob:
    """One of several workers that share a job: `with holdfast.worker("extract", store=url, config=settings) as job:`.

    Each gets other items of `job.track(items)`, at most `every` at a time, and what all of them add is put together. A
    worker that is silent for as long as `lease` says is taken for dead, and its items are done by the others.
    """
    check_seconds(lease)
    settings = Settings(
        state=None,
        **_configured(name, config, every, seconds),
        every=every,
        seconds=seconds,
        lease=lease,
        wait=0,
        holder=holder,
        progress=progress,
        resume=True,
        on_mismatch="error",
        skip_damaged=False,
    )
    return SharedJob(_home(store, name, None, keep_last), settings, owns_store=not isinstance(store, JobStore))


def _configured(name: str, config: Any, every: int, seconds: float) -> dict[str, Any]:
    if name == "":
        msg = "a job needs a name"
        raise ValueError(msg)
    if every < 1:
        msg = f"every must be 1 at least, not {every}"
        raise ValueError(msg)
    if not seconds >= 0:
        msg = f"seconds must be 0 at least, not {seconds}"
        raise ValueError(msg)
    made = canonical(config)
    return {"config": made, "config_hash": "" if config is None else hash_of(made)}


def _home(store: JobStore[Any] | str, name: str, model: type[BaseModel] | None, keep_last: int) -> JobStore[Any]:
    if isinstance(store, JobStore):
        return store.sibling(name, model or Checkpoint)
    return JobStore[Any](store, job=name, model=model or Checkpoint, keep_last=keep_last)
