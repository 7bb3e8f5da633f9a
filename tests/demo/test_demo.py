"""The demo does what it says, on a folder of its own, any number of times."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import holdfast

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
EVENTS_OF_FIRST_LIFE = 2 * 7 + 2 * 6 + 1


def run_demo(cwd: Path, folder: str) -> str:
    command = [sys.executable, str(DEMO), "--folder", folder]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two runs over one folder leave behind, the folder named relatively, then absolutely."""
    cwd = tmp_path_factory.mktemp("demo")
    for folder in ("kept here", str(cwd / "kept here")):
        output = run_demo(cwd, folder)
        steps = re.findall(r"^ {1,3}(\d+)  \w+ +(.+)$", output, re.MULTILINE)
        expected = [(str(n), "read") for n in range(1, 13)]
        expected.insert(6, ("7", "killed with SIGKILL while reading"))
        assert expected == steps
        assert "6 sources are in the thread already" in output
        assert "12, each finished once" in output
        assert "13, each made once" in output
    assert [path.name for path in cwd.iterdir()] == ["kept here"]
    return cwd / "kept here"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_leaves_one_thread_that_can_be_looked_at(kept: Path) -> None:
    with holdfast.Saver(f"sqlite:///{kept}/agent.db") as saver:
        assert [(thread.thread, thread.checkpoints) for thread in saver.threads()] == [("kelp", 27)]


@pytest.mark.parametrize("extra", ["finish source drag", "begin model 1", "finish source unheard-of"])
def test_demo_fails_when_a_step_ran_twice(kept: Path, demo: ModuleType, tmp_path: Path, extra: str) -> None:
    """What the demo prints is checked: one line too many in the journal fails it."""
    folder = tmp_path / "copy"
    shutil.copytree(kept, folder)
    before = demo.Journal(folder).events()[:EVENTS_OF_FIRST_LIFE]
    demo.check(folder, before)
    with (folder / "journal.txt").open("a") as journal:
        journal.write(extra + "\n")
    with pytest.raises(demo.Failed):
        demo.check(folder, before)


def test_demo_fails_when_it_resumed_elsewhere(kept: Path, demo: ModuleType) -> None:
    with pytest.raises(demo.Failed, match="it went on with"):
        demo.check(kept, demo.Journal(kept).events()[:1])
