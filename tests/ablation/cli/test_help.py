"""Every command says what it takes."""

import argparse
import subprocess
import sys

import pytest

from ablation.cli.main import main
from ablation.cli.parser import build_parser

(COMMANDS,) = [a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_written(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: ablation {command} ")


def test_a_missing_option_is_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        main(["power"])
    assert end.value.code == 2
    said = "error: ablation power: the following arguments are required: --effect; see ablation power --help\n"
    assert capsys.readouterr().err == said


def test_a_bare_call_lists_the_commands_and_imports_none():
    code = """
import sys
from ablation.cli.main import main
assert main([]) == 0
assert not {"numpy", "pydantic", "yaml"} & sys.modules.keys()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert listed == list(COMMANDS)
