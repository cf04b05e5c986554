"""Every command says what it takes."""

import argparse

import pytest

from ablation.cli.main import main
from ablation.cli.parser import build_parser

(COMMANDS,) = [a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_written(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m ablation {command} ")
