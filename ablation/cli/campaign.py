"""The commands `campaign` and `try`: start, verify or report a campaign of trials, judge a past one, and run a trial.

A trial is one commit of a loop that edits, commits, trains, and keeps or drops the commit.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.cli.common import add_shared, print_json
from ablation.contract.errors import ConfigError, explained

if TYPE_CHECKING:
    from ablation.campaign.trial import Answer


def declare_campaign(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `campaign`."""
    parser.description = (
        "ablation campaign               report the campaign in this repository\n"
        "ablation campaign init          start a campaign: measure HEAD three times and write campaign.toml\n"
        "ablation campaign verify        verify the best commit so far (the provisional champion) now\n"
        "ablation campaign results.tsv   judge the attempts in the table of a past campaign"
    )
    text = "what to do (default: report the campaign)"
    parser.add_argument("what", nargs="?", metavar="init | verify | FILE", help=text)
    text = "metric that the command prints once, as NAME:min or NAME:max; with FILE, the name of its column"
    parser.add_argument("--metric", metavar="NAME", help=text)
    add = parser.add_argument_group("init").add_argument
    add("--run", dest="run_command", metavar="CMD", help='training command, such as "uv run train.py"')
    text = "file that contains the metric, if the command does not print it"
    add("--metric-file", default="", metavar="PATH", help=text)
    text = "file with the metric of each item, in any format that `compare` reads; trials are judged by the mean"
    add("--items", default="", metavar="FILE", help=text)
    add("--verify-run", default="", metavar="CMD", help="command for verifications (default: the command of --run)")
    text = "files that compute the metric; neither trials nor runs may change them"
    add("--locked", nargs="+", default=[], metavar="PATH", help=text)
    text = "files that git ignores but runs need, such as data or .venv"
    add("--link", dest="links", nargs="+", default=[], metavar="PATH", help=text)
    add("--margin", type=float, metavar="M", help="difference within which a simplification counts as equivalent")
    add("--budget", type=float, metavar="HOURS", help="limit on the total hours of all runs (default: no limit)")
    text = "time limit of a run in minutes (default: 3 times the baseline's time)"
    add("--time-limit", type=float, metavar="MIN", help=text)
    text = "refuse runs that end within this many seconds (default: a tenth of the baseline's time)"
    add("--min-seconds", type=float, metavar="S", help=text)
    add("--gpus", type=int, default=1, metavar="N", help="devices per run, if the machine has any (default: 1)")
    add("--tag", action="store_true", help="tag each verified commit in git as verified/N")
    text = (
        "when to verify kept commits: after each one (confirm), or once a verification needs few runs, at the latest "
        "after 8 kept commits (steps, the default)"
    )
    add("--policy", choices=("steps", "confirm"), default="steps", help=text)
    seed = parser.add_argument_group("init, seeds").add_mutually_exclusive_group().add_argument
    text = 'arguments that pass a seed to the command, such as "--seed {seed}"'
    seed("--seed-arg", default="", metavar="WORDS", help=text)
    text = "environment variable that passes the seed to the command"
    seed("--seed-env", default="", metavar="NAME", help=text)
    output = parser.add_argument_group("report")
    add_shared(output, "--json")
    output.add_argument("--html", type=Path, metavar="PATH", help="also write the report as an HTML page to this file")
    past = parser.add_argument_group("FILE").add_argument
    text = "standard deviation between runs of the same code (default: estimated from rows with the same name)"
    past("--sd", type=float, metavar="SD", help=text)


def run_campaign(arguments: argparse.Namespace) -> int:
    """Start, verify or report the campaign, or judge the table of a past one."""
    task = {None: "the report", "init": "init", "verify": "verify"}.get(arguments.what, "FILE")
    _refuse_unused(arguments, task)
    if task == "init":
        return _init(arguments)
    if task == "FILE":
        from ablation.cli.past_campaign import judge_past

        return judge_past(Path(arguments.what), arguments)
    from ablation.campaign.repository import Repository

    if arguments.what == "verify":
        from ablation.campaign.trial import verify_now

        return answered("campaign", lambda: verify_now(Repository(Path())), as_json=arguments.json)
    from ablation.campaign.campaign import Campaign
    from ablation.campaign.report import in_words, summary, write_page

    campaign = Campaign(Repository(Path()))
    if arguments.html:
        write_page(campaign, arguments.html)
    if arguments.json:
        print_json("campaign", [], **summary(campaign))
    else:
        print(in_words(campaign))
    return 0


