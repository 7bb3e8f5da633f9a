"""The schema lock as a test of an application's own suite."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

APP = """
from dataclasses import dataclass
from holdfast.serde import CheckpointSerializer, ClassRegistry

@dataclass
class Item:
    name: str
    price: float = 0.0

serde = CheckpointSerializer(classes=ClassRegistry(classes=[Item]))
"""
SERDE = 'holdfast_serde = "shop:serde"'
STRICT = ("-W", "error", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lock of the application, as the command makes it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(APP)
    command = "from holdfast.cli import main; main()"
    subprocess.run([sys.executable, "-c", command, "schema", "lock", "--serde", "shop:serde"], cwd=folder, check=True)
    return (folder / "holdfast.lock.json").read_text()


@pytest.fixture
def shop(pytester: pytest.Pytester, lock: str) -> pytest.Pytester:
    """An application with one test, that has been locked."""
    pytester.makepyfile(shop=APP, test_one="def test_one(): pass")
    (pytester.path / "holdfast.lock.json").write_text(lock)
    return pytester


def configure(shop: pytest.Pytester, *settings: str) -> None:
    shop.makepyprojecttoml("\n".join(["[tool.pytest.ini_options]", *settings]))


def run(shop: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A session with this plugin alone: the others that are installed take seconds to load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return shop.runpytest_subprocess(*STRICT, "-p", "holdfast.pytest_plugin", *arguments)


def test_it_passes_while_code_and_lock_fit(shop: pytest.Pytester) -> None:
    """The plugin comes with the package, and gets along with the others that are installed."""
    configure(shop, SERDE)
    found = shop.runpytest_subprocess(*STRICT, "-p", "no:asyncio", "-v")
    found.assert_outcomes(passed=2)
    found.stdout.fnmatch_lines(["holdfast schema PASSED*"])


def test_it_fails_with_the_differences(shop: pytest.Pytester) -> None:
    """The same as `holdfast schema check` prints, and no traceback."""
    configure(shop, SERDE)
    shop.makepyfile(shop=APP.replace("name: str", "title: str"))
    found = run(shop)
    found.assert_outcomes(passed=1, failed=1)
    checked = shop.run(
        sys.executable, "-c", "from holdfast.cli import main; main()", "schema", "check", "--serde", "shop:serde"
    )
    assert checked.ret == 1
    assert checked.outlines[0] == "Item"
    found.stdout.fnmatch_lines([line.replace("[", "[[]") for line in checked.outlines], consecutive=True)
    found.stdout.no_fnmatch_line("*Traceback*")
    found.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_the_option_goes_before_the_setting(shop: pytest.Pytester) -> None:
    configure(shop, 'holdfast_serde = "nowhere:serde"')
    run(shop, "--holdfast-serde", "shop:serde").assert_outcomes(passed=2)
    found = run(shop)
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["BadConfig: the serializer 'nowhere:serde' can't be loaded: ModuleNotFoundError*"])


def test_a_missing_lock_says_how_to_make_it(shop: pytest.Pytester) -> None:
    configure(shop, SERDE, 'holdfast_lock = "locks/shop.json"')
    found = run(shop)
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["BadConfig: there is no *locks/shop.json: make it with `holdfast schema lock`*"])


def test_an_outdated_lock_fails_where_that_is_asked_for(shop: pytest.Pytester) -> None:
    shop.makepyfile(shop=APP.replace("price: float = 0.0", "price: float | None = None"))
    configure(shop, SERDE)
    run(shop).assert_outcomes(passed=2)
    configure(shop, SERDE, "holdfast_exact = true")
    found = run(shop)
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["→ the lock is out of date: run holdfast schema lock and commit the file"])


def test_it_can_be_chosen_like_any_test(shop: pytest.Pytester) -> None:
    configure(shop, SERDE)
    run(shop, "-k", "schema").assert_outcomes(passed=1, deselected=1)
    run(shop, "-k", "not schema").assert_outcomes(passed=1, deselected=1)


def test_without_the_setting_nothing_is_added(shop: pytest.Pytester) -> None:
    run(shop).assert_outcomes(passed=1)


def test_a_session_without_it_imports_nothing() -> None:
    """The plugin is loaded by every session of everybody who has holdfast installed."""
    code = (
        "import sys, holdfast.pytest_plugin\nprint(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    )
    heavy = ["langgraph", "langchain_core", "pydantic", "hypothesis", "typer", "rich", "ormsgpack"]
    found = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
