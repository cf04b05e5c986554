"""The parser of the command line: the commands in groups, and the module of each command, which is imported on use.

The module of a command X has the functions `declare_X(parser)`, which declares the options, and `run_X(arguments)`,
which returns the exit status.
"""

import argparse
import difflib
import re
import textwrap
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

GROUPS = {  # {group: {command: what it does}}
    "Project": {
        "init": "Create a project with one study",
        "validate": "Check every variant of every study",
        "variants": "List a study's variants and what each one changes",
        "show": "Print the resolved configuration of a variant",
        "diff": "Show what differs between two variants, and the effect",
        "prune": "Remove stages that are no longer needed",
    },
    "Run": {
        "check": "Try one run of a study in a separate folder",
        "status": "Show progress, failures and the time left",
        "add-seeds": "Add seeds to undecided comparisons",
        "import": "Import runs that other programs logged",
        "collect": "Update the database from the stage folders",
        "merge": "Add the stages of another results folder",
    },
    "Judge": {
        "compare": "Compare evaluations that other tools wrote",
        "verdicts": "Judge every comparison of a study",
        "gate": "Decide whether a change may merge",
        "nightly": "Tell whether a new run is worse than past runs predict",
        "explain": "Find which changes cause an effect",
        "power": "Calculate how many seeds and items an effect needs",
        "audit": "Check published numbers",
    },
    "Campaign": {
        "try": "Run a commit of an experiment loop and say whether to keep it",
        "campaign": "Start, report, verify or judge a campaign of trials",
    },
    "Output": {
        "report": "Write the report page",
        "serve": "Serve the report page to a browser while the grid runs",
        "tables": "Write tables as Markdown, CSV, LaTeX and HTML",
        "figures": "Draw learning curves, metrics and variant trees",
        "trace": "Trace a number in a table to its runs and code",
        "sql": "Query the database",
        "check-paper": "Check that a paper's numbers match the results",
        "export": "Copy a trained model as a Hugging Face folder",
        "export-tables": "Write the database as Parquet files",
    },
}
SUMMARIES = {name: text for commands in GROUPS.values() for name, text in commands.items()}
MODULES = {name: name.replace("-", "_") for name in SUMMARIES} | {
    **dict.fromkeys(("validate", "variants", "show", "diff"), "configs"),
    **dict.fromkeys(("prune", "status", "collect", "merge"), "results"),
    **dict.fromkeys(("tables", "figures", "check-paper", "export", "export-tables"), "output"),
    "import": "import_runs",
    "serve": "report",
    "try": "campaign",
}


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of `ablation`, with the options of all commands or, to import less, of one command."""
    parser = Parser(
        prog="ablation",
        usage="ablation COMMAND ...",
        description=f"Tell whether a change to a model, a prompt or a training run really helped.\n\n{_listed()}",
        epilog="Exit code: 0 success; 1 a check found a problem; 2 bad input. `gate`, `nightly`, `try` and `compare "
        "--require` also use 10 to 13.\n"
        "Help on a command: ablation COMMAND --help\n"
        'Completion in bash and zsh: eval "$(register-python-argcomplete ablation)"',
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ablation-tracker {_version()}")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when the process PID ends")
    commands = parser.add_subparsers(metavar="COMMAND", help=argparse.SUPPRESS, prog="ablation")
    for name, text in SUMMARIES.items():
        command = commands.add_parser(name, description=f"{text}.", formatter_class=Help, allow_abbrev=False)
        if only in (None, name):
            module, word = import_module(f"ablation.cli.{MODULES[name]}"), name.replace("-", "_")
            command.set_defaults(run=getattr(module, f"run_{word}"))
            getattr(module, f"declare_{word}")(command)
    return parser


class Parser(argparse.ArgumentParser):
    """Parser that reports bad arguments in one line, like other bad input."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2; for a misspelt choice, name only the closest one."""
        match = re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message, re.DOTALL)
        choices = re.findall(r"[\w-]+", match[3]) if match else []
        if match and (close := difflib.get_close_matches(match[2][:200], choices, n=1)):
            message = f"{match[1]}; did you mean {close[0]!r}?"
        self.exit(2, f"error: {self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, *given: Any, **more: Any) -> Any:
        """Parse the arguments; name the command, not only `ablation`, in the error about unknown ones."""
        arguments, rest = super().parse_known_args(*given, **more)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return arguments, rest


class Help(argparse.HelpFormatter):
    """Formatter that wraps each line of a description but leaves indented lines (lists and examples) as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (line if line.startswith(" ") else "\n".join(_wrapped(line, width)) for line in text.splitlines())
        return "\n".join(f"{indent}{line}" for line in lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width)


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap text without breaking options and paths, so that they can be copied."""
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _listed() -> str:
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<15}{text}" for name, text in commands.items()), ""]
    return "\n".join(lines).rstrip()


def _version() -> str:
    try:
        return version("ablation-tracker")
    except PackageNotFoundError:
        return "(not installed)"
