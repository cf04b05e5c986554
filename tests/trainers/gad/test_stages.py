"""The stages on a tiny model: what they start from, fresh rollouts, faults, resume, evaluation."""

import copy
import json
import math
import shutil
from itertools import pairwise

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import Qwen2ForSequenceClassification

from tests.trainers.gad.helpers import config, gad_stage, inputs_of, run_stage, series
from trainers.gad import adversarial, seqkd
from trainers.gad.adversarial import Course, Trainer
from trainers.gad.config import GadConfig
from trainers.gad.critic import build_loss, new_critic, pair_scores, score, update_critic
from trainers.gad.data import teacher_lengths
from trainers.gad.rows import read_rows
from trainers.gad.students import CRITIC, STUDENT
from trainers.gad.version import steps_taken
from trainers.micro_batch import MicroBatch, OutOfMemory
from trainers.policy import responses
from trainers.policy.batch import Sequences, token_logps
from trainers.policy.config import Precision
from trainers.policy.learner import Learner
from trainers.policy.models import load_policy, load_tokenizer
from trainers.policy.placement import Placement
from trainers.policy.value_model import ValueModel

CPU = Placement.of(["cpu"], Precision())


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Data, base model and SeqKD's student."""
    root = tmp_path_factory.mktemp("gad")
    for name in ("data", "base", "seqkd", "evaluate_start"):
        run_stage(root, name, config(), seed=None)
    return root


@pytest.fixture
def root(before, tmp_path):
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    return tmp_path


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def course(settings, name="warmup", first_step=0):
    return Course(name, getattr(settings, name), first_step, ("seqkd", "base"))


def trainer(root, settings, seed=0):
    stage = gad_stage(root / "warmup", settings, inputs_of(root, "warmup"), seed)
    return Trainer(stage, course(settings))


# --- what a stage starts from -------------------------------------------------------------------------------------


def test_seqkd_learns_from_the_base_models_student(before):
    losses = series(pd.read_parquet(before / "seqkd" / "metrics.parquet"), "seqkd/loss")
    assert losses.iloc[-1] < losses.iloc[0]
    assert weights(before / "seqkd" / STUDENT) != weights(before / "base" / STUDENT)


def test_the_critic_learns_alone_first_and_then_both(root):
    table = run_stage(root, "warmup", config())
    assert series(table, "critic/grad_norm").index.tolist() == [1, 2, 3, 4]
    assert series(table, "actor/pg_loss").index.tolist() == [3, 4]  # two steps of the critic alone
    table = run_stage(root, "gad", config())
    assert series(table, "actor/pg_loss").index.tolist() == [5, 6, 7, 8]  # counted on
    assert series(table, "critic/prior_steps").tolist() == [4]


def test_while_the_critic_warms_up_the_student_stays_as_it_is(root):
    run_stage(root, "warmup", config(warmup={"critic_warmup": 4}))
    assert weights(root / "warmup" / STUDENT) == weights(root / "seqkd" / STUDENT)
    assert (root / "warmup" / CRITIC / "head.safetensors").exists()


def test_gad_goes_on_with_the_warmups_student_and_critic(root):
    settings = config(gad={"max_steps": 1, "actor_lr": 1e-12, "critic_lr": 1e-12})
    run_stage(root, "warmup", settings)
    run_stage(root, "gad", settings)
    for part in ("head.safetensors", "model.safetensors"):
        from safetensors.torch import load_file

        old, new = (load_file(root / name / CRITIC / part) for name in ("warmup", "gad"))
        for key, value in old.items():
            torch.testing.assert_close(new[key], value, rtol=0, atol=1e-6)
    one, two = (load_policy(root / name / STUDENT, torch.device("cpu")) for name in ("warmup", "gad"))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_without_seqkd_the_warmup_starts_from_the_base_model(root):
    off = config(seqkd={"enabled": False}, warmup={"critic_warmup": 4})
    shutil.rmtree(root / "seqkd")
    run_stage(root, "seqkd", off, seed=None)
    assert not (root / "seqkd" / STUDENT).exists()
    run_stage(root, "warmup", off)
    assert weights(root / "warmup" / STUDENT) == weights(root / "base" / STUDENT)


