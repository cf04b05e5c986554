"""Tasks: puzzles have one solution (checked by an independent solver), splits do not leak, rewards are as published."""

import itertools
import json
import re

import pytest

from trainers.tasks import arithmetic, interface, knights_knaves, question_answer
from trainers.tasks.interface import tagged_answer
from trainers.tasks.settings import Arithmetic, KnightsKnaves, QuestionAnswer

SIZES = {"warm": 60, "train": 60, "dev": 20, "test": 40}


def solve_compact(prompt):
    """Solve a compact puzzle from its text alone, with Python's own operators."""
    people, rules = [], []
    for sentence in prompt.removesuffix(" ?").split(" ; "):
        speaker, colon, *words = sentence.split()
        assert colon == ":"
        people.append(speaker)
        parts = words[len(words) % 2 :]
        atoms = [f"({name} == {role == 'K'})" for name, role in zip(parts[::2], parts[1::2], strict=True)]
        if len(atoms) == 1:
            claim = atoms[0]
        else:
            claim = {"and": "{} and {}", "or": "{} or {}", "iff": "{} == {}", "if": "(not {}) or {}"}[words[0]].format(
                *atoms
            )
        rules.append(f"(({claim}) == {speaker})")
    worlds = [dict(zip(people, world, strict=True)) for world in itertools.product((True, False), repeat=len(people))]
    return [world for world in worlds if all(eval(rule, {}, world) for rule in rules)]


def solve_textual(prompt):
    """Solve an English puzzle from its text alone."""
    names = re.search(r"inhabitants: (.*?)\. ", prompt).group(1).replace(" and ", ", ").split(", ")
    rules = []
    for speaker, spoken in re.findall(r'(\w+) says, "(.*?)\."', prompt):
        plain = re.sub(r"(\w+) is a (knight|knave)", lambda m: f"({m[1]} == {m[2] == 'knight'})", spoken)
        claim = re.sub(r"^If (.*) then (.*)$", r"(not \1) or \2", plain.replace("if and only if", "=="))
        rules.append(f"(({claim}) == {speaker})")
    assert len(rules) == len(names)
    worlds = [dict(zip(names, world, strict=True)) for world in itertools.product((True, False), repeat=len(names))]
    return [world for world in worlds if all(eval(rule, {}, world) for rule in rules)]


@pytest.mark.parametrize(("people", "form"), [(2, "compact"), (3, "compact"), (2, "textual"), (3, "textual")])
def test_every_puzzle_has_exactly_one_solution_and_that_is_its_answer(people, form):
    task = knights_knaves.create(KnightsKnaves(people=people, form=form))
    solve = solve_compact if form == "compact" else solve_textual
    for problem in itertools.chain(*task.splits(SIZES, seed=1).values()):
        (world,) = solve(problem.prompt)
        expected = " ".join(f"{name} {'knight' if knight else 'knave'}" for name, knight in world.items())
        assert problem.answer == expected


def test_no_puzzle_stands_twice_and_none_has_a_cluster():
    splits = knights_knaves.create(KnightsKnaves()).splits(SIZES, seed=0)
    problems = [problem for split in splits.values() for problem in split]
    assert {name: len(split) for name, split in splits.items()} == SIZES
    assert len({problem.prompt for problem in problems}) == len(problems)
    assert {problem.cluster for problem in problems} == {None}


def test_too_many_puzzles_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(interface, "_PATIENCE", 500)
    monkeypatch.setattr(knights_knaves, "LETTERS", ("A", "B"))
    with pytest.raises(ValueError, match=r"too few distinct problems .*; request fewer problems, or more people"):
        knights_knaves.create(KnightsKnaves(people=2)).splits({**SIZES, "dev": 10**6}, 0)


def test_careful_demonstrations_are_right_and_sloppy_ones_often_are_not():
    for form in ("compact", "textual"):
        careful = knights_knaves.create(KnightsKnaves(form=form, sloppy=0.0))
        assert all(careful.correct(p, p.demonstration) for p in careful.splits(SIZES, 0)["warm"])
        sloppy = knights_knaves.create(KnightsKnaves(form=form, sloppy=1.0))
        rate = sum(sloppy.correct(p, p.demonstration) for p in sloppy.splits({**SIZES, "warm": 400}, 0)["warm"]) / 400
        assert 0.15 < rate < 0.35  # one of four hypotheses
    words = set(knights_knaves.WORDS)
    for problem in careful.splits(SIZES, 0)["train"]:
        assert problem.demonstration is None
    compact = knights_knaves.create(KnightsKnaves())
    for problem in compact.splits(SIZES, 0)["warm"]:
        assert set(problem.prompt.split()) | set(problem.demonstration.split()) <= words


PROBLEM_ANSWER = "A knight B knave"


