"""What is planned and what is run: `configs/config.yaml`, overridden by `snakemake --config key=value`."""

import difflib
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.config.folders import check_apart, folder_of
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError

KNOWN = (
    *("scale", "studies", "seeds", "gpus", "results", "reports", "study", "variant", "seed", "retry", "wandb"),
    *("fork_server", "group_minutes", "device_memory", "cost_per_device_hour"),
)
_MAX_SEEDS = 10_000
_MAX_GPUS = 1_000_000
_MAX_MINUTES = 1_000_000
_SEEDS_END = 2**32  # numpy's generators take no larger seed
_OVERRIDES = "--config"


@dataclass(frozen=True)
class Settings:
    """The plan (scale, studies, seeds, gpus, folders) and the selection of jobs in it (study, variant, seed, retry).

    `wandb` (offline, online) is a second log of every stage; `fork_server` forks stages that run on this machine from a
    process that has torch and transformers imported; on a scheduler the stages of a run that need at most
    `group_minutes` each are submitted together. None of these is a part of any key. `study_seeds` are those of the
    studies for which the scale file has its own, `seeds` those of all others; seeds that the settings name are for all.
    `device_memory` is that of one accelerator, GiB: a stage that cannot fit is refused; None: nobody has said it.
    `cost_per_device_hour`, in any currency, turns the device-hours of `plan` and `gate` into money.
    """

    scale: str
    studies: tuple[str, ...]
    seeds: tuple[int, ...]
    gpus: int
    results: Path
    reports: Path
    configs: Path
    study: str | None = None
    variants: tuple[str, ...] = ()
    seed: int | None = None
    retry: str | None = None
    wandb: str | None = None
    fork_server: bool = True
    group_minutes: int = 0
    device_memory: float | None = None
    cost_per_device_hour: float | None = None
    study_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def seeds_of(self, study: str) -> tuple[int, ...]:
        """Return the seeds of one study: the scale may give it a number of its own."""
        return self.study_seeds.get(study, self.seeds)

    @property
    def scale_file(self) -> Path:
        """Return the file that sizes the studies."""
        return self.configs / "scales" / f"{self.scale}.yaml"


def load_settings(overrides: Mapping[str, Any] | None = None, *, configs: Path = Path("configs")) -> Settings:
    """Read config.yaml, override it, and check every value.

    Args:
        overrides: values of `snakemake --config`; each may be of its own type or text ("2", "a,b").
        configs: the folder of all configurations.

    Raises:
        ConfigError: an unknown key or a value that makes no sense.
    """
    file = configs / "config.yaml"
    values = {key: (value, str(file)) for key, value in load_yaml(file).items()}
    values |= {key: (value, _OVERRIDES) for key, value in (overrides or {}).items()}
    for key, (value, where) in values.items():
        if key not in KNOWN:
            raise ConfigError(where, key, value, "is not a setting", suggest(key, KNOWN))

    def get(key: str, default: Any = None) -> tuple[Any, str]:
        value, where = values.get(key, (None, str(file)))
        return (default if value is None or value == "" else value), where

    scale, where = get("scale", "demo")
    scale = str(scale)
    scales = sorted(path.stem for path in (configs / "scales").glob("*.yaml"))
    if scale not in scales:
        raise ConfigError(where, "scale", scale, "there is no such scale", suggest(scale, scales))
    known_studies = sorted(path.parent.name for path in (configs / "studies").glob("*/_study.yaml"))
    studies = _names("studies", *get("studies", known_studies))
    study, study_where = get("study")
    if study is not None and str(study) not in studies and study_where == _OVERRIDES:
        studies = (*studies, str(study)) if str(study) in known_studies else studies
    for name in (*studies, *([str(study)] if study is not None else [])):
        if name not in known_studies:
            where = study_where if name == study else get("studies")[1]
            raise ConfigError(where, "studies", name, "there is no such study", suggest(name, known_studies))
    if not studies:
        raise ConfigError(
            get("studies")[1], "studies", None, "no study is listed", f"known: {', '.join(known_studies)}"
        )
    seeds, study_seeds = _planned_seeds(*get("seeds"), scale_file=configs / "scales" / f"{scale}.yaml")
    seed_value, where = get("seed")
    seed = None if seed_value is None else _integer("seed", seed_value, where)
    planned = sorted(
        {each for name in (studies if study is None else [study]) for each in study_seeds.get(name, seeds)}
    )
    if seed is not None and seed not in planned:
        raise ConfigError(where, "seed", seed, "is not among the seeds of the plan", f"choose from {_brief(planned)}")
    gpus_value, where = get("gpus", 1)
    gpus = _integer("gpus", gpus_value, where, below=_MAX_GPUS)
    retry, where = get("retry")
    if retry not in (None, "failed"):
        raise ConfigError(where, "retry", retry, "is not known", "the only value is `failed`")
    variant, where = get("variant", ())
    variants = _names("variant", variant if isinstance(variant, list | tuple) else str(variant), where)
    written = {key: get(key, key) for key in ("results", "reports")}
    folders = {key: folder_of(key, value, file_, configs.parent) for key, (value, file_) in written.items()}
    check_apart(folders["results"], folders["reports"], written)
    wandb = _wandb(*get("wandb"))
    fork_server = _switch("fork_server", *get("fork_server", True))
    group_minutes = _integer("group_minutes", *get("group_minutes", 0), below=_MAX_MINUTES)
    scale_file = configs / "scales" / f"{scale}.yaml"
    asked = get("device_memory", load_yaml(scale_file).get("device_memory"))
    device_memory = _amount(
        "device_memory", *asked, "is not a valid size", "write GiB of one device, as 80; 0: not checked"
    )
    cost = _amount(
        "cost_per_device_hour", *get("cost_per_device_hour"), "is not a valid price", "write a number, as 2.5"
    )
    return Settings(
        scale=scale,
        studies=studies,
        seeds=seeds,
        gpus=gpus,
        results=folders["results"],
        reports=folders["reports"],
        configs=configs,
        study=None if study is None else str(study),
        variants=variants,
        seed=seed,
        retry=retry,
        wandb=wandb,
        fork_server=fork_server,
        group_minutes=group_minutes,
        device_memory=device_memory,
        cost_per_device_hour=cost,
        study_seeds=study_seeds,
    )


