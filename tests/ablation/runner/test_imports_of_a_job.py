"""What a short job does not import."""

import json
import subprocess
import sys

from tests.repository import ROOT

READ = """
import sys
from ablation.cli.collected import main
assert main(sys.argv[1:]) == 0
assert "pandas" not in sys.modules
import pandas, pyarrow
assert len(pyarrow.table(pandas.DataFrame({"a": [1, 2]})).to_pandas()) == 2
"""


def test_reading_metrics_and_items_does_not_import_pandas(tmp_path):
    """pyarrow would, to ask whether a list is an array of pandas: two of the three seconds of a job."""
    output, place = tmp_path / "output", tmp_path / "collected"
    output.mkdir()
    place.mkdir()
    (output / "metrics.csv").write_text("step,loss\n1,0.5\n")
    (output / "items.csv").write_text("item,value\na,1\nb,0\n")
    (place / "left.json").write_text("[]")
    wanted = [{"reader": name, "place": ".", "columns": {}, "values": [], "at": None} for name in ("metrics", "items")]
    words = [sys.executable, "-c", READ, str(output), str(place), json.dumps(wanted)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