@pytest.mark.parametrize(
    ("response", "reward", "correct"),
    [
        ("<think> K N ok ok </think> <answer> A knight B knave </answer>", 3.0, True),
        ("<think> </think> <answer> B knave A knight </answer>", 3.0, True),  # the order does not matter
        ("<think> K K </think> <answer> A knight B knight </answer>", -0.5, False),
        ("<think> K K </think> <answer> A knight </answer>", -1.0, False),  # format right, answer unreadable
        ("<think> K K </think> <answer> A knight A knave </answer>", -1.0, False),
        ("<think> K K </think> <answer> A knight C knave </answer>", -1.0, False),
        ("<think> K K </think> <answer> A knight B ok </answer>", -1.0, False),
        ("A knight B knave", -3.0, False),
        ("<think> </think> <answer> A knight B knave </answer> ok", -3.0, False),
        ("<think> <think> </think> <answer> A knight B knave </answer>", -3.0, False),
        ("<answer> A knight B knave </answer> <think> </think>", -3.0, False),
    ],
)
def test_rule_reward_of_logic_rl(response, reward, correct):
    task = knights_knaves.create(KnightsKnaves())
    problem = knights_knaves.Problem("x", "", PROBLEM_ANSWER)
    assert task.reward(problem, response) == reward
    assert task.correct(problem, response) is correct


def test_textual_answers_are_read_from_sentences():
    task = knights_knaves.create(KnightsKnaves(form="textual"))
    problem = knights_knaves.Problem("x", "", "Zoey knight Ethan knave")
    for answer in ("Zoey is a knight, Ethan is a knave", "(1) Ethan is a knave\n(2) Zoey is a knight."):
        assert task.correct(problem, f"<think>so</think>\n<answer>{answer}</answer>")
    assert not task.correct(problem, "<think>so</think><answer>Zoey is a knight, Ethan is a knight</answer>")
    hedged = "<think>so</think><answer>Zoey is a knight, Ethan is a knave, Ethan is a knight</answer>"
    assert not task.correct(problem, hedged)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("{f}<think>a</think>{f}<answer> 7 </answer>{f}", "7"),
        ("<think>a</think>\n\n<answer> 7 </answer>\n", "7"),
        ("<think>a</think> so <answer> 7 </answer>", None),
        ("<think>a</think> <answer> 7 </answer> <answer> 8 </answer>", None),
        # Seen: 20 newlines before the end token earned the full reward.
        ("{n}<think>a</think><answer>7</answer>", None),
        ("<think>a</think>{n}<answer>7</answer>", None),
        ("<think>a</think><answer>7</answer>{n}", None),
    ],
)
def test_tags_must_stand_alone_and_in_order_without_much_white_space(response, answer):
    assert tagged_answer(response.format(f=" ", n="\n" * 20)) == answer


@pytest.mark.parametrize("form", ["compact", "textual"])
def test_arithmetic(form):
    task = arithmetic.create(Arithmetic(form=form, digits=3, operations=["+", "-", "*"], sloppy=0.0))
    splits = task.splits(SIZES, 0)
    signs = {"plus": "+", "minus": "-", "times": "*"}
    for problem in itertools.chain(*splits.values()):
        text = problem.prompt.removesuffix("=").removeprefix("What is").removesuffix("?")
        text = "".join(signs.get(word, word) for word in text.split())
        assert int(problem.answer) == eval(text)
    for problem in splits["warm"]:
        assert task.reward(problem, problem.demonstration) == 3.0
    other = f"<think> </think> <answer> {int(problem.answer) + 1} </answer>"
    assert task.reward(problem, other) == -0.5
    assert task.reward(problem, "<think> </think> <answer> </answer>") == -1.0
    ids = [{p.id for p in split} for split in splits.values()]
    assert sum(map(len, ids)) == len(set().union(*ids))


def gsm8k(path, count=200):
    rows = [
        {"question": f"Tom has {i} apples and buys {i}. How many?", "answer": f"{i}+{i}={2 * i}\n#### {2 * i:,}"}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_question_answer_reads_the_form_of_gsm8k(tmp_path):
    task = question_answer.create(QuestionAnswer(), gsm8k(tmp_path / "q.jsonl"))
    splits = task.splits({"warm": 20, "train": 60, "dev": 5, "test": 20}, 0)
    prompts = [p.prompt for split in splits.values() for p in split]
    assert len(prompts) == len(set(prompts)) == 105
    for problem in splits["test"]:
        assert int(problem.answer) == 2 * int(re.search(r"\d+", problem.prompt).group())
        assert task.correct(problem, problem.demonstration)
        value = int(problem.answer)
        for text in (f"{value}", f"${value:,}.00", f"{value} apples"):
            assert task.correct(problem, f"<think> x </think> <answer> {text} </answer>"), text
        assert not task.correct(problem, f"<think> x </think> <answer> {value + 1} </answer>")


def test_question_answer_errors_name_file_and_remedy(tmp_path):
    with pytest.raises(ValueError, match="data_source"):
        question_answer.create(QuestionAnswer())
    task = question_answer.create(QuestionAnswer(answer="solution"), gsm8k(tmp_path / "q.jsonl"))
    with pytest.raises(ValueError, match=r"q\.jsonl: the field 'solution' does not exist"):
        task.splits(SIZES, 0)
    with pytest.raises(ValueError, match="too few questions"):
        question_answer.create(QuestionAnswer(), tmp_path).splits({**SIZES, "test": 500}, 0)
