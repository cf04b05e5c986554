"""Settings of a grid: `configs/config.yaml`, overridden by `snakemake --config key=value`."""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from ablation.config.names import Strict, check_name, distinct
from ablation.config.scale import Seed, Seeds, load_scale
from ablation.config.validation import validate
from ablation.config.yaml_io import load_yaml
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError, check_decoded
from ablation.contract.numbers import counted

_OVERRIDES = "--config"
# The project's own folders: what a grid writes there would be mixed up with them.
_PROJECT = (".git", ".snakemake", "ablation", "configs", "docs", "tests", "trainers", "workflow")
_RESULTS = ("stages", "imported", "logs")  # of the results


def _number(value: Any) -> Any:
    """Return text from `--config` as a number; return anything else unchanged, for validation to check."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,20}(\.[0-9]+)?\s*", value):
        return float(value) if "." in value else int(value)
    return value


def _seeds(value: Any) -> Any:
    if isinstance(value, str) and "," in value:
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list):  # Snakemake hands `seeds=[0,1]` over as a list of texts
        return tuple(_number(part) for part in value)
    return _number(value)


def _names(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return tuple(part.strip() for part in str(value).split(",") if part.strip())


def _studies(value: Any) -> Any:
    """Return the planned variants of each study; an empty list plans all of them."""
    if isinstance(value, Mapping):
        return {str(name): [] if variants in (None, "null") else variants for name, variants in value.items()}
    return {name: [] for name in distinct(_names(value))}


def _shard(value: str | None) -> str | None:
    if value is not None:
        match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", value)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError("is not k/n with k from 1 to n; write a value such as 1/2")
    return value


_NUMBER = BeforeValidator(_number)
_Count = Annotated[int, _NUMBER, Field(ge=0, lt=1_000_000)]
_Amount = Annotated[
    float | None, _NUMBER, Field(ge=0, allow_inf_nan=False), AfterValidator(lambda value: value or None)
]
_Name = Annotated[str, BeforeValidator(str)]
_Names = Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(distinct)]
_Folder = Annotated[Path, PlainValidator(lambda value: Path(str(value)))]


class SettingsFile(Strict):
    """The content of `configs/config.yaml`. Only `scale`, `studies` and `seeds` can affect the keys of stages."""

    scale: _Name = Field(default="demo", description="The scale: the name of a file in configs/scales, without .yaml.")
    studies: Annotated[dict[str, _Names] | None, BeforeValidator(_studies)] = Field(
        default=None,
        min_length=1,
        description="The studies to plan, as [a, b] or a,b; null: all in configs/studies. {a: [x, y], b: null} plans "
        "variants x and y of study a with their ancestors, and all variants of study b.",
    )
    seeds: Annotated[Seeds | None, BeforeValidator(_seeds)] = Field(
        default=None, description="The number of seeds, or a list of seeds; null: the scale's seeds."
    )
    gpus: _Count = Field(default=1, description="The number of devices; `--resources gpu=N` takes precedence.")
    results: _Folder = Path("results")
    reports: _Folder = Path("reports")
    wandb: Annotated[Literal["offline", "online"] | None, BeforeValidator(lambda value: value or None)] = Field(
        default=None,  # `off` in YAML 1.1 is false
        description="How to log every stage to W&B as well: offline, online, or null for no logging to W&B.",
    )
    fork_server: Annotated[
        bool, BeforeValidator(lambda value: {"true": True, "false": False}.get(str(value).lower(), value))
    ] = Field(
        default=True,
        description="Whether to fork local stages from a process that has already imported libraries, which saves "
        "start-up time.",
    )
    group_minutes: _Count = Field(
        default=0,
        description="On a scheduler, consecutive stages of a run share a job if each needs at most this many minutes.",
    )
    cost_per_device_hour: _Amount = Field(
        default=None, description="The price of a device-hour in your currency, such as 2.5."
    )
    # Selection of jobs; the tables always show the whole plan.
    study: _Name | None = Field(default=None, description="The study to run.")
    variant: _Names = Field(default=(), description="The variants to run, as [a, b] or a,b; their parents run as well.")
    seed: Annotated[Seed | None, _NUMBER] = Field(default=None, description="The seed to run.")
    shard: Annotated[str | None, AfterValidator(_shard)] = Field(
        default=None,
        description="The part k/n of the seeds to run, such as 1/2: every n-th seed, starting with the k-th. `ablation "
        "merge` joins the results.",
    )
    retry: Literal["failed"] | None = Field(default=None, description="`failed` runs failed stages again.")


class Settings(SettingsFile):
    """The settings, completed from the scale file.

    `study_seeds` has the seeds of studies for which the scale file sets seeds, and `seeds` those of all others.
    `studies` has the planned variants of each study; an empty tuple plans all of them.
    """

    configs: Path
    studies: dict[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    study_seeds: Mapping[str, tuple[int, ...]]

    def seeds_of(self, study: str) -> tuple[int, ...]:
        """Return the seeds planned for a study."""
        return self.study_seeds.get(study, self.seeds)


def load_settings(overrides: Mapping[str, Any] | None = None, *, configs: Path = Path("configs")) -> Settings:
    """Read config.yaml, override its values, check all of them, and complete them from the scale file.

    Args:
        overrides: values of `snakemake --config`, as text such as "2" or "a,b" or as values of the right type.
        configs: the folder of all configurations.

    Raises ConfigError if a key is unknown, or if a value is not valid or names something that does not exist.
    """
    file = configs / "config.yaml"
    check_decoded(configs)
    written = SettingsFile()
    where = dict.fromkeys(SettingsFile.model_fields, str(file))
    for source, values in ((str(file), load_yaml(file)), (_OVERRIDES, overrides or {})):
        overriding = validate(SettingsFile, _given(values), source)
        written = written.model_copy(update={key: getattr(overriding, key) for key in overriding.model_fields_set})
        where |= dict.fromkeys(overriding.model_fields_set, source)

    def check_names(key: str, names: Iterable[str], names_known: list[str], kind: str) -> None:
        for name in names:
            check_name(name, names_known, where[key.partition(".")[0]], key, f"the {kind} does not exist")

    check_names("scale", [written.scale], sorted(path.stem for path in (configs / "scales").glob("*.yaml")), "scale")
    all_studies = sorted(path.parent.name for path in (configs / "studies").glob("*/_study.yaml"))
    studies = written.studies or dict.fromkeys(all_studies, ())
    if not studies:
        raise ConfigError(file, "studies", None, "no study exists", f"add one to {configs / 'studies'}")
    check_names("studies", studies, all_studies, "study")
    for study, variants in studies.items():
        files = (configs / "studies" / study).glob("*.yaml")
        check_names(f"studies.{study}", variants, sorted({path.stem for path in files} - {"_study"}), "variant")
    if written.study is not None:
        check_names("study", [written.study], all_studies, "study")
        if written.study not in studies and where["study"] == _OVERRIDES:
            studies = {**studies, written.study: ()}
    if written.wandb is not None and importlib.util.find_spec("wandb") is None:
        remedy = "run `pip install wandb`, or set `wandb` to null"
        raise ConfigError(where["wandb"], "wandb", written.wandb, "wandb is not installed", remedy)
    folders = {
        key: _folder_of(key, str(getattr(written, key)), where[key], configs.parent) for key in ("results", "reports")
    }
    _check_apart(folders["results"], folders["reports"], str(written.reports), where["reports"])

    scale = load_scale(configs, written.scale).written
    own_seeds = {name: part.seeds for name, part in scale.studies.items() if part.seeds is not None}
    completed = {
        "configs": configs,
        "studies": studies,
        "seeds": written.seeds or scale.seeds,
        "study_seeds": {} if written.seeds else own_seeds,
    }
    settings = Settings.model_construct(**{**dict(written), **folders, **completed})
    run = studies if written.study is None else [written.study]
    planned = sorted({seed for study in run for seed in settings.seeds_of(study)})
    if settings.seed is not None and settings.seed not in planned:
        remedy = f"choose from {listed(list(map(str, planned)), 10)}"
        raise ConfigError(where["seed"], "seed", settings.seed, "is not a seed of the plan", remedy)
    if settings.shard is not None:
        first, count = map(int, settings.shard.split("/"))
        planned_seeds = {seed for study in run for seed in sorted(settings.seeds_of(study))[first - 1 :: count]}
        if not planned_seeds:
            problem = f"contains no seed, because the plan has only {counted(len(planned), 'seed')}"
            raise ConfigError(where["shard"], "shard", settings.shard, problem, "use fewer shards, or more seeds")
        if settings.seed not in (None, *planned_seeds):
            problem = f"does not contain seed {settings.seed}"
            remedy = "choose another shard, or leave out `seed`"
            raise ConfigError(where["shard"], "shard", settings.shard, problem, remedy)
    return settings


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, except null and empty text of known keys; paths become text, as in YAML."""
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in values.items()
        if key not in SettingsFile.model_fields or (value is not None and value != "")
    }


