"""Optional packages: a stage that is to run and lacks one is refused before the first job."""

from importlib.util import find_spec
from pathlib import Path

from ablation.config import dotted
from ablation.contract.errors import ConfigError
from ablation.plan.plan import Plan
from ablation.plan.retry import States, pending


def check_packages(plan: Plan, states: States) -> None:
    """Raise ConfigError where a stage that is to run needs a package that is not here.

    A config model names them per stage: `needed_packages(stage)` -> {package: (dotted key that asks for it, remedy)}.
    """
    for stage in pending(plan, states):
        if stage.entry.startswith("trainers.") and find_spec("torch") is None:
            problem = f"{stage.id} is a stage of the repository's trainers, and torch is not installed"
            raise ConfigError(Path("pyproject.toml"), "trainers", None, problem, "pip install -e '.[trainers]'")
        study = plan.studies.get(stage.study)
        variants = [] if study is None else [study.variants[name] for name in stage.variants]
        for variant in variants:
            needed = getattr(variant.resolved, "needed_packages", None)
            for package, (key, remedy) in ({} if needed is None else needed(stage.stage)).items():
                if find_spec(package) is None:
                    value, problem = dotted.get(variant.values, key), f"{stage.id} needs {package}: it is not installed"
                    raise ConfigError(variant.file, key, value, problem, remedy)
