"""`ablation campaign FILE`: from a table of attempts to an answer, and what a table lacks."""

import time

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
    said = output(capsys, "campaign", file, "--sd", "0.001")
    noise = "standard deviation between runs 0.001 (stated)"
    assert f"4 attempts, 2 kept, 1 crashed; val_bpb: smaller is better; {noise}" in said
    assert "from a to b: measured +0.0400, likely +0.0399 [" in said
    assert "0 of 1 kept attempt measured a gain within the noise: two runs of the same code differ by less" in said


def test_repeats_stand_for_the_deviation(file, capsys):
    file.write_text(HEAD + ROWS + "a\t0.992\t44\tdiscard\tagain\na\t0.994\t44\tdiscard\tagain\n")
    assert "runs 0.002 (from rows with the same name)" in output(capsys, "campaign", file)


def test_comma_separated_with_other_names(tmp_path, capsys):
    file = tmp_path / "log.csv"
    file.write_text("id,answer_score,decision\n1,0.5,keep\n2,0.6,keep\n3,0.4,reject\n")
    words = "campaign", file, "--sd", "0.1"
    assert "does not say which values are better; write answer_score:max if larger is better" in refused(capsys, *words)
    assert "answer_score: larger is better" in output(capsys, *words, "--metric", "answer_score:max")


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (HEAD + ROWS, [], "--sd: the noise between runs is not known, because no attempt was repeated"),
        (HEAD + ROWS, ["--sd", "0"], "is not a positive number"),
        (HEAD + ROWS, ["--sd", "1", "--metric", "loss"], "--metric = 'loss': is not a column"),
        (
            HEAD + "a\t0.9\t4\tmaybe\tx\n",
            ["--sd", "1"],
            "fewer than two attempts with a value; left out: 1 (unknown status 'maybe')",
        ),
        (HEAD + "a\t0.9\n", ["--sd", "1"], "no column of numbers looks like a metric"),
        (
            "x,y\n1,2\n",
            ["--sd", "1"],
            "has no column that says which attempts were kept; add a column `status` with keep, discard or crash",
        ),
        ("", ["--sd", "1"], "is empty; wait until the first attempts have run"),
        ("status\tacc", ["--sd", "1", "--metric", "acc:max"], "has fewer than two attempts with a value"),
        (
            "id\tacc\tstatus\na\t0.7\tkeep\na\t0.72\tkeep\nb\t50\tkeep\n",
            ["--metric", "acc:max"],
            "among the kept attempts, one run has values 0.7, another 50, and no value lies between 0.72 and 50",
        ),
        (
            HEAD + ROWS + "b\t0.95\t4\tkeep\tagain\n" * 2,
            ["--sd", "0.01"],
            "all 3 rows of b have this value, so they may be copies of one run, or runs with the same seed",
        ),
    ],
)
def test_bad_input_is_one_line(file, capsys, text, words, said):
    file.write_text(text)
    assert said in refused(capsys, "campaign", file, *words)


