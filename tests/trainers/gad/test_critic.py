"""The critic: where it starts, how it scores, what its update is, and what is measured on the pairs of a step."""

import copy
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from tests.make_stage import parts_of
from tests.trainers.gad.helpers import config, trainer
from trainers.gad import adversarial
from trainers.gad import measure as measuring
from trainers.gad.critic import build_loss, new_critic, pair_scores, score, update_critic
from trainers.gad.students import STUDENT
from trainers.gad.without_end import WithoutEnd
from trainers.objectives.discriminators import Scores
from trainers.policy.batch import Sequences
from trainers.policy.config import Precision
from trainers.policy.learner import Learner
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.responses import Responder
from trainers.policy.supervised import Examples
from trainers.policy.value_model import ValueModel
from trainers.running.micro_batch import MicroBatch
from trainers.tasks.interface import read_problems

CPU = Placement.of(["cpu"], Precision())


def of_prompt(prompt, response):
    """One response."""
    ids, answer = torch.tensor([prompt]), torch.tensor([response])
    return Sequences(ids, torch.ones_like(ids), answer, torch.ones_like(answer))


def test_the_critic_starts_from_a_reward_model(root, tmp_path):
    student = load_policy(root / "seqkd" / STUDENT, torch.device("cpu"))
    judge = Qwen2ForSequenceClassification(copy.deepcopy(student.config))
    judge.config.num_labels = 1
    judge.score = torch.nn.Linear(student.config.hidden_size, 1, bias=False)
    judge.config.pad_token_id = 0
    judge.save_pretrained(tmp_path / "judge" / "files")
    for folder in (tmp_path / "judge" / "files", tmp_path / "two", tmp_path / "larger"):
        load_tokenizer(root / "seqkd" / STUDENT).save_pretrained(folder)
    settings = config().critic.model_copy(update={"init": "reward_model"})
    critic = new_critic(settings, root / "seqkd" / STUDENT, tmp_path / "judge" / "files", CPU, torch.Generator())
    response = of_prompt([5, 6, 7], [8, 9, 10, 1])
    found = critic(response)
    with torch.no_grad():
        expected = judge.eval()(input_ids=torch.tensor([[5, 6, 7, 8, 9, 10, 1]])).logits[0, 0]
    assert found[0, -1].item() == pytest.approx(expected.item(), abs=1e-5)  # the last token's score is the reward
    torch.manual_seed(0)
    larger = Qwen2ForCausalLM(Qwen2Config(**{**student.config.to_dict(), "hidden_size": 48}))
    larger.save_pretrained(tmp_path / "larger")
    made = new_critic(settings, root / "seqkd" / STUDENT, tmp_path / "larger", CPU, torch.Generator())
    assert torch.equal(made.body.embed_tokens.weight, larger.model.embed_tokens.weight)
    assert made(response).abs().min() > 0
    assert made.head.weight.abs().min() > 0  # a head of its own: at 0 the body would get no gradient
    judge.config.num_labels = 2
    judge.score = torch.nn.Linear(student.config.hidden_size, 2, bias=False)
    judge.save_pretrained(tmp_path / "two")
    with pytest.raises(ValueError, match="a linear layer `score`"):
        ValueModel.from_reward_model(tmp_path / "two", CPU, root / "seqkd" / STUDENT)


def test_the_critic_scores_equal_responses_equally_and_sees_the_token_itself(root):
    run = trainer(root, config(sampling={"temperature": None}, rollout={"group_size": 5}))
    torch.nn.init.normal_(run.critic.head.weight)
    sequences, _ = run._respond(range(3), 0)
    found = score(run.critic, sequences, MicroBatch(4), "mean")
    groups = found.pooled.view(3, 5)
    assert (groups == groups[:, :1]).all()
    with torch.no_grad():
        values = run.critic(sequences)
        changed = sequences.completion_ids.clone()
        changed[:, 3] = 9
        other = run.critic(Sequences(sequences.prompt_ids, sequences.prompt_mask, changed, sequences.completion_mask))
    torch.testing.assert_close(other[:, :3], values[:, :3], rtol=0, atol=1e-5)
    assert (other[:, 3] - values[:, 3]).abs().max() > 1e-3