def _folder_of(key: str, text: str, where: str, project: Path) -> Path:
    """Return the folder that the setting `key` names as `text`, with `~` expanded; raise ConfigError if it is unusable.

    `where` is the file that sets the value, or `--config`; `project` is the folder that contains `configs`.
    """
    if not text.strip() or not text.isprintable() or set(text) & set("{}*?[]"):
        remedy = "name a folder without braces, wildcards or control characters"
        raise ConfigError(where, key, text, "is not a usable folder", remedy)
    if text.startswith("-"):  # Snakemake and the tracker get it as an argument
        raise ConfigError(where, key, text, "looks like a command-line option", "do not begin the name with `-`")
    try:
        folder = Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(where, key, text, "the home folder does not exist", "write the full path") from None
    try:
        problem = _problem(folder, project)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise ConfigError(where, key, text, problem, f"name a new folder, or one that holds earlier {key}")
    return folder


def _check_apart(results: Path, reports: Path, text: str, where: str) -> None:
    place, inside = reports.resolve(), results.resolve()
    if place == inside or any(place.is_relative_to(inside / name) for name in _RESULTS):
        problem = "is also the results folder" if place == inside else "is inside the results folder"
        raise ConfigError(where, "reports", text, problem, "name another folder")


def _problem(folder: Path, project: Path) -> str:
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            return f"{'' if path == folder else f'{path} '}is a link to {path.readlink()}, which does not exist"
        if path.exists():
            if not path.is_dir():
                return f"{'' if path == folder else f'{path} '}is not a folder"
            break
    place, root = folder.resolve(), project.resolve()
    if root.is_relative_to(place):
        return "is the project's folder" if root == place else "contains the project's folder"
    if any(place.is_relative_to(root / name) for name in _PROJECT):
        return f"is in a folder of the project's own files ({place.relative_to(root).parts[0]})"
    return ""