def _refuse_unused(arguments: argparse.Namespace, task: str) -> None:
    """Raise a ConfigError for an option that this task would ignore."""
    uses = {"what": (task,), "metric": ("init", "FILE"), "sd": ("FILE",), "html": ("the report",)}
    uses["json"] = ("the report", "verify", "FILE")
    parser = argparse.ArgumentParser()
    declare_campaign(parser)
    for name, default in vars(parser.parse_args([])).items():
        tasks = uses.get(name, ("init",))
        if task not in tasks and getattr(arguments, name) != default:
            option = {"run_command": "--run", "links": "--link"}.get(name, f"--{name.replace('_', '-')}")
            problem = f"works only with {' or '.join(tasks)}"
            if "the report" in tasks:
                problem = f"cannot be combined with {'a FILE' if task == 'FILE' else task}"
            raise ConfigError("campaign", option, None, problem, "leave it out")


def _init(arguments: argparse.Namespace) -> int:
    from ablation.campaign.campaign import begin_campaign
    from ablation.campaign.report import in_words
    from ablation.campaign.repository import Repository
    from ablation.campaign.settings import Settings, checked, split_metric
    from ablation.campaign.trial import locked, write_table

    for option, value in (("--run", arguments.run_command), ("--metric", arguments.metric)):
        if not value:
            raise ConfigError("campaign init", option, None, "is missing", "pass --run CMD --metric NAME:min")
    metric, direction = split_metric(arguments.metric)
    if not direction:
        problem = "does not say which values are better"
        remedy = f"write {metric}:max if larger is better, {metric}:min if smaller is better"
        raise ConfigError("campaign init", "--metric", metric, problem, remedy)
    given = vars(arguments) | {"run": arguments.run_command, "metric": metric, "direction": direction}
    settings = checked(Settings(**{each.name: given[each.name] for each in fields(Settings)}))
    repository = Repository(Path())
    with locked(repository):
        campaign = begin_campaign(repository, settings)
        write_table(campaign)
    print(in_words(campaign))
    if len(campaign.start["locked"]) == 2:
        print(
            "no file is locked, so a trial may change how the metric is computed; to prevent this, start again with "
            "--locked and the files that compute it"
        )
    if settings.verify_run and not repository.tracked(settings.held_out):
        print(
            "--run names every file that --verify-run names, so trials can see all data of verifications; to hide some "
            "from trials, run `ablation campaign init` again with a --verify-run that names another file"
        )
    return 0


def declare_try(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `try`."""
    parser.description = (
        "Run the code of HEAD, or of the working tree if it has changes, and say whether the loop should keep it.\n"
        "Exit code: 0 keep the commit; 10 reset it; 11 run the command again; 12 the commit crashed; 13 the trial was "
        "refused; 2 bad input.\n"
        "Start with: ablation campaign init"
    )
    add = parser.add_argument
    add("--why", required=True, metavar="TEXT", help="description of the change, for results.tsv")
    text = "better (default), or not-worse for a simplification, which must be equivalent within the margin"
    add("--claim", choices=("better", "not-worse"), default="better", help=text)
    add("--margin", type=float, metavar="M", help="margin for --claim not-worse (default: the campaign's)")
    add_shared(parser, "--json")


def run_try(arguments: argparse.Namespace) -> int:
    """Run the trial of a commit; return the exit code that tells the loop what to do."""
    from ablation.campaign.repository import Repository
    from ablation.campaign.trial import try_commit

    simplified = arguments.claim == "not-worse"
    if arguments.margin is not None and not simplified:
        raise ConfigError("try", "--margin", arguments.margin, "works only with --claim not-worse", "leave it out")

    def asked() -> "Answer":
        return try_commit(Repository(Path()), arguments.why, simplified=simplified, margin=arguments.margin)

    return answered("try", asked, as_json=arguments.json)


def answered(command: str, ask: "Callable[[], Answer]", *, as_json: bool) -> int:
    """Print the answer of `ask` and return its exit code; for an OSError, print the error and return 11 (run again)."""
    from ablation.campaign.trial import AGAIN

    try:
        answer = ask()
    except OSError as error:
        print(f"error: {explained(error)}", file=sys.stderr)
        return AGAIN
    if as_json:
        print_json(command, [], exit=answer.exit, said=answer.lines, **answer.fields)
    else:
        print("\n".join(answer.lines))
    return answer.exit
