"""Packages that only some environments have: a stage that needs one and is to run is refused before the first job."""

from importlib.util import find_spec

from contract.errors import ConfigError
from tracker.config import dotted
from tracker.plan.plan import Plan
from tracker.plan.retry import States, pending


def check_packages(plan: Plan, states: States) -> None:
    """Raise ConfigError where a stage that is to run needs a package that is not here.

    A config model says which, per stage: `needed_packages(stage)` -> {package: (dotted key that asks for it, remedy)}.
    """
    for stage in pending(plan, states):
        study = plan.studies.get(stage.study)
        variants = [] if study is None else [study.variants[name] for name in stage.variants]
        for variant in variants:
            needed = getattr(variant.resolved, "needed_packages", None)
            for package, (key, remedy) in ({} if needed is None else needed(stage.stage)).items():
                if find_spec(package) is None:
                    value, problem = (
                        dotted.get(variant.values, key),
                        f"{stage.id} needs {package}, which is not installed",
                    )
                    raise ConfigError(variant.file, key, value, problem, remedy)