def test_stopping_after_the_warmup_evaluates_its_student(root):
    off = config(gad={"enabled": False})
    run_stage(root, "warmup", off)
    run_stage(root, "gad", off)
    assert not (root / "gad" / STUDENT).exists()
    stopped = run_stage(root, "evaluate", off)
    shutil.copytree(root / "warmup" / STUDENT, root / "gad" / STUDENT)
    shutil.copytree(root / "warmup" / CRITIC, root / "gad" / CRITIC)
    again = run_stage(root, "evaluate", off)
    pd.testing.assert_frame_equal(stopped, again)


def test_skipping_the_warmup_is_allowed_and_shows(root, caplog):
    off = config(warmup={"enabled": False})
    run_stage(root, "warmup", off)
    table = run_stage(root, "gad", off)
    assert series(table, "critic/prior_steps").tolist() == [0]
    assert series(table, "actor/pg_loss").index.tolist() == [1, 2, 3, 4]
    assert "warmup is skipped" in caplog.text


def test_the_critic_starts_from_a_reward_model(root, tmp_path):
    student = load_policy(root / "seqkd" / STUDENT, torch.device("cpu"))
    judge = Qwen2ForSequenceClassification(copy.deepcopy(student.config))
    judge.config.num_labels = 1
    judge.score = torch.nn.Linear(student.config.hidden_size, 1, bias=False)
    judge.config.pad_token_id = 0
    judge.save_pretrained(tmp_path / "judge" / "files")
    for folder in (tmp_path / "judge" / "files", tmp_path / "two"):
        load_tokenizer(root / "seqkd" / STUDENT).save_pretrained(folder)
    critic = new_critic(
        config().critic.model_copy(update={"init": "reward_model"}),
        root / "seqkd" / STUDENT,
        tmp_path / "judge" / "files",
        CPU,
        torch.Generator(),
    )
    prompt, response = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9, 10, 1]])
    ones = torch.ones_like
    found = critic(Sequences(prompt, ones(prompt), response, ones(response)))
    with torch.no_grad():
        expected = judge.eval()(input_ids=torch.cat([prompt, response], 1)).logits[0, 0]
    assert found[0, -1].item() == pytest.approx(expected.item(), abs=1e-5)  # the last token's score is the reward
    judge.config.num_labels = 2
    judge.score = torch.nn.Linear(student.config.hidden_size, 2, bias=False)
    judge.save_pretrained(tmp_path / "two")
    with pytest.raises(ValueError, match="one output"):
        ValueModel.from_reward_model(tmp_path / "two", CPU, root / "seqkd" / STUDENT)


# --- everything learns ----------------------------------------------------------------------------------------------


def unmoved(before, after):
    """Names of the tensors that are what they were, bit by bit."""
    from safetensors.torch import load_file

    old, new = ({**load_file(each)} for each in (before, after))
    assert old.keys() == new.keys()
    return {name for name in old if torch.equal(old[name], new[name])}


# The bias of the head adds the same to every pooled score, and a difference does not see it: its gradient is 0 where
# lengths do not count, but for the regulariser of d-final. It is the only such parameter.
SHIFT = {"v1": {"head.bias"}, "v2": {"head.bias"}}


