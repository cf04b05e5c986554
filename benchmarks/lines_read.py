"""Lines of the project's functions that run in one call, which a reader must read to follow it.

    python benchmarks/lines_read.py                 # a total for each call
    python benchmarks/lines_read.py --by-function   # and its functions, the longest first

Each call is traced the second time, with other values, so that imports and what is kept between calls do not count. A
function counts from its first decorator to its last line; what is nested in a function that runs counts once.
"""

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes `tests` importable

import ablation
from ablation.cli.main import main
from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from ablation.store.collect import collect
from tests.simulate import simulate

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("ablation", "trainers"))


def functions_run(call: Callable[[], Any]) -> set[CodeType]:
    """Return the code of the project's functions that run in the second call."""
    ran: set[CodeType] = set()

    def collect_code(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            ran.add(frame.f_code)

    with redirect_stdout(StringIO()):
        call()
        sys.setprofile(collect_code)
        try:
            call()
        finally:
            sys.setprofile(None)
    return ran


def lines_of(ran: set[CodeType]) -> dict[str, int]:
    """Return the number of lines of each function that is not nested in another one, the longest first."""
    nested = {inner for code in ran for inner in code.co_consts if inspect.iscode(inner)}
    names = {f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}": code for code in ran - nested}
    lines = {name: len(inspect.getsourcelines(code)[0]) for name, code in names.items()}
    return dict(sorted(lines.items(), key=lambda item: -item[1]))


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the calls to trace; their files are in `folder`. A side has five runs of 400 right or wrong items."""
    rng = np.random.default_rng(0)
    ease, index = rng.random(400), pd.MultiIndex.from_product([range(5), range(400)], names=["seed", "item"])

    def draw(gain: float) -> NDArray[np.float64]:
        return (rng.random((5, 400)) < ease + gain).astype(float)

    def table(gain: float) -> str:
        path = folder / f"{gain}.csv"
        pd.Series(draw(gain).ravel(), index, name="value").to_csv(path)
        return str(path)

    simulate(folder / "results")
    collect(folder / "results")
    rules = ["--direction", "max", "--margin", "0.01"]
    return {
        "judge two arrays": lambda: ablation.judge(draw(0.05), draw(0.0), direction="max", margin=0.01),
        "compare two tables": lambda: main(["compare", table(0.0), "--with", table(0.05), *rules]),
        "gate a study": lambda: main(["gate", "toy", "--results", str(folder / "results")]),
        "plan the smoke grid": lambda: build_plan(load_settings({"scale": "smoke"})),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-function", action="store_true", help="print the functions too, the longest first")
    by_function = parser.parse_args().by_function
    with tempfile.TemporaryDirectory() as folder:
        for title, call in calls(Path(folder)).items():
            lines = lines_of(functions_run(call))
            print(f"{sum(lines.values()):6,}  {title}: {len(lines)} functions")
            for name, number in lines.items() if by_function else ():
                print(f"{number:6,}    {name}")
