"""Several systems at once: `--by`, paths without --with, the leaderboard, and who cannot be told apart."""

import itertools
import json
import random
import re
import textwrap

import numpy as np
import pandas as pd
import pytest

import ablation
from ablation.judge.compare.leaderboard import letters_of
from tests.ablation.readers.command import read, refused, told
from tests.ablation.readers.test_agents import promptfoo, successes
from tests.repository import ROOT

LEVELS = {"best": 0.9, "same": 0.88, "worst": 0.3}


def systems(folder, items=80, **more):
    """A file for each, and one long table of all."""
    rng, paths, frames = np.random.default_rng(0), [], []
    for name, level in LEVELS.items():
        values = (rng.random(items) < level).astype(int)
        frame = pd.DataFrame({"question_id": [f"q{at}" for at in range(items)], "correct": values}).assign(**more)
        (folder / name).mkdir()
        frame.to_csv(folder / name / "items.csv", index=False)
        paths.append(folder / name / "items.csv")
        frames.append(frame.assign(model=name, prompt_style="p"))
    pd.concat(frames).to_csv(folder / "long.csv", index=False)
    return paths


def rows(capsys, *words):
    printed = json.loads(told(capsys, *words, "--json"))
    return printed["rows"], printed["leaderboard"]


def test_the_intervals_of_percent_are_a_hundred_times_those_of_shares(tmp_path, capsys):
    """Values of 0 and 100 had intervals that ended at 1."""
    paths, keys = systems(tmp_path, seed=0), ("mean", "low", "high")
    for path in paths:
        frame = pd.read_csv(path)
        pd.concat([frame, frame.assign(seed=1, correct=frame["correct"][::-1].to_numpy())]).to_csv(path, index=False)
    shares = rows(capsys, *paths)[1]
    for path in paths:
        pd.read_csv(path).assign(correct=lambda frame: 100 * frame["correct"]).to_csv(path, index=False)
    for one, other in zip(shares, rows(capsys, *paths)[1], strict=True):
        assert [other[key] for key in keys] == pytest.approx([100 * one[key] for key in keys])


def test_every_path_is_a_system_and_is_compared_with_the_first(tmp_path, capsys):
    paths = systems(tmp_path)
    found, board = rows(capsys, *paths)
    assert [(row["parent"], row["child"]) for row in found] == [("best", "same"), ("best", "worst")]
    alone = [read(capsys, paths[0], "--with", path) for path in paths[1:]]
    assert [row["effect"] for row in found] == [row["effect"] for row in alone]
    assert [row["p"] for row in found] == pytest.approx([row["p"] for row in alone])
    assert all(row["p_adjusted"] >= row["p"] for row in found)
    means = {path.parent.name: pd.read_csv(path)["correct"].mean() for path in paths}
    assert {row["system"]: row["mean"] for row in board} == pytest.approx(means)
    assert [row["system"] for row in board] == sorted(means, key=lambda name: -means[name])
    groups = {row["system"]: row["groups"] for row in board}
    assert groups["best"] == groups["same"] == "a"
    assert groups["worst"] == "b"
    every, _ = rows(capsys, f"{tmp_path}/*/items.csv", "--all-pairs")
    assert {(row["parent"], row["child"]) for row in every} == {("best", "same"), ("best", "worst"), ("same", "worst")}
    text = told(capsys, *paths)
    assert "Systems that share a letter do not differ significantly" in text
    smaller = rows(capsys, *paths, "--direction", "min")[1]
    assert [row["system"] for row in smaller] == [row["system"] for row in board][::-1]


def test_python_has_the_same_leaderboard(tmp_path, capsys):
    paths = systems(tmp_path)
    found, board = rows(capsys, *paths, "--all-pairs", "--margin", "0.02")
    frames = {path.parent.name: pd.read_csv(path) for path in paths}
    arrays = {name: pd.Series(frame["correct"].to_numpy(float), frame["question_id"]) for name, frame in frames.items()}
    long = pd.read_csv(tmp_path / "long.csv")
    for given, more in (
        ([str(path) for path in paths], {}),
        (f"{tmp_path}/*/items.csv", {}),
        ({path.parent.name: path for path in paths}, {}),
        (frames, {}),
        (arrays, {"metric": "correct", "direction": "max"}),
        (long, {"by": "model"}),
    ):
        answer = ablation.leaderboard(given, all_pairs=True, margin=0.02, **more)
        assert answer.standings.to_dict("records") == board
        for name in ("parent", "child", "verdict", "effect", "low", "high", "p", "p_adjusted"):
            assert answer.comparisons[name].tolist() == [row[name] for row in found], name
    assert ablation.leaderboard(frames, names=["x", "y", "z"]).comparisons["parent"].tolist() == ["x", "x"]
    with pytest.raises(ablation.TrackerError, match="needs two evaluations"):
        ablation.leaderboard({"a": paths[0]})
    with pytest.raises(ablation.TrackerError, match="are not paths"):
        ablation.leaderboard(list(frames.values()))


