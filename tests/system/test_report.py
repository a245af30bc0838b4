"""The page of `run.report`, as a browser shows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tempo as tp

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1000",
)
MOST_SECONDS = 2.0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that downloads nothing: both of its programs are those that are installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (the extra `test` has it)")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no Chromium with its chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield started
    started.quit()


def narrow(driver: Any, width: int) -> None:
    shown = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shown)


def opened(driver: Any, path: Path) -> float:
    """Open a page that must be right: the seconds until it is drawn."""
    for kind in ("browser", "performance"):
        driver.get_log(kind)  # what there was before
    driver.get(path.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    check_quiet(driver, path)
    timing = 'return performance.getEntriesByType("navigation")[0].loadEventEnd'
    return float(driver.execute_script(timing)) / 1e3


def check_quiet(driver: Any, path: Path) -> None:
    """It has said nothing on the console, and asked nobody for anything."""
    assert driver.get_log("browser") == []
    messages = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:") and url != path.as_uri()] == []


def network() -> tp.Program:
    with tp.Program("a <b>network</b>") as program:
        b, t = tp.dim("b", 4), tp.dim("t", 6)
        x = tp.input("x", (3,), (b, t))
        w = tp.input("<w>", (3, 3))
        h = tp.recurrent("h", (3,), (b, t))
        h[b, 0] = x
        h[b, t] = tp.tanh(h[b, t - 1] @ w + x)
        loss = (h[0 : b.size, t.size - 1] ** 2).sum()
        tp.output("loss", loss)
        tp.output("gradient", tp.grad(loss, w))
    return program


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tp.compile(network(), "numpy").report(tmp_path_factory.mktemp("pages") / "network.html")


@pytest.fixture
def shown(driver: Any, page: Path) -> Any:
    narrow(driver, 1440)
    opened(driver, page)
    return driver


def all_of(driver: Any, selector: str) -> list[Any]:
    return driver.find_elements("css selector", selector)


def texts(driver: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    return list(driver.execute_script(script, selector))


def find(driver: Any, words: str) -> str:
    """Type into the search, and read what it says."""
    box = all_of(driver, "#search")[0]
    box.clear()
    box.send_keys(words, "\n")
    return all_of(driver, "#found")[0].text


def test_a_page_has_all_parts_and_asks_for_nothing(shown: Any) -> None:
    parts = ["summary", "memory", "schedule", "graph", "passes", "code", "times"]
    assert texts(shown, "nav a") == parts
    for part in parts:
        assert all_of(shown, f"section#{part}")
    assert texts(shown, "h1") == ["a <b>network</b>"]
    assert "<w>" in "".join(texts(shown, "table.ways td"))


def test_the_summary_says_what_is_kept_for_how_long_and_why(shown: Any) -> None:
    cards = texts(shown, ".kept li")
    assert any("h" in card and "all points of b × t" in card and "is read by" in card for card in cards), cards
    assert "Compiled for numpy" in texts(shown, "#summary p")[0]
    assert "an axis, all points at once" in " ".join(texts(shown, ".dims li"))


def test_lines_fold_open_to_their_operators(shown: Any) -> None:
    groups = all_of(shown, ".group")
    assert not all_of(shown, ".group[open]")
    (tanh,) = [each for each in groups if "tp.tanh" in each.text]
    tanh.find_element("css selector", "summary").click()
    assert any("= tanh(" in text for text in texts(shown, ".group[open] .node pre"))
    tanh.find_element("css selector", "summary").click()
    assert not all_of(shown, ".group[open]")


def test_what_an_operator_reads_is_a_link(shown: Any) -> None:
    (tanh,) = [each for each in all_of(shown, ".group") if "tp.tanh" in each.text]
    tanh.find_element("css selector", "summary").send_keys("\n")  # as by the keyboard
    (node,) = [each for each in all_of(shown, ".group[open] .node") if "= tanh(" in each.text]
    node.find_element("css selector", ".links a").click()
    (chosen,) = all_of(shown, ".node.chosen")
    assert "add(" in chosen.text


def test_every_stage_is_shown(shown: Any) -> None:
    stages = all_of(shown, "#stage option")
    assert stages[0].text == "graph as written"
    assert any(each.text.startswith("loops") for each in stages)
    for each in stages:
        each.click()
        assert all_of(shown, ".group")


def test_a_pass_opens_to_what_it_changed(shown: Any, page: Path) -> None:
    rows = all_of(shown, "#passes > div > .pass")
    assert rows
    for each in rows:
        each.find_element("css selector", "summary").click()
        assert each.find_elements("css selector", ".diff .plus, .diff .minus")
    for each in all_of(shown, "#passes > details > summary"):
        each.click()
    assert texts(shown, "#passes > details .pass")
    check_quiet(shown, page)


def test_search_finds_in_buffers_graph_and_code(shown: Any) -> None:
    every = len(texts(shown, "table.buffers tbody tr"))
    said = find(shown, "tanh")
    assert "operator" in said
    assert "line" in said
    assert "0 operators" not in said
    assert all("tanh" in text for text in texts(shown, ".group"))
    assert find(shown, "nothing is called so") == "0 buffers, 0 operators, 0 lines of code"
    assert find(shown, "<w>").startswith("1 buffer")
    assert len(texts(shown, "table.buffers tbody tr")) == 1
    all_of(shown, "#search")[0].send_keys("\ue00c")  # escape
    assert all_of(shown, "#found")[0].text == ""
    assert len(texts(shown, "table.buffers tbody tr")) == every


def test_a_bar_says_how_long_it_lives(shown: Any) -> None:
    (bar,) = [each for each in all_of(shown, ".track[data-track]") if each.text.startswith("h ")]
    shown.execute_script("arguments[0].focus()", bar)
    said = all_of(shown, ".detail")[0].text
    assert "all points of b × t" in said
    assert "h[t] = " in said or "h[b, t] = " in said or "h[b, 0] = " in said or "tp.recurrent" in said
    all_of(shown, ".band")[0].click()
    assert all_of(shown, ".track[data-track]")
    assert [each.is_displayed() for each in all_of(shown, ".chart-line .more") if each.text == "the whole run"] == [
        True
    ]


def test_code_stands_beside_its_lines(shown: Any) -> None:
    (mine,) = [each for each in all_of(shown, ".yours button") if "tp.tanh" in each.text]
    mine.click()
    assert any("tanh" in text for text in texts(shown, ".listing .row-of.chosen .t"))


def test_a_page_fits_a_narrow_screen(driver: Any, page: Path) -> None:
    narrow(driver, 420)
    opened(driver, page)
    for each in all_of(driver, "details"):
        driver.execute_script("arguments[0].open = true", each)
    width = driver.execute_script("return document.documentElement.scrollWidth")
    assert width <= 420


def thousand(operators: int = 1000) -> tp.Program:
    """Nothing of it is simplified away, and a loop runs it."""
    with tp.Program("thousand") as program:
        t = tp.dim("t", 8)
        h = tp.recurrent("h", (4,), (t,))
        h[0] = tp.input("x", (4,))
        value = h[t - 1]
        for number in range(operators // 2):
            value = tp.tanh(value + h[t - 1] * (number + 1)) if number % 3 else tp.sin(value * value)
        h[t] = value
        tp.output("h", h[t.size - 1])
    return program


def test_a_page_of_a_thousand_operators_opens_in_two_seconds(driver: Any, tmp_path: Path) -> None:
    """The one test on time: that it opens at once is what it is for. The best of three, for a machine that is busy."""
    run = tp.compile(thousand(), "numpy")
    assert len(run.graph.nodes) >= 1000
    path = run.report(tmp_path / "thousand.html")
    narrow(driver, 1440)
    assert min(opened(driver, path) for _ in range(3)) < MOST_SECONDS


def test_the_command_writes_a_page(driver: Any, tmp_path: Path) -> None:
    program = tmp_path / "mean.py"
    program.write_text(
        "import tempo as tp\n\nwith tp.Program('mean') as program:\n    t = tp.dim('t')\n"
        "    tp.output('mean', tp.input('x', (3,), (t,))[0:t + 1].mean(axis=0))\n"
    )
    command = [sys.executable, "-m", "tempo", "report", f"{program}:program", "--size", "t=5", "-o", "mean.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "mean.html\n"), done.stderr
    opened(driver, tmp_path / "mean.html")
    assert texts(driver, "h1") == ["mean"]


# -- the examples ------------------------------------------------------------------------------------------------------

COLLECT = """
import runpy, sys
from pathlib import Path
import tempo as tp