@pytest.mark.parametrize("discriminator", ["original", "v1", "v2", "final"])
def test_every_parameter_has_moved_after_three_steps_from_the_true_start(root, discriminator, monkeypatch):
    """SeqKD's student, and student and critic of both adversarial stages, by the stages themselves."""
    starts = []
    original = adversarial.new_critic

    def watched(*arguments):
        critic = original(*arguments)
        critic.save(root / "new critic")
        starts.append(copy.deepcopy(critic.state_dict()))
        return critic

    monkeypatch.setattr(adversarial, "new_critic", watched)
    three = {"max_steps": 3, "critic_warmup": 0}
    settings = config(discriminator=discriminator, seqkd={"max_steps": 3}, warmup=three, gad=three)
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    run_stage(root, "seqkd", settings, seed=None)
    run_stage(root, "warmup", settings)
    run_stage(root, "gad", settings)
    places = [root / "base", root / "seqkd", root / "warmup", root / "gad"]
    for before, after in pairwise(places):
        assert not unmoved(before / STUDENT / "model.safetensors", after / STUDENT / "model.safetensors"), after.name
    assert starts[0]["head.weight"].abs().min() > 0  # else the body would get no gradient at the first step
    for before, after in pairwise([root / "new critic", root / "warmup" / CRITIC, root / "gad" / CRITIC]):
        assert not unmoved(before / "model.safetensors", after / "model.safetensors"), after
        still = {f"head.{name}" for name in unmoved(before / "head.safetensors", after / "head.safetensors")}
        assert still <= SHIFT.get(discriminator, set()), after


# --- fresh rollouts -----------------------------------------------------------------------------------------------


def test_rollouts_always_use_the_current_student(root, monkeypatch):
    """The lag is 0 at every step, and the sampler's own log-probabilities are those of the student at that moment."""
    seen = []
    original = Trainer._update_student

    def watched(self, sequences, advantages, step):
        with torch.no_grad():
            now, _ = token_logps(self.student, sequences, 0.8)
        seen.append((now - sequences.logps).abs().max().item())
        return original(self, sequences, advantages, step)

    monkeypatch.setattr(Trainer, "_update_student", watched)
    table = run_stage(root, "warmup", config(warmup={"max_steps": 6, "actor_lr": 1e-2}))
    assert series(table, "rollout/policy_lag").tolist() == [0.0] * 6
    assert len(seen) == 4
    assert max(seen) < 1e-4


def test_stale_weights_are_noticed(root):
    """A sampler with a copy of the weights, as vLLM had: the counter that the copy carries stays behind.

    The gap of the log-probabilities shows it too, and would also for a sampler that carries no counter.
    """
    run = trainer(root, config(warmup={"critic_warmup": 0, "actor_lr": 1e-2}))
    run.rollouts.model = copy.deepcopy(run.student)
    found = [run.step(step) for step in range(3)]
    assert [metrics["rollout/policy_lag"] for metrics in found] == [0.0, 4.0, 8.0]  # two passes of two minibatches each
    gaps = [metrics["rollout/logp_gap"] for metrics in found]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 0.5  # what the rule stale-rollouts ends a run for
    run.rollouts.model = run.student
    last = run.step(3)
    assert last["rollout/policy_lag"] == 0
    assert last["rollout/logp_gap"] < 1e-5
    assert steps_taken(run.student) == 16


def test_the_counter_is_not_part_of_a_saved_student(root):
    run_stage(root, "warmup", config())
    from safetensors.torch import load_file

    assert not [
        name for name in load_file(root / "warmup" / STUDENT / "model.safetensors") if "optimizer_steps" in name
    ]


# --- the faults, and what they show -------------------------------------------------------------------------------


def test_identical_responses_give_no_signal(root):
    faulty = config(sampling={"temperature": None}, rollout={"group_size": 4})
    table = run_stage(root, "warmup", faulty)
    assert set(series(table, "reward/group_std")) == {0.0}
    assert set(series(table, "reward/zero_std_groups")) == {1.0}
    assert set(series(table, "rollout/distinct")) == {0.25}
    assert set(series(table, "actor/pg_loss").abs()) == {0.0}
    healthy = series(run_stage(root, "gad", config(warmup={"enabled": False})), "actor/pg_loss").abs()
    assert healthy.min() > 1e-4


def test_one_update_per_rollout_leaves_the_ratio_at_one(root):
    faulty = config(update={"epochs": 1, "minibatches": 1})
    table = run_stage(root, "warmup", faulty)
    assert series(table, "actor/ppo_kl").abs().max() < 1e-6
    assert set(series(table, "actor/pg_clipfrac")) == {0.0}
    healthy = run_stage(root, "gad", config(warmup={"enabled": False}))
    assert series(healthy, "actor/ppo_kl").abs().max() > 1e-5