def agents(folder, levels):
    """The files of docs/how-to/agents.md: 700 instances of 14 repositories, some of which are harder for all."""
    rng = np.random.default_rng(0)
    names = [f"owner__repository{at % 14}-{1000 + at}" for at in range(700)]
    hard = rng.random(700) + np.tile(rng.random(14) / 3, 50)
    for number, level in enumerate(levels):
        (folder / f"agents/m{number}").mkdir(parents=True)
        resolved = hard + rng.normal(0, 0.4, 700) < level
        content = dict(zip(names, resolved.tolist(), strict=True))
        (folder / f"agents/m{number}/eval_results.json").write_text(json.dumps(content))


def test_systems_that_together_share_no_seed_keep_their_own_runs(tmp_path, capsys):
    """Each shares a seed with the first; this ended in a traceback."""
    rng, paths = np.random.default_rng(0), []
    for name, seeds in (("a", (0, 1, 2)), ("b", (0, 1)), ("c", (2, 3))):
        rows_of = [f"i{item},{seed},{rng.integers(2)}" for seed in seeds for item in range(30)]
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text("\n".join(["item,seed,value", *rows_of]))
    found, board = rows(capsys, *paths)
    assert [row["seeds"] for row in found] == [2, 1]
    means = {path.stem: pd.read_csv(path)["value"].mean() for path in paths}
    assert {row["system"]: row["mean"] for row in board} == pytest.approx(means)
    assert "has no run left" in refused(capsys, *paths, "--without", "c:2", "c:3")


def test_the_leaderboard_of_the_page_is_what_the_command_prints(tmp_path, capsys, monkeypatch):
    page = (ROOT / "docs/how-to/agents.md").read_text()
    agents(tmp_path, (0.7, 0.72, 0.57, 0.62))
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"(?:^    .*\n)+", page[page.index("    system ") :], flags=re.MULTILINE)[:1]
    assert textwrap.dedent(block).strip() in told(capsys, "agents/*/eval_results.json", "--margin", "0.02")
    [(command, shown)] = re.findall(r"^    \$ ablation compare (.*)\n((?:    .*\n|\n)+)    \.\.\.$", page, re.MULTILINE)
    assert told(capsys, *command.split()).startswith(textwrap.dedent(shown))


def test_a_folder_alone_is_answered_with_the_command_that_compares_what_it_holds(tmp_path, capsys):
    agents(tmp_path, (0.7, 0.72, 0.57))
    for folder in (tmp_path, tmp_path / "agents"):
        said = refused(capsys, folder)
        [command] = re.findall("run `ablation compare '(.*?)'`; otherwise", said)
        assert len(rows(capsys, command)[0]) == 2
    (tmp_path / "flat").mkdir()
    for number in range(3):
        (tmp_path / f"agents/m{number}/eval_results.json").rename(tmp_path / f"flat/m{number}.json")
    (tmp_path / "flat/notes.txt").write_text("x")
    [command] = re.findall("run `ablation compare '(.*?)'`; otherwise", refused(capsys, tmp_path / "flat"))
    assert command.endswith("flat/*.json")
    assert len(rows(capsys, command)[0]) == 2


def test_compressed_results_are_to_be_unpacked(tmp_path, capsys):
    agents(tmp_path, (0.7, 0.72))
    a, b = sorted(tmp_path.glob("agents/*/*.json"))
    packed = b.rename(b.with_suffix(".json.gz"))
    assert "is compressed; unpack the file" in refused(capsys, a, "--with", packed)
    assert "but no readable evaluation; unpack the files" in refused(capsys, a, "--with", packed.parent)


