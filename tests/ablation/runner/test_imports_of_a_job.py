"""What a short job does not import."""

import subprocess
import sys

import pytest

from tests.ablation.runner.test_command import Command

RUN = """
import sys
from ablation.runner.run import main
assert main(sys.argv[1:]) == 0
assert not {"pandas", "psutil"} & {*sys.modules}, "imported"
import pandas, pyarrow
assert len(pyarrow.table(pandas.DataFrame({"a": [1, 2]})).to_pandas()) == 2
"""
WRITE = """
import os, sys
os.chdir(sys.argv[1])
open("metrics.csv", "w").write("step,loss\\n1,0.5\\n")
open("items.csv", "w").write("item,value\\na,1\\nb,0\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("readers", [("metrics", "items"), ()])
def test_a_job_that_leaves_metrics_and_items_or_neither_imports_no_pandas_and_no_psutil(tmp_path, readers):
    """pyarrow would import pandas to ask whether a list is an array of it: two of the three seconds of a job."""
    command = Command(tmp_path)
    wanted = [{"reader": name, "columns": {}, "values": [], "at": None} for name in readers]
    command.write(["{python}", "program.py", "{output}"], WRITE, wanted)
    words = [sys.executable, "-c", RUN, *command.words()[3:]]
    done = subprocess.run(words, cwd=command.root, env=command.environment(), capture_output=True, check=False)
    assert done.returncode == 0, command.log()
