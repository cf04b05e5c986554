"""What the plan says of memory, what is refused before any job, and the table of docs/how-to/fit-in-memory.md."""

from functools import cache
from pathlib import Path

import pytest

from ablation.cli.main import main
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.contract.footprint import GIB
from ablation.plan.build import build_plan
from ablation.plan.fit import USABLE, check_fit, fullest, needs_of, problem_of
from ablation.plan.retry import states_of
from ablation.plan.start import prepare
from tests.ablation.plan.commands import finish
from tests.repository import ROOT

# Of Qwen2.5-7B: queries and outputs, keys and values, three matrices of the MLP.
QWEN_BLOCK = 2 * 3_584 * 3_584 + 2 * 3_584 * 512 + 3 * 3_584 * 18_944


def plan_of(study, tmp_path, /, **overrides):
    given = {"scale": "paper", "studies": study, "seeds": 1, "results": str(tmp_path / "results"), **overrides}
    given.setdefault("reports", str(tmp_path / "reports"))
    return build_plan(load_settings(given, configs=ROOT / "configs"), root=ROOT)


@cache
def planned(study, /, **overrides):
    """A plan of which no stage has run, that several tests look at."""
    return plan_of(study, Path("nowhere"), **overrides)


def needs(plan, memory=80.0):
    return {need.stage.stage: need for need in fullest(needs_of(plan, plan.content.stages, device_memory=memory))}


def end(plan, name, state="ok"):
    for stage in plan.content.stages:
        if stage.stage == name:
            finish(stage, state)


def test_what_does_not_fit_is_refused_before_any_job_and_nothing_is_written(tmp_path):
    plan = plan_of("gad", tmp_path, gpus=8, device_memory=48)
    with pytest.raises(ConfigError) as error:
        prepare(plan, states_of(plan))
    text = str(error.value)
    assert "gad.seqkd" in text
    assert "student: weights 14.2, student: gradients 14.2, student: optimiser 28.4" in text
    assert "gpu: 4 (with mem_mb of" in text
    assert not plan.file.exists()
    assert "\n" not in text


def held(need):
    return sum(need.footprint.held.values())


def test_student_critic_and_reference_are_as_by_hand():
    need = needs(planned("gad"))["gad"].on(1)
    # Qwen2.5-7B's matrices: output matrix and embedding, and 28 blocks.
    embedding, linear = 152_064 * 3_584, 28 * QWEN_BLOCK
    student, critic = linear + 2 * embedding, linear + embedding
    sizes = need.footprint.held
    assert sizes["student: optimiser"] == 8 * student
    assert sizes["critic: weights"] == sizes["critic: gradients"] == 4 * critic
    assert sizes["reference: weights"] == 2 * student
    assert held(need) == 18 * student + 16 * critic
    assert need.footprint.host == 4 * student
    # On several devices all is divided; the first process copies the student for the reference before that.
    assert held(need.on(2)) == 9 * student + 8 * critic
    assert all(need.on(count).footprint.host == 6 * student for count in (2, 5))
    # 2 devices hold half of it, and while they sample a copy of the student, nearly all of it in bfloat16.
    draw = next(work for work in need.on(2).footprint.works if work.name == "sampling")
    alone = next(work for work in need.footprint.works if work.name == "sampling")
    copied = 2 * (linear + embedding)  # by autocast, on one device
    gathered = copied + 4 * embedding
    assert draw.of_rows(1) - alone.of_rows(1) == gathered - copied
    enough = need.enough
    assert enough.footprint.least <= USABLE * 80 * GIB < need.on(enough.devices - 1).footprint.least
    # The student of an evaluation is whole on each, its critic is divided.
    other = needs(planned("gad"))["evaluate"]
    assert held(other.on(8)) == 2 * student + -(-4 * critic // 8)


def test_what_has_ended_or_is_not_selected_is_not_refused(tmp_path):
    plan = plan_of("gad", tmp_path, device_memory=57)
    for name in ("seqkd", "warmup", "gad"):
        end(plan, name)
    (line,) = check_fit(plan, states_of(plan))
    assert line.startswith("gad.evaluate (d-original) will halve its batches: 61.8 GiB as configured")
    for other in (planned("gspo"), planned("gad,gspo", study="gspo")):
        assert check_fit(other, states_of(other)) == []


def test_a_smaller_device_is_one_setting_away():
    plan = planned("gspo", device_memory=16)
    with pytest.raises(
        ConfigError, match=r"gspo.reinforce \(ppo\) needs 20\.\d GiB on a device with one row at a time"
    ):
        check_fit(plan, states_of(plan))
    fits = planned("gspo", device_memory=24)
    assert any("gspo.reinforce" in line for line in check_fit(fits, states_of(fits)))  # halved
    unknown = planned("gad", device_memory=0)
    assert unknown.settings.device_memory is None
    assert check_fit(unknown, states_of(unknown)) == []


def test_remedies_are_those_that_exist_and_were_tried():
    plan = planned("innovations", device_memory=11)
    need = needs(plan, 11.0)["reinforce"]
    problem = problem_of(need)
    assert problem is not None
    assert "gpu: 2 (with mem_mb of" in problem.remedy
    assert "which fits" in problem.remedy
    assert "precision.compute" not in problem.remedy  # it is bfloat16 already
    whole = planned("debias")
    need = needs(whole, 1.0)["prepare"]
    assert "dtype: bfloat16 makes it" in problem_of(need).remedy


def fit(capsys, *words):
    status = main(["memory", *words, "--config", "results=nowhere"])
    return status, capsys.readouterr().out


def test_the_command_shows_needs_and_measured_peaks(tmp_path, capsys):
    plan = plan_of("gspo", tmp_path, seeds=2)
    stage = next(stage for stage in plan.content.stages if stage.stage == "reinforce" and stage.seed == 1)
    finish(stage, memory_mb=13312, device_memory_mb=20480)
    words = ["memory", "gspo", "--scale", "paper"]
    folders = [f"results={tmp_path / 'results'}", f"reports={tmp_path / 'reports'}"]
    assert main([*words, "--config", *folders]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "reinforce " in line)
    assert "host 13.0, device 20.0" in line


def test_the_commands_exit_status_says_whether_all_fits(capsys):
    assert fit(capsys, "gspo", "--scale", "paper")[0] == 0
    assert fit(capsys, "gad", "--scale", "paper")[0] == 0
    status, text = fit(capsys, "gad", "--scale", "paper", "--device-memory", "48")
    assert status == 1
    assert "does not fit: gad.gad" in text


def test_the_table_of_the_documentation_is_what_the_command_says(capsys, monkeypatch):
    page = (ROOT / "docs/how-to/fit-in-memory.md").read_text()
    # What other sources on this machine say of the models is not of this page.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(ROOT / "nowhere"))
    _, text = fit(capsys, "gad", "--scale", "paper")
    for line in text.splitlines():
        assert line in page.splitlines(), line