def test_a_tiny_clip_range_clips_most_of_the_update(root):
    faulty = config(clip={"low": 3e-4, "high": 4e-4}, warmup={"critic_warmup": 0, "max_steps": 6})
    clipped = series(run_stage(root, "warmup", faulty), "actor/pg_clipfrac").mean()
    assert clipped > 0.3


def test_the_limit_follows_the_teachers_lengths(root):
    limits = {}
    for factor in (1.0, 3.0):
        settings = config(sampling={"length_factor": factor}, warmup={"max_steps": 2})
        table = run_stage(root, "warmup", settings, out=root / f"factor {factor}")
        limits[factor] = series(table, "response_length/limit").iloc[0]
        assert limits[factor] / series(table, "response_length/teacher_p99").iloc[0] == pytest.approx(factor, rel=0.05)
        assert series(table, "response_length/max").max() <= limits[factor]
    assert limits[3.0] > 2.9 * limits[1.0]


# --- the critic ---------------------------------------------------------------------------------------------------


def test_the_critic_scores_equal_responses_equally_and_sees_the_token_itself(root):
    run = trainer(root, config(sampling={"temperature": None}))
    torch.nn.init.normal_(run.critic.head.weight)
    rows = read_rows(root / "data" / "train.jsonl")[:3]
    sequences, _ = run.rollouts.sample(rows, group_size=5, generator=torch.Generator(), memory=MicroBatch())
    found = score(run.critic, sequences, MicroBatch(4), "mean")
    groups = found.pooled.view(3, 5)
    assert (groups == groups[:, :1]).all()
    with torch.no_grad():
        values = run.critic(sequences)
        changed = sequences.response_ids.clone()
        changed[:, 3] = 9
        other = run.critic(Sequences(sequences.prompt_ids, sequences.prompt_mask, changed, sequences.mask))
    torch.testing.assert_close(other[:, :3], values[:, :3], rtol=0, atol=1e-5)
    assert (other[:, 3] - values[:, 3]).abs().max() > 1e-3


