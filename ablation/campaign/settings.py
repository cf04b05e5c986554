"""The settings of a campaign: `campaign.toml`, which a trial may not change."""

import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.runner.devices import visible_devices

SETTINGS, LEDGER, TABLE = "campaign.toml", "campaign.jsonl", "results.tsv"
_HEAD = "# What this campaign measures, and how. To change it, start a new campaign with `ablation campaign init`.\n"
_SHELL = re.compile(r"&&|\|\||[|<>;`]|\$\(")


@dataclass(frozen=True)
class Settings:
    """The settings of one campaign.

    Attributes:
        run: command that trains and prints the metric.
        metric: name of the metric.
        direction: `min` or `max`.
        verify_run: command of verifications, if it differs from `run`.
        metric_file: file with the metric, if the command does not print it.
        items: file with the metric of each item.
        seed_arg: words with `{seed}` that give the command its seed.
        seed_env: environment variable that gives the command its seed.
        margin: largest difference that a simplification may make.
        budget: limit on the hours of all runs.
        locked: paths that no trial may change.
        links: paths that git ignores and runs need (data, .venv).
        time_limit: limit on the minutes of a run (default: 3 times the baseline).
        min_seconds: a run that ends sooner did not train (default: a tenth of the baseline).
        gpus: number of devices per run.
        tag: whether verified champions get a git tag.
        policy: `steps` to verify several steps at once, or `confirm` to verify each step before the next.
    """

    run: str
    metric: str
    direction: str
    verify_run: str = ""
    metric_file: str = ""
    items: str = ""
    seed_arg: str = ""
    seed_env: str = ""
    margin: float | None = None
    budget: float | None = None
    locked: Sequence[str] = ()
    links: Sequence[str] = ()
    time_limit: float | None = None
    min_seconds: float | None = None
    gpus: int = 1
    tag: bool = False
    policy: str = "steps"

    @property
    def sign(self) -> int:
        """Factor, 1 or -1, by which the metric is multiplied so that larger values are better."""
        return -1 if self.direction == "min" else 1

    def text(self) -> str:
        """Return the content of `campaign.toml`."""
        values = {name: value for name, value in asdict(self).items() if value not in (None, "") and value != []}
        return _HEAD + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

    def words(self, seed: int, *, verify: bool) -> list[str]:
        """Return the command of a run as words; a command with shell syntax becomes an argument of `sh -c`."""
        command = (verify and self.verify_run) or self.run
        if self.seed_arg:
            command += " " + self.seed_arg.replace("{seed}", str(seed))
        return ["sh", "-c", command] if _SHELL.search(command) else shlex.split(command)

    @property
    def held_out(self) -> list[str]:
        """Paths that the command of verifications names but the command of trials does not."""
        return [path for path in named(self.verify_run) if path not in named(self.run)]


def named(command: str) -> list[str]:
    """Return the paths that a command may name: its words, and the files of modules that its words name."""
    words = [*shlex.shlex(command, posix=True, punctuation_chars=True)] if command else []
    paths = [path for word in words for path in (word, f"{word.replace('.', '/')}.py", word.replace(".", "/"))]
    return [path for path in dict.fromkeys(paths) if not path.startswith(("-", "/")) and path.strip("./")]


def checked(settings: Settings) -> Settings:
    """Return the settings unchanged. Raises ConfigError if one of them is not valid."""

    def refuse(option: str, value: Any, problem: str, remedy: str) -> None:
        raise ConfigError("campaign init", option, value, problem, remedy)

    for option, command in (("--run", settings.run), ("--verify-run", settings.verify_run)):
        try:
            words = shlex.split(command)
        except ValueError as error:
            refuse(option, command, f"cannot be read as a command ({error})", "close the quotes")
        if not words and option == "--run":
            refuse(option, command, "is empty", 'name the command that trains, such as "uv run train.py"')
    if settings.seed_arg and "{seed}" not in settings.seed_arg:
        remedy = 'write {seed} where the seed goes, such as in "--seed {seed}"'
        refuse("--seed-arg", settings.seed_arg, "does not contain {seed}", remedy)
    for option in ("margin", "budget", "time_limit"):
        value = getattr(settings, option)
        if value is not None and not 0 < value < math.inf:
            refuse(f"--{option.replace('_', '-')}", value, "is not a number above 0", "pass a positive number")
    pool = len(visible_devices())
    if not 0 <= settings.gpus <= (pool or settings.gpus):
        remedy = f"pass a number from 0 to {pool}" if pool else "pass 0 or more"
        refuse("--gpus", settings.gpus, "is not a valid number of devices", remedy)
    return settings


def split_metric(text: str) -> tuple[str, str]:
    """Return the name and direction in a text such as `val_bpb:min`; the direction is empty if it is unknown."""
    from ablation.config.names import known_direction  # imports pydantic, which no trial needs

    name, _, direction = text.rpartition(":")
    return (name, direction) if direction in ("min", "max") else (text, known_direction(text) or "")