script, folder, *arguments = sys.argv[1:]
made, compiled = [], tp.compile

def noting(*given, **named):
    made.append(compiled(*given, **named))
    return made[-1]

tp.compile = noting
sys.argv = [script, *arguments]
sys.path.insert(0, str(Path(script).parent))
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as ended:
    if ended.code:
        raise
for number, run in enumerate(made):
    if run.last_sizes is not None:
        print("page:", run.report(Path(folder) / f"{number}.html"))
"""
"""Runs an example, and writes the page of each program that it compiled."""

SMALL = ("--rows", 6, "--width", 8)
TEXTS = ("--layers", 2, "--hidden", 16, "--vocabulary", 300, "--positions", 16, "--rows", 4)
BRIEF = {
    "cartpole_rollout": ("--batch", 3, "--steps", 20),
    "decode": ("--model", "{tiny}", "--tokens", 4),
    "dqn": ("--steps", 200),
    "edit_distance": ("--batch", 2, "--length", 8),
    "kalman": ("--objects", 2, "--steps", 10),
    "linear_recurrence": ("--batch", 2, "--steps", 16),
    "lstm": ("--iterations", 3),
    "online_regression": ("--samples", 100),
    "pipeline": ("--layers", 2, "--microbatches", 3, "--batch", 2, "--length", 3, "--width", 4, "--iterations", 4),
    "ppo": ("--iterations", 2),
    "reinforce": ("--iterations", 3, "--returns", "mc", "td"),
    "rnn": ("--iterations", 3),
    "train_llm": (*TEXTS, "--text", "this", "--prompt", "The", "--out", "{model}", "--steps", 2),
    "lora": ("--model", "{model}", "--text", "bisect", "--steps", 2, "--rows", 4),  # behind the one that makes it
    "value_iteration": ("--size", 6, "--sweeps", 20),
    "wave": ("--steps", 10, "--size", 8),
    "dynamic/berxit": ("--rows", 4, "--heads", 2, "--sequence", 9, "--layers", 4),
    "dynamic/birnn": (*SMALL, "--steps", 2, "--longest", 7),
    "dynamic/drnn": (*SMALL, "--nodes", 9),
    "dynamic/mvrnn": ("--sentences", 2, "--batches", 1, "--width", 8),
    "dynamic/nestedrnn": (*SMALL, "--steps", 2, "--sentences", 3, "--words", 3),
    "dynamic/stackrnn": (*SMALL, "--steps", 2, "--operators", 3),
    "dynamic/treelstm": ("--steps", 2, "--width", 8),
}
NEEDS = {"decode": "transformers", "train_llm": "tokenizers", "lora": "transformers", "cartpole_rollout": "gymnasium"}


def example(name: str, *arguments: object) -> str:
    """Run it; `--page FOLDER` first: with the pages of what it compiles."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models, made when they are asked for."""
    folder = tmp_path_factory.mktemp("models")
    return {"tiny": folder / "tiny", "model": folder / "model"}


