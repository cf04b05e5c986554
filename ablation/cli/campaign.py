"""The command `campaign`: begin one, verify its champion, report it, or judge the table of a past one."""

import argparse
from pathlib import Path

from ablation.cli.common import print_json
from ablation.cli.options import add_json
from ablation.contract.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "ablation campaign               report the campaign in this repository\nablation campaign "
        "init          start one: measure HEAD three times, write campaign.toml\nablation campaign "
        "verify        verify the provisional champion now\nablation campaign results.tsv   judge "
        "the table of a past campaign"
    )
    parser.add_argument("what", nargs="?", metavar="init | verify | FILE", help="(default: report)")
    add = parser.add_argument_group("init").add_argument
    add("--run", dest="run_command", metavar="CMD", help='the command that trains: "uv run train.py"')
    metric = "metric that the command prints once, NAME:min or NAME:max (for FILE: its column)"
    parser.add_argument("--metric", metavar="NAME", help=metric)
    add(
        "--metric-file", default="", metavar="PATH", help="file that holds the metric, if the command does not print it"
    )
    seed = parser.add_argument_group("init, seeds").add_mutually_exclusive_group().add_argument
    seed("--seed-arg", default="", metavar="WORDS", help='arguments that pass a seed to the command: "--seed {seed}"')
    seed("--seed-env", default="", metavar="NAME", help="environment variable that passes the seed instead")
    add("--verify-run", default="", metavar="CMD", help="another command, which only verifications run and measure")
    add("--locked", nargs="+", default=[], metavar="PATH", help="files that measure: no trial may change them")
    add("--link", nargs="+", default=[], metavar="PATH", help="paths that git ignores and runs need: data, .venv")
    add("--margin", type=float, metavar="M", help="amount by which a simplification may be worse")
    add("--budget", type=float, metavar="HOURS", help="total hours of runs (default: no limit)")
    add("--time-limit", type=float, metavar="MIN", help="longest run in minutes (default: 3 times the baseline's)")
    add(
        "--min-seconds",
        type=float,
        metavar="S",
        help="shortest run in seconds that counts as a training (default: a tenth of the baseline's)",
    )
    add("--gpus", type=int, default=1, metavar="N", help="devices per run, if the machine has any (default: 1)")
    add("--tag", action="store_true", help="tag verified champions in git as verified/N")
    said = "steps: verify when it pays; confirm: each step (default: steps)"
    add("--policy", choices=("steps", "confirm"), default="steps", help=said)
    add(
        "--table",
        default="results.tsv",
        metavar="PATH",
        help="table to write in the loop's format (default: results.tsv)",
    )
    output = parser.add_argument_group("report")
    add_json(output)
    output.add_argument("--html", type=Path, metavar="PATH", help="write the report as a page")
    past = parser.add_argument_group("FILE").add_argument
    past(
        "--sd",
        type=float,
        metavar="SD",
        help="standard deviation of one run (default: estimated from rows with the same name)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run what was asked for."""
    if arguments.what == "init":
        return _init(arguments)
    if arguments.what not in (None, "verify"):
        from ablation.cli.past_campaign import judge_past

        return judge_past(Path(arguments.what), arguments)
    if arguments.run_command or arguments.metric:
        raise ConfigError(
            "campaign", "--run", arguments.run_command, "works only with init", "write: ablation campaign init"
        )
    from ablation.campaign.campaign import Campaign
    from ablation.campaign.repository import Repository
    from ablation.campaign.trial import verify_now

    repository = Repository(Path())
    if arguments.what == "verify":
        answer = verify_now(repository)
        if arguments.json:
            print_json("campaign", [], exit=answer.exit, said=answer.lines, **answer.fields)
        else:
            print("\n".join(answer.lines))
        return answer.exit
    from ablation.campaign.report import in_words, summary

    campaign = Campaign(repository)
    if arguments.html:
        from ablation.campaign.page import write_page

        write_page(campaign, arguments.html)
    if arguments.json:
        print_json("campaign", [], **summary(campaign))
    else:
        print(in_words(campaign))
    return 0


def _init(arguments: argparse.Namespace) -> int:
    from ablation.campaign.campaign import begin_campaign, measure_baseline
    from ablation.campaign.policy import Rules
    from ablation.campaign.report import in_words
    from ablation.campaign.repository import Repository
    from ablation.campaign.results import write_results
    from ablation.campaign.settings import Settings, checked, split_metric
    from ablation.campaign.trial import locked

    for option in ("run_command", "metric"):
        if not getattr(arguments, option):
            name = f"--{option.removesuffix('_command')}"
            raise ConfigError("campaign init", name, None, "is missing", "write --run CMD --metric NAME:min")
    metric, direction = split_metric(arguments.metric)
    settings = Settings(
        run=arguments.run_command,
        metric=metric,
        direction=direction,
        verify_run=arguments.verify_run,
        metric_file=arguments.metric_file,
        seed_arg=arguments.seed_arg,
        seed_env=arguments.seed_env,
        margin=arguments.margin,
        budget=arguments.budget,
        locked=tuple(arguments.locked),
        links=tuple(arguments.link),
        time_limit=arguments.time_limit,
        min_seconds=arguments.min_seconds,
        gpus=arguments.gpus,
        tag=arguments.tag,
        policy=arguments.policy,
        results=arguments.table,
    )
    repository = Repository(Path())
    with locked(repository):
        rules = Rules(confirm=settings.policy == "confirm")
        campaign = measure_baseline(begin_campaign(repository, checked(settings), rules))
        write_results(campaign)
    print(in_words(campaign))
    if not campaign.settings.locked and len(campaign.start["locked"]) == 2:
        print("nothing is locked, so a trial may change the code that measures it; name these files with --locked")
    return 0
