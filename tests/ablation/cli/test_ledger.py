"""`import ledger`: from a file to an answer, and what a file lacks."""

import pytest

from tests.ablation.typed import output, refused

HEAD = "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
ROWS = "a\t0.99\t44\tkeep\tbaseline\nb\t0.95\t44\tkeep\twider\nc\t0.96\t44\tdiscard\tdeeper\nd\t0\t0\tcrash\tlonger\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_text(HEAD + ROWS)
    return path


def test_an_answer_in_one_try(file, capsys):
    said = output(capsys, "import", "ledger", file, "--sd", "0.001")
    noise = "standard deviation of one run 0.001 (stated)"
    assert f"4 attempts, 2 kept, 1 crashed; val_bpb, smaller is better; {noise}" in said
    assert "from a to b: measured +0.04, likely +0.0" in said
    assert "0 of 1 keep measured a gain within the noise: two runs of the same code differ by less than 0.0028" in said


def test_repeats_stand_for_the_deviation(file, capsys):
    file.write_text(HEAD + ROWS + "a\t0.992\t44\tdiscard\tagain\na\t0.994\t44\tdiscard\tagain\n")
    assert "run 0.002 (of the rows with one name)" in output(capsys, "import", "ledger", file)


def test_comma_separated_with_other_names(tmp_path, capsys):
    file = tmp_path / "log.csv"
    file.write_text("id,answer_score,decision\n1,0.5,keep\n2,0.6,keep\n3,0.4,reject\n")
    words = "import", "ledger", file, "--sd", "0.1"
    assert "--direction: is not known; pass min or max" in refused(capsys, *words)
    assert "answer_score, larger is better" in output(capsys, *words, "--direction", "max")


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (HEAD + ROWS, [], "--sd: the noise of one run is not known: no attempt has been repeated"),
        (HEAD + ROWS, ["--sd", "0"], "is not a standard deviation above 0"),
        (HEAD + ROWS, ["--sd", "1", "--metric", "loss"], "--metric = 'loss': is not a column"),
        (HEAD + "a\t0.9\t4\tmaybe\tx\n", ["--sd", "1"], "line 2: status = 'maybe': is not a known status"),
        (HEAD + "a\thigh\t4\tkeep\tx\nb\t1\t4\tkeep\tx\n", ["--sd", "1"], "line 2: val_bpb = 'high': is not a number"),
        (HEAD + "a\t0.9\n", ["--sd", "1"], "line 2: status = '': is not a known status"),
        (HEAD + "a\t0.9\t4\tkeep\tx\n", ["--sd", "1"], "has fewer than three attempts with a value"),
        ("x,y\n1,2\n", ["--sd", "1"], "lacks a column that names the attempts; call it commit"),
        ("", ["--sd", "1"], "lacks a column that names the attempts"),
    ],
)
def test_bad_input_is_one_line(file, capsys, text, words, said):
    file.write_text(text)
    assert said in refused(capsys, "import", "ledger", file, *words)