def _amount(key: str, value: Any, where: str, problem: str, remedy: str) -> float | None:
    """Return a number, or None for what nobody has said, or for 0, by which `--config` takes back what is declared."""
    if value is None:
        return None
    try:
        size = float(value)
    except (TypeError, ValueError):
        size = -1.0
    if isinstance(value, bool) or not 0 <= size < math.inf:
        raise ConfigError(where, key, value, problem, remedy)
    return size or None


def _switch(key: str, value: Any, where: str) -> bool:
    word = str(value).lower()
    if word not in ("true", "false"):
        raise ConfigError(where, key, value, "is neither true nor false", "write true or false")
    return word == "true"


def _wandb(value: Any, where: str) -> str | None:
    """Return offline or online; None: not used. What is asked for and not installed is refused before any job."""
    if value is None or value is False:  # YAML reads `off` as false
        return None
    if value not in ("offline", "online"):
        raise ConfigError(where, "wandb", value, "is not known", "write offline or online, or null to do without")
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError(where, "wandb", value, "wandb is not installed", "run `pip install wandb`, or set it to null")
    return str(value)


def suggest(name: str, known: Any) -> str:
    """Return the remedy for an unknown name: the close match if there is one, and what is known."""
    names = [str(other) for other in known]
    close = difflib.get_close_matches(str(name)[:200], names, n=1)  # of a very long one it would take minutes
    shown = ", ".join(names) if len(names) <= 25 else ", ".join(names[:25]) + f" and {len(names) - 25} more"
    return (f"did you mean {close[0]!r}? " if close else "") + f"known: {shown or 'none'}"


def _names(key: str, value: Any, where: str) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ConfigError(where, key, value, "is not a list of names", "write [a, b] or a,b")
    names = tuple(item.strip() for item in items if item.strip())
    if len(set(names)) != len(names):
        raise ConfigError(where, key, value, "names one twice", "list each once")
    return names


def _planned_seeds(value: Any, where: str, *, scale_file: Path) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Return the seeds of most studies, and those of the studies for which the scale has its own.

    What the settings give counts for all studies.
    """
    if value is not None:
        return _seeds(value, where), {}
    scale, where = load_yaml(scale_file), str(scale_file)
    studies = scale.get("studies")
    parts = studies.items() if isinstance(studies, Mapping) else ()  # what else is wrong there is told with the studies
    own = {
        str(name): part["seeds"] for name, part in parts if isinstance(part, Mapping) and part.get("seeds") is not None
    }
    of_studies = {name: _seeds(seeds, where, f"studies.{name}.seeds") for name, seeds in own.items()}
    return _seeds(scale.get("seeds", 1), where), of_studies


def _seeds(value: Any, where: str, key: str = "seeds") -> tuple[int, ...]:
    if isinstance(value, str) and "," in value:
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        count = _integer(key, value, where)
        if not 1 <= count <= _MAX_SEEDS:
            raise ConfigError(where, key, value, "is not a sensible number", f"1 to {_MAX_SEEDS}, or a list of seeds")
        return tuple(range(count))
    seeds = tuple(_integer(key, item, where) for item in value)
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(where, key, value, "is empty or names a seed twice", "list each seed once")
    return seeds


def _integer(key: str, value: Any, where: str, *, below: int = _SEEDS_END) -> int:
    """Return a whole number from 0 on; written as text it is decimal digits and nothing else."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,20}\s*", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(where, key, value, "is not a whole number from 0 on", "write 0, 1, 2, ...")
    if value >= below:
        raise ConfigError(where, key, value, "is too large", f"the largest is {below - 1}")
    return value


def _brief(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds[:10])) + (f" and {len(seeds) - 10} more" if len(seeds) > 10 else "")