def test_the_critics_update_is_the_gradient_of_the_mean_over_all_pairs(root):
    """One pass with one minibatch, in micro-batches or not, is one step along the gradient of the whole loss."""
    settings = config(update={"minibatches": 1})
    loss, results = build_loss(settings, parts_of(settings, "gad")["discriminator"]), []
    for micro_batch in (None, 1):
        run = trainer(root, settings)
        torch.nn.init.normal_(run.critic.head.weight, generator=torch.Generator().manual_seed(0))
        rows = run._indices_of(0)
        sequences, _ = run._respond(rows, 0)
        teacher = run.critic_examples.batch(rows)
        losses, _ = loss(*pair_scores(run.critic, teacher, sequences, torch.arange(len(rows)), 4, pooling="mean"))
        expected = torch.autograd.grad(losses.mean(), run.critic.head.weight)[0]
        before = run.critic.head.weight.detach().clone()
        optimiser = torch.optim.SGD(run.critic.parameters(), lr=1.0)
        learner = Learner(run.critic, optimiser, 1e9, MicroBatch(micro_batch))
        how = {"update": settings.update, "pooling": "mean", "generator": torch.Generator()}
        update_critic(learner, loss, teacher, sequences, **how)
        torch.testing.assert_close(before - run.critic.head.weight, expected, rtol=1e-4, atol=1e-5)
        results.append(run.critic.head.weight.detach())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_metrics_are_those_of_the_pairs_of_the_step(root):
    run = trainer(root, config(pooling="mean"))
    torch.nn.init.normal_(run.critic.head.weight, generator=torch.Generator().manual_seed(1))
    frozen = copy.deepcopy(run.critic)
    metrics = run.step(0)
    rows = run._indices_of(0)
    sides = run.critic_examples.batch(rows), run._respond(rows, 0)[0]
    with torch.no_grad():
        teachers, students = (
            [v[m.bool()].mean().item() for v, m in zip(frozen(side), side.completion_mask, strict=True)]
            for side in sides
        )
    diffs = [teachers[i // 4] - student for i, student in enumerate(students)]
    assert metrics["critic/d_acc"] == pytest.approx(sum(d > 0 for d in diffs) / len(diffs))
    assert metrics["critic/score_diff"] == pytest.approx(sum(diffs) / len(diffs), abs=1e-5)


def rounded():
    """Scoring in which every second call is off by a little."""
    errors = itertools.cycle([0, 1e-3])

    def scored(*arguments):
        error = next(errors)
        return Scores(*(values + error for values in score(*arguments)))

    return scored


def test_a_response_that_says_what_the_teacher_says_ties(root, monkeypatch):
    """Whatever rounding does: half a win for critic and student. Rewards are what they were."""
    run = trainer(root, config(sampling={"temperature": None}, critic={"head_std": 1.0}))
    monkeypatch.setattr(adversarial, "score", rounded())
    monkeypatch.setattr(measuring, "score", rounded())
    differing = run.step(0)
    assert abs(differing["critic/score_diff"]) > 1e-2
    monkeypatch.setattr(Examples, "batch", lambda self, rows: greedy([self.prompts[row] for row in rows]))
    run = trainer(root, config(sampling={"temperature": None}, critic={"head_std": 1.0}))

    def greedy(prompts):
        return run.responder(prompts, group_size=1, limit=run.limit)[0]

    metrics = run.step(0)
    found = [metrics[f"critic/{name}"] for name in ("d_acc", "d_acc_raw", "score_diff", "raw_score_diff")]
    assert found == [0.5, 0.5, 0, 0]
    assert metrics["critic/same_text_diff"] == 0
    assert metrics["reward/mean"] == differing["reward/mean"]
    assert run.measure(read_problems(root / "data" / "dev.jsonl"))["dev/greedy_win"] == 0.5


@pytest.mark.parametrize(
    ("end_token", "engine", "apart"), [(True, "own", False), (False, "own", True), (False, "own_without_end", False)]
)
def test_the_same_text_scores_differently_where_one_side_alone_has_the_end_token(
    root, monkeypatch, end_token, engine, apart
):
    """A student that says what the teacher says."""

    def copying(self, prompts, *, group_size, **_):
        examples = run.student_examples
        rows = [row for row, prompt in enumerate(examples.prompts) if prompt in prompts for _ in range(group_size)]
        copied, texts = examples.batch(rows), [run.problems[row].answer for row in rows]
        return replace(copied, logps=torch.ones(copied.completion_mask.shape)), texts

    settings = {"critic": {"head_std": 1.0, "end_token": end_token}, "sampling": {"length_factor": 2.0}}
    run = trainer(root, config(**settings, rollout={"engine": engine}))
    monkeypatch.setattr(Responder, "__call__", copying)
    monkeypatch.setattr(run, "_indices_of", lambda step: range(len(run.problems)))
    metrics = run.step(0)
    assert metrics["critic/same_text_diff"] > 0.01 if apart else metrics["critic/same_text_diff"] == 0  # same-text's
    assert metrics["rollout/policy_lag"] == 0


def test_the_end_token_is_taken_off_a_response_but_for_one_that_is_it_alone(monkeypatch):
    """Rows: one that ended, one that was cut, one that is the end token (1) alone."""
    ids = torch.tensor([[8, 9, 1], [8, 9, 7], [1, 0, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 0, 0]])
    prompt = torch.ones(3, 2, dtype=torch.long)
    sampled = Sequences(prompt, prompt, ids, mask, torch.full((3, 3), -1.0) * mask)
    monkeypatch.setattr(Responder, "__call__", lambda *_, **__: (sampled, ["a", "b", ""]))
    sampler = WithoutEnd(None, SimpleNamespace(eos_token_id=1), None, None, None, version=lambda: 4)
    trimmed, texts = sampler([[1]])
    assert trimmed.completion_mask.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    assert torch.equal(trimmed.logps, -trimmed.completion_mask.float())
    assert trimmed.ended(1).tolist() == sampled.ended(1).tolist() == [True, False, True]
    assert (texts, sampler.weights_version) == (["a", "b", ""], 4)