def test_every_example_has_a_page() -> None:
    folder = ROOT / "examples"
    paths = [path.relative_to(folder) for each in ("*.py", "dynamic/*.py") for path in folder.glob(each)]
    others = {"demo", "make_tiny_llama", "on_mesh"}
    assert {path.with_suffix("").as_posix() for path in paths} - others == set(BRIEF)


@pytest.mark.slow
@pytest.mark.parametrize("name", BRIEF)
def test_the_page_of_an_example_opens(name: str, driver: Any, models: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(name, "numpy"))
    if name.startswith("dynamic/"):
        pytest.importorskip("torch")
    if name == "decode":
        example("make_tiny_llama", models["tiny"], "--layers", 2, "--hidden", 32, "--vocabulary", 300, "--steps", 2)
    if name == "lora" and not models["model"].exists():
        example("train_llm", *TEXTS, "--text", "this", "--prompt", "The", "--out", models["model"], "--steps", 2)
    arguments = [str(each).format(**models) for each in BRIEF[name]]
    collect = tmp_path / "collect.py"
    collect.write_text(COLLECT)
    script = ROOT / "examples" / f"{name}.py"
    command = [sys.executable, str(collect), str(script), str(tmp_path), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [Path(line.removeprefix("page: ")) for line in done.stdout.splitlines() if line.startswith("page: ")]
    assert pages
    narrow(driver, 1440)
    for page in pages:
        opened(driver, page)
        assert texts(driver, ".track[data-track]")
        assert texts(driver, ".group")