def test_the_critics_update_is_the_gradient_of_the_mean_over_all_pairs(root):
    """One pass with one minibatch, in micro-batches or not, is one step along the gradient of the whole loss."""
    settings = config()
    loss, results = build_loss(settings), []
    for micro_batch in (None, 1):
        run = trainer(root, settings)
        torch.nn.init.normal_(run.critic.head.weight, generator=torch.Generator().manual_seed(0))
        rows = run._rows_of(0)
        sequences, _ = run.rollouts.sample(
            rows, group_size=4, generator=torch.Generator().manual_seed(0), memory=MicroBatch()
        )
        teacher = run.rollouts.teacher(rows)
        losses, _ = loss(*pair_scores(run.critic, teacher, sequences, torch.arange(len(rows)), 4, pooling="mean"))
        expected = torch.autograd.grad(losses.mean(), run.critic.head.weight)[0]
        before = run.critic.head.weight.detach().clone()
        update_critic(
            Learner(run.critic, torch.optim.SGD(run.critic.parameters(), lr=1.0), 1e9, MicroBatch(micro_batch)),
            loss,
            teacher,
            sequences,
            settings=settings.critic,
            pooling="mean",
            generator=torch.Generator(),
        )
        torch.testing.assert_close(before - run.critic.head.weight, expected, rtol=1e-4, atol=1e-5)
        results.append(run.critic.head.weight.detach())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_metrics_are_those_of_the_pairs_of_the_step(root):
    run = trainer(root, config())
    torch.nn.init.normal_(run.critic.head.weight, generator=torch.Generator().manual_seed(1))
    frozen = copy.deepcopy(run.critic)
    metrics = run.step(0)
    rows = run._rows_of(0)
    sequences, _ = run.rollouts.sample(rows, group_size=4, generator=run._generator("sampling", 0), memory=MicroBatch())
    teacher = run.rollouts.teacher(rows)
    with torch.no_grad():
        student_means = [v[m.bool()].mean().item() for v, m in zip(frozen(sequences), sequences.mask, strict=True)]
        teacher_means = [v[m.bool()].mean().item() for v, m in zip(frozen(teacher), teacher.mask, strict=True)]
    diffs = [teacher_means[i // 4] - student for i, student in enumerate(student_means)]
    assert metrics["critic/d_acc"] == pytest.approx(sum(d > 0 for d in diffs) / len(diffs))
    assert metrics["critic/score_diff"] == pytest.approx(sum(diffs) / len(diffs), abs=1e-5)


# --- what a stage leaves ---------------------------------------------------------------------------------------------


def test_seqkd_logs_its_rate_and_gradient_and_samples_responses_to_look_at(root):
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    table = run_stage(root, "seqkd", config(seqkd={"samples": 8, "sample_prompts": 3}), seed=None)
    assert set(series(table, "seqkd/lr")) == {1e-3}
    assert (series(table, "seqkd/grad_norm") > 0).all()
    assert series(table, "seqkd/sampled_chrf").index.tolist() == [0, 6]
    assert series(table, "seqkd/sampled_chrf").between(0, 1).all()
    page = (root / "seqkd" / "responses.md").read_text()
    assert page.count("# Step ") == 2
    assert page.count("**teacher**") == 6
    assert page.count("\n8. (chrF ") == 6
    quiet = run_stage(root, "seqkd", config(seqkd={"samples": 0}), seed=None, out=root / "quiet")
    assert weights(root / "quiet" / STUDENT) == weights(root / "seqkd" / STUDENT)  # looking changes nothing
    assert series(quiet, "seqkd/sampled_chrf").empty


def test_models_of_chosen_steps_are_kept(root):
    kept = config(keep_checkpoints=2)
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    for name in ("seqkd", "warmup", "gad"):
        run_stage(root, name, kept, seed=None if name == "seqkd" else 0)
    found = {name: sorted(p.name for p in (root / name / "steps").iterdir()) for name in ("seqkd", "warmup", "gad")}
    assert found == {"seqkd": ["2", "4", "6"], "warmup": ["2", "4"], "gad": ["6", "8"]}  # as the metrics count
    for name, last in (("seqkd", "6"), ("warmup", "4"), ("gad", "8")):
        assert weights(root / name / "steps" / last / STUDENT) == weights(root / name / STUDENT)
    assert weights(root / "gad" / "steps" / "8" / CRITIC) == weights(root / "gad" / CRITIC)
    assert weights(root / "gad" / "steps" / "6" / STUDENT) != weights(root / "gad" / STUDENT)


def test_a_measurement_that_does_not_fit_costs_neither_the_models_nor_the_stage(root, monkeypatch, caplog):
    def too_large(*_, **__):
        assert (root / "warmup" / STUDENT / "model.safetensors").exists()  # saved before anything is measured
        assert (root / "warmup" / CRITIC / "head.safetensors").exists()
        raise OutOfMemory("out of memory with one row at a time")

    monkeypatch.setattr(adversarial, "measure", too_large)
    table = run_stage(root, "warmup", config())
    assert not table["name"].str.startswith("dev/").any()
    assert "development split is not measured" in caplog.text


def test_responses_to_look_at_that_do_not_fit_cost_seqkd_nothing_else(root, monkeypatch, caplog):
    def too_large(*_, step, **__):
        assert step == 0 or (root / "seqkd" / STUDENT / "model.safetensors").exists()
        raise OutOfMemory("out of memory with one row at a time")

    monkeypatch.setattr(seqkd, "look_at", too_large)
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    table = run_stage(root, "seqkd", config(seqkd={"samples": 8}), seed=None)
    assert series(table, "seqkd/loss").index.tolist() == [0, 5]  # first and last step are logged
    assert caplog.text.count("no responses to look at") == 2


def test_sampling_and_evaluation_go_on_with_fewer_rows_where_memory_does_not_suffice(root, monkeypatch):
    settings = config()
    run_stage(root, "warmup", settings)
    run_stage(root, "gad", settings)
    expected = run_stage(root, "evaluate", settings, out=root / "whole")
    original, sizes = responses.sample_all, []

    def small_device(*arguments, batch_size, **others):
        sizes.append(batch_size)
        if batch_size is None or batch_size > 3:
            raise torch.OutOfMemoryError("no")
        return original(*arguments, batch_size=batch_size, **others)

    monkeypatch.setattr(responses, "sample_all", small_device)
    found = run_stage(root, "evaluate", settings, out=root / "small")
    assert max(sizes) > 3 >= min(sizes)
    chosen = found[~found["name"].str.startswith("memory/")].reset_index(drop=True)
    pd.testing.assert_frame_equal(chosen, expected, rtol=1e-6)
    assert (found["name"] == "memory/halvings").any()


def test_one_very_long_teacher_response_does_not_set_the_limit_of_the_evaluation(root):
    rows = read_rows(root / "data" / "train.jsonl")
    lengths = teacher_lengths(root / "data")
    assert lengths["p99"] <= lengths["max"]
    outlier = {**lengths, "max": 100_000.0}
    (root / "data" / "teacher_lengths.json").write_text(json.dumps({"train": outlier}))
    run_stage(root, "warmup", config(warmup={"max_steps": 1}))
    table = run_stage(root, "evaluate", config(gad={"enabled": False}), inputs={"gad": root / "off"})
    assert len(rows) == 16
    assert series(table, "greedy/test/length").max() <= math.ceil(1.5 * lengths["p99"])


def test_a_warmup_that_is_too_short_for_its_critic_is_warned_of(root, caplog):
    table = run_stage(root, "warmup", config(warmup={"max_steps": 2, "critic_warmup": 5}))
    assert series(table, "critic/missing_warmup_steps").tolist() == [3]
    assert "the student does not learn here" in caplog.text
    fine = run_stage(root, "warmup", config(), out=root / "fine")
    assert series(fine, "critic/missing_warmup_steps").tolist() == [0]


# --- resume, seeds, evaluation ------------------------------------------------------------------------------------


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["seqkd", "warmup", "gad"])
def test_a_stage_that_is_stopped_goes_on_bit_identically(root, monkeypatch, name):
    settings = config()
    for earlier in ("warmup",) if name == "gad" else ():
        run_stage(root, earlier, settings)
    shutil.rmtree(root / name, ignore_errors=True)
    expected = run_stage(root, name, settings, out=root / "whole")

    from trainers.stage import Stage

    original = Stage.progress

    def stopping(self, done, total, unit="steps"):
        if done == 3:
            raise Killed
        original(self, done, total, unit)

    monkeypatch.setattr(Stage, "progress", stopping)
    with pytest.raises(Killed):
        run_stage(root, name, settings)
    assert (root / name / "checkpoint" / "state.json").exists()
    monkeypatch.setattr(Stage, "progress", original)
    found = run_stage(root, name, settings)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert weights(root / name / STUDENT) == weights(root / "whole" / STUDENT)


def test_seeds_differ_and_the_same_seed_repeats(root):
    settings = config(warmup={"max_steps": 2})
    first = run_stage(root, "warmup", settings, out=root / "a")
    again = run_stage(root, "warmup", settings, out=root / "b")
    other = run_stage(root, "warmup", settings, out=root / "c", seed=1)
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert series(first, "response_length/mean").tolist() != series(other, "response_length/mean").tolist()


@pytest.mark.parametrize("discriminator", ["original", "v1", "v2", "final"])
@pytest.mark.parametrize("reward", ["raw", "pooled"])
def test_every_discriminator_trains(root, discriminator, reward):
    table = run_stage(root, "warmup", config(discriminator=discriminator, reward=reward))
    assert table["value"].notna().all()  # no NaN anywhere
    for name in ("critic/d_loss", "critic/ranking_loss", "critic/d_acc", "reward/mean", "quality/chrf"):
        assert len(series(table, name)) == 4, name


def test_evaluation_keeps_a_row_per_prompt_and_the_start_beside(root):
    settings = config()
    run_stage(root, "warmup", settings)
    run_stage(root, "gad", settings)
    run_stage(root, "evaluate", settings)
    items = pd.read_parquet(root / "evaluate" / "items.parquet")
    tests = sorted(row.id for row in read_rows(root / "data" / "test.jsonl"))
    for protocol in ("greedy", "sampled", "start_greedy", "start_sampled"):
        for name in ("chrf", "rule", "length"):
            chosen = items[(items["protocol"] == protocol) & (items["name"] == name)]
            assert sorted(chosen["item"]) == tests
    assert set(items.loc[items["name"] == "win", "protocol"]) == {"greedy", "sampled"}
    assert items.loc[items["name"].isin(["chrf", "rule", "win"]), "value"].between(0, 1).all()
    prompts = {row.id: row.content[0]["content"].split() for row in read_rows(root / "data" / "test.jsonl")}
    lists = {id: f"{words[3]} {' '.join(sorted(words[5:-1]))}" for id, words in prompts.items()}  # whatever the style
    assert (items["cluster"] == items["item"].map(lists)).all()


def test_a_switched_off_stage_is_not_a_trainer(root, monkeypatch):
    monkeypatch.setattr(adversarial, "Trainer", None)  # it would be called
    adversarial.train(gad_stage(root / "off", config(), {}), course(config(gad={"enabled": False}), "gad"))
    assert not list((root / "off").iterdir())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"warmup": {"enabled": False}, "gad": {"enabled": False}}, "both false"),
        ({"task": None}, "data_source"),
        ({"critic": {"init": "reward_model"}}, "reward_model"),
        ({"data": {"train": None}}, "needs a number"),
        ({"rollout": {"group_size": 1}}, "greater than or equal to 2"),
        ({"data": {"dev": 0.1}}, "not shares"),
        ({"data": {"max_prompt_length": 9}}, "max_prompt_length has no effect"),
    ],
)
def test_configurations_that_cannot_work_are_refused(values, problem):
    with pytest.raises(ValueError, match=problem):
        config(**values)