LEDGERS = {  # shapes of public tables: text, metric, what is said
    "no name": (
        "git_commit\twer\tstatus\tdescription\nunknown\t14.29\tok\tbaseline\nunknown\t\tfailed\ttypes\n"
        "unknown\t14.11\tok\tencoder only\n",
        "wer:min",
        ["3 attempts, 2 kept, 1 crashed", "2 rows say only that the run ended", "#3", "+0.18"],
    ),
    "statuses": (
        HEAD + "a1\t1.865\t1.8\tbaseline\tdepth 4\nb2\t1.882\t7.7\tdiscard\tdepth 8\nc3\t1.864\t1.3\tbest\tmore data\n"
        "d4\t1.863\t1.3\tdone\tclip 0.5\n",
        "val_bpb:min",
        ["4 attempts, 3 kept, 0 crashed", "1 row says only"],
    ),
    "sentinels": (
        "id\tscore\tstatus\tdescription\nexp0\t-999.000\tBASELINE\tclean\nexp1\t1.079\tKEEP\tfix\n"
        "exp2\t-999.000\tREVERT\ttight\nexp3\t1.136\tKEEP\traise\n",
        "score:max",
        [
            "4 attempts, 2 kept, 2 crashed",
            "left out: 2 (the value -999 is far from all others, so it counts as a crash)",
            "from exp1 to exp3",
        ],
    ),
    "words for numbers": (
        "commit\tcycle\tscore\timprovement\tstatus\tdescription\na1\tbaseline\t980678.9\t0.00%\tkeep\tbaseline\n"
        "b2\ttick\tFAIL\tNA\tdiscard\ttests failed\nc3\ttock\t152026.1\t84.50%\tkeep\tqueues\n",
        "score:min",
        ["3 attempts, 2 kept, 1 crashed; score: smaller"],
    ),
    "prose": (
        HEAD + "a1\t1.865\t1.8\tkeep\tbaseline\nb2\t1.861\t1.8\tkeep\twd\n\n=====\nsecond phase\n=====\n"
        "2026-08-03\twarmup\t1.864\t157\t253911\tnote\n",
        "val_bpb:min",
        ["2 attempts, 2 kept", "left out: 4 (the number of cells differs from the heading)"],
    ),
    "commas": (
        "commit,val_bpb,status,description\na1,0.9979,keep,baseline\nb2,0.9932,keep,lr 0.04, then 0.02\n",
        "val_bpb:min",
        ["2 attempts, 2 kept", "lr 0.04, then 0.02"],
    ),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_tables_as_loops_write_them(tmp_path, capsys, name):
    text, metric, said = LEDGERS[name]
    path = tmp_path / "results.tsv"
    path.write_text(text)
    told = output(capsys, "campaign", path, "--sd", "0.01", "--metric", metric)
    assert [each for each in said if each not in told] == []


def test_a_kept_zero_of_a_crash_is_no_improvement(file, capsys):
    file.write_text(HEAD + ROWS + "e\t0.0\t0\tkeep\tcrashed, kept by mistake\n")
    said = output(capsys, "campaign", file, "--sd", "0.001")
    assert "left out: 1 (the value 0 is far from all others, so it counts as a crash)" in said
    assert "from a to b" in said
    file.write_text("id\tacc\tstatus\n" + "".join(f"{n}\t{v}\tkeep\n" for n, v in enumerate((0.0, 0.1, 0.3, 0.2))))
    assert "left out" not in output(capsys, "campaign", file, "--sd", "0.001", "--metric", "acc:max")


@pytest.mark.parametrize(("end", "champion"), [("", "b"), ("\n", "c"), ("\r\n", "c"), ("\tx", "c")])
def test_a_last_number_without_a_line_end_may_be_cut_off(file, capsys, end, champion):
    """0.97 that was cut would be the best loss."""
    head = "commit\tstatus\tval_loss" + ("\tdescription\n" if end == "\tx" else "\n")
    file.write_text(f"{head}a\tkeep\t0.99\nb\tkeep\t0.95\nc\tkeep\t0.9{end}", newline="")
    said = output(capsys, "campaign", file, "--sd", "0.001")
    assert f"from a to {champion}" in said
    assert ("left out: 1 (the last line has no newline, so its number may be cut off)" in said) == (end == "")


def test_repeats_of_a_metric_of_few_values_may_be_equal(file, capsys):
    repeats = "a\t0.99\t4\tkeep\tagain\na\t0.97\t4\tkeep\tagain\n" + "b\t0.95\t4\tkeep\tagain\n" * 2
    file.write_text(HEAD + ROWS + repeats)
    assert "from a to b" in output(capsys, "campaign", file)
    file.write_text(HEAD + ROWS + repeats + "a\t0.96\t4\tkeep\tagain\na\t0.98\t4\tkeep\tagain\n" * 3)
    assert "from a to b" in output(capsys, "campaign", file)
    file.write_text(HEAD + ROWS + repeats + "b\t0.95\t4\tkeep\tagain\n" * 4)
    assert "all 7 rows of b have this value" in refused(capsys, "campaign", file)


def test_a_baseline_that_was_kept_twice_is_no_keep(file, capsys):
    file.write_text(HEAD + "a\t0.99\t44\tkeep\tbaseline\nb\t0.95\t44\tkeep\twider\na\t0.98\t4\tkeep\tagain\n")
    assert "0 of 1 kept attempt measured" in output(capsys, "campaign", file, "--sd", "0.001")


def test_two_thousand_rows_take_a_second(tmp_path, capsys):
    path, best = tmp_path / "results.tsv", 0.0
    rows = []
    for n in range(2000):
        value = (n * 7919 % 1000) / 1000 - 0.5 + n / 1000
        rows.append(f"c{n}\t{value}\t1\t{'keep' if value > best else 'discard'}\tx\n")
        best = max(best, value)
    path.write_text(HEAD + "".join(rows))
    began = time.process_time()
    output(capsys, "campaign", path, "--sd", "0.3", "--metric", "val_bpb:max")
    assert time.process_time() - began < 10
