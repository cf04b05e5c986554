"""Every command says what it takes."""

import argparse
import io
import os
import subprocess
import sys

import pytest

from ablation.cli.common import Shown
from ablation.cli.main import main
from ablation.cli.parser import build_parser

(COMMANDS,) = [a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_written(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: ablation {command} ")
    assert "-\n" not in shown  # no option and no path is torn
    assert "option_strings" not in shown  # a % sign that argparse took for one of its own


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gate", "toy", "--with", "new"], " gate: unrecognized arguments: --with new; see ablation gate --help"),
        (["power"], " power: the following arguments are required: --effect; see ablation power --help"),
        (["verdict"], ": argument COMMAND: invalid choice: 'verdict'; did you mean 'verdicts'?; see ablation --help"),
    ],
)
def test_a_wrong_option_is_one_line_in_the_name_of_its_command(capsys, words, said):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert (end.value.code, capsys.readouterr().err) == (2, f"error: ablation{said}\n")


def test_a_bare_call_lists_the_commands_and_imports_none():
    code = """
import sys
from ablation.cli.common import Shown
from ablation.cli.main import main
assert main([]) == 0
assert not {"numpy", "pydantic", "yaml"} & sys.modules.keys()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ablation expl", ["explain "]),
        ("ablation compare --cl", ["--cluster", "--claim"]),
        ("ablation compare a.csv --claim ", ["recipe", "checkpoints"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(line, words, tmp_path):
    answer = tmp_path / "answer"  # where the shell's function has it written, in place of descriptor 8
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    command = [sys.executable, "-m", "ablation"]
    subprocess.run(command, env={**os.environ, **asked}, cwd=tmp_path, check=True)
    assert answer.read_text().split("\n") == words


@pytest.mark.parametrize(
    ("text", "coloured"),
    [
        ("passed: v1 after v0 is better, +0.02", "passed: v1 after v0 is \x1b[1;32mbetter\x1b[0m, +0.02"),
        ("    v0     v1    worse  0.4", "    v0     v1    \x1b[1;31mworse\x1b[0m  0.4"),
        ("all better\nerror: x.csv: is empty", "all better\n\x1b[1;31merror:\x1b[0m x.csv: is empty"),
        ("not-worse; no worse than", "not-worse; no worse than"),
    ],
)
def test_verdicts_have_a_colour_on_a_terminal_only(monkeypatch, text, coloured):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def shown(terminal):
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        print(text, end="", file=Shown(stream))
        return stream.getvalue()

    assert (shown(True), shown(False)) == (coloured, text)
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(True) == text
