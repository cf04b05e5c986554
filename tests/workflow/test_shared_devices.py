"""Two Snakemakes on one machine share its devices, though each counts only its own jobs."""

import json
import subprocess

import pytest

from tests.workflow.project import MODULES, Project

pytestmark = pytest.mark.slow

# Creating the file fails where another job has the same device, and so would the stage.
TRAIN = (
    MODULES["train"]
    .replace(
        "    config = stage.config\n",
        """    config = stage.config
    used = os.path.join(os.environ["ABLATION_LEASES"], "used-" + os.environ["CUDA_VISIBLE_DEVICES"])
    os.close(os.open(used, os.O_CREAT | os.O_EXCL))
""",
    )
    .replace(
        '    write_json(stage.out / "weight.json"', '    os.unlink(used)\n    write_json(stage.out / "weight.json"'
    )
)


def test_a_device_is_never_used_by_two(tmp_path):
    projects = [Project.create(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "leases").mkdir()
    running = []
    for project in projects:
        project.write("trainers/debias/train.py", TRAIN)
        project.write("configs/studies/debias/a.yaml", "why: the root\npause: 0.5\n")
        environment = {**project.environment(), "ABLATION_LEASES": str(tmp_path / "leases"), "ABLATION_FAKE_GPUS": "1"}
        command = project.command("--config", "variant=a", "seeds=2", "gpus=1")
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running.append(subprocess.Popen(command, cwd=project.folder, env=environment, text=True, **output))
    texts = [process.communicate(timeout=600)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(texts)
    assert any("waits for 1 of the devices 0" in text for text in texts)
    for project in projects:
        states = [json.loads(path.read_text())["state"] for path in project.statuses()]
        assert states == ["ok"] * 5  # prepare, and two seeds of train and evaluate