def test_two_paths_are_baseline_and_candidate(tmp_path, capsys):
    paths = systems(tmp_path)
    assert read(capsys, *paths[:2]) == read(capsys, paths[0], "--with", paths[1])
    for seed in range(2):
        (tmp_path / f"base-s{seed}.csv").write_text("item,value\na,1\n")
    seeds = [tmp_path / f"base-s{seed}.csv" for seed in range(2)]
    assert "differ only in their seed" in refused(capsys, *seeds)
    assert "needs two evaluations" in refused(capsys, paths[0])


def test_simultaneous_intervals_by_hand(tmp_path, capsys):
    from scipy import stats

    paths = systems(tmp_path)
    board = {row["system"]: row for row in rows(capsys, *paths)[1]}
    values = pd.read_csv(paths[2])["correct"].to_numpy(float)
    half = stats.t.ppf(1 - 0.05 / 3 / 2, 79) * values.std(ddof=1) / np.sqrt(80)
    assert board["worst"]["low"] == pytest.approx(values.mean() - half, abs=0.02)
    assert board["worst"]["high"] == pytest.approx(values.mean() + half, abs=0.02)


def test_a_side_for_each_value_of_a_column(tmp_path, capsys):
    paths = systems(tmp_path)
    found, board = rows(capsys, tmp_path / "long.csv", "--by", "model")
    same, same_board = rows(capsys, *paths)
    assert [row["effect"] for row in found] == [row["effect"] for row in same]
    assert board == same_board
    one = read(capsys, tmp_path / "long.csv", "--by", "model", "--names", "worst", "best")
    assert (one["parent"], one["child"]) == ("worst", "best")
    words = (tmp_path / "long.csv", "--by")
    assert "no system has this name; did you mean 'best'?" in refused(
        capsys, *words, "model", "--names", "bestt", "same"
    )
    assert "the column does not exist; did you mean 'model'?" in refused(capsys, *words, "mode")
    one = pd.read_csv(tmp_path / "long.csv").query("model == 'best'")
    one.to_csv(tmp_path / "one.csv", index=False)
    assert "separates the files into only one system, best" in refused(capsys, tmp_path / "one.csv", "--by", "model")
    assert "cannot be combined with --with" in refused(capsys, *words, "model", "--with", paths[0])
    assert "pass --by model if it names systems" in refused(capsys, words[0])
    assert "has 2 names for 3 systems" in refused(capsys, *paths, "--names", "a", "b")


def test_providers_and_prompts_of_one_output_are_sides(tmp_path, capsys):
    output = promptfoo(tmp_path / "output.json", successes(3, 5, 6, 9))
    assert "belongs to both" in refused(capsys, output, "--with", tmp_path)
    other = promptfoo(tmp_path / "other.json", successes(3, 5, 6, 9))
    for words in ([output, other], [output]):
        assert "compare the systems with --by provider,prompt" in refused(capsys, *words)
    found, board = rows(capsys, output, "--by", "provider,prompt")
    assert len(found) == 3
    assert [row["system"] for row in board] == ["large long", "large short", "small long", "small short"]
    assert "compare the systems with --by provider,prompt" in refused(capsys, output, "--by", "provider")
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        promptfoo(tmp_path / day / "output.json", successes(3, 5, 6, 9))
    words = (tmp_path / "monday", tmp_path / "tuesday", "--by", "provider,prompt")
    assert "choose one with --at tuesday" in refused(capsys, *words)
    assert rows(capsys, *words, "--at", "tuesday")[1] == board
    assert "the file has no column or setting with this name; did you mean 'provider'" in refused(
        capsys, output, "--by", "providers"
    )


@pytest.mark.parametrize("seed", range(40))
def test_systems_share_a_letter_if_and_only_if_they_are_not_apart(seed):
    draw = random.Random(seed)
    names = [f"s{at}" for at in range(draw.randint(2, 8))]
    pairs = [frozenset(pair) for pair in itertools.combinations(names, 2)]
    apart = {pair for pair in pairs if draw.random() < draw.choice([0.1, 0.5, 0.9])}
    letters = letters_of(names, apart)
    assert all(letters.values())
    for pair in pairs:
        one, other = pair
        assert (pair in apart) == set(letters[one]).isdisjoint(letters[other])