def test_values_are_means_over_the_last_students_of_gad(root):
    """Each measured on its own, the one of n steps before the last with a seed of n more."""

    def items(folder, **evaluate):
        run_stage(root, "evaluate", config(evaluate={"samples": 2, **evaluate}), out=folder)
        table = pd.read_parquet(folder / "items.parquet")
        return table[~table["protocol"].str.startswith("start")].set_index(["protocol", "name", "item"])["value"]

    settings = config(evaluate={"samples": 2, "checkpoints": 2, "apart": 1, "seed": 3})
    run_stage(root, "warmup", settings)
    run_stage(root, "gad", settings)
    (kept,) = (root / "gad" / "measured").iterdir()
    both = items(root / "both", checkpoints=2, seed=3)
    kept.rename(root / "earlier")
    last = items(root / "last", seed=3)
    for part in ("student", "critic"):
        (root / "gad" / part).rename(root / f"last-{part}")
        (root / "earlier" / part).rename(root / "gad" / part)
    earlier = items(root / "before", seed=4)
    assert (last["sampled"] != earlier["sampled"]).any()
    pd.testing.assert_series_equal(both["sampled"].sort_index(), ((last + earlier) / 2)["sampled"].sort_index())
    pd.testing.assert_series_equal(both["greedy"].sort_index(), last["greedy"].sort_index())


def test_more_students_than_steps_are_refused():
    with pytest.raises(ValidationError, match=r"evaluate.checkpoints 3, 2 steps apart, need a gad.max_steps above 4"):
        GadConfig(evaluate={"checkpoints": 3, "apart": 2}, gad={"max_steps": 4})
    assert "evaluate.apart" in GadConfig().without_effect()


def test_what_was_measured_is_known_by_its_digest(root):
    """Measured again it is the same; with another student, or in another way, it is not."""

    def digest(folder, settings):
        run_stage(root, "evaluate", settings, out=root / folder)
        return json.loads((root / folder / "weights.json").read_text())["digest"]

    run_stage(root, "warmup", config())
    run_stage(root, "gad", config())
    found = digest("one", config())
    assert found == digest("two", config())
    assert found != digest("three", config(evaluate={"samples": 3}))
    run_stage(root, "gad", config(), seed=1)
    assert found != digest("four", config())
