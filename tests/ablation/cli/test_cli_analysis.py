"""The commands verdicts and audit, through the command line."""

from ablation.store.collect import collect
from tests.ablation.typed import output, refused
from tests.repository import ROOT
from tests.simulate import Study, simulate


def test_verdicts_prints_every_comparison_and_only_the_study_asked_for(tmp_path, capsys):
    simulate(tmp_path, [Study("one", seeds=2), Study("two", seeds=2)])
    collect(tmp_path)
    both = output(capsys, "verdicts", "--results", tmp_path)
    second = output(capsys, "verdicts", "two", "--results", tmp_path)
    assert both.startswith("one\n")
    assert second.startswith("two\n")
    assert second in both
    lines = [line.split() for line in second.splitlines()]
    assert sum(words[:1] in (["v1"], ["v2"], ["v3"]) for words in lines) == 3
    assert len(output(capsys, "verdicts", "--csv", "--results", tmp_path).splitlines()) == 7


def test_a_table_of_anyone_is_audited_without_a_project(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "t.csv"
    file.write_text("row,gender,race,religion,mean\nbase,0.0170,0.0410,0.0200,0.0277\nv8,0.0088,0.0260,0.0024,0.0124\n")
    options = ["audit", "--table", str(file), "--items", "253", "962", "77", "--target", "0.5"]
    out = output(capsys, *options, status=1)
    assert "(0.0170 + 0.0410 + 0.0200) / 3 = 0.0260" in out
    assert "v8, religion: 0.0024 is not |k/77 - 0.5| for any integer k" in out
    assert "no mean of per-run distances can give this number, because all per-run distances are at least" in out
    assert out.splitlines()[-1].startswith(f"{file}: 1 error, ")
    for wrong, said in (
        (["audit"], "audit: STUDY: is missing; name a study"),
        (["audit", "debias", "--table", str(file)], "cannot be combined with --table"),
        (["audit", "debias", "--items", "3"], "--items: works only with --table"),
        ([*options, "--runs", "0"], "--runs = 0: is below 1"),
        (["audit", "--table", str(file), "--items", "1", "2"], "has 2 numbers, but the table has 3 columns (gender"),
    ):
        assert said in refused(capsys, *wrong)


def test_an_option_that_would_be_ignored_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ("campaign --budget 0", "--budget: works only with init; leave it out"),
        ("campaign verify --metric a:min", "--metric: works only with init or FILE; leave it out"),
        ("campaign results.tsv --link data", "--link: works only with init; leave it out"),
        ("campaign init --json --run x --metric a:min", "--json: cannot be combined with init; leave it out"),
        ("compare --study my.yaml --all-pairs", "cannot be combined with --all-pairs"),
        ("export gad --from x --output y", "STUDY = 'gad': cannot be combined with --from; leave one out"),
        ("export --from x --step 0 --output y", "--step = 0: cannot be combined with --from; leave one out"),
        ("export --from x --results r --output y", "--results = 'r': cannot be combined with --from; leave one out"),
        ("audit --table t.csv --results r", "--results: cannot be combined with --table; leave one out"),
        ("gate gad --json --markdown", "--markdown: cannot be combined with --json; leave one out"),
        ("report --output p.html --reports r", "--reports: cannot be combined with --output; leave one out"),
        ("import trl r --study s --map columns.seed=x", "'columns.seed=x': works only with the format `table`; leave"),
        ("try --why x --margin 1", "--margin = 1.0: works only with --claim not-worse; leave it out"),
        ("verdicts --brief --why", "--why: cannot be combined with --brief; leave one out"),
        ("verdicts --csv --all-columns", "--all-columns: cannot be combined with --csv; leave one out"),
        ("power gad --effect 1 --family 2", "--family = 2: works only with --seed-sd, --item-sd and --items; leave"),
        ("power gad --effect 1 --pilot r --results s", "--results = 's': cannot be combined with --pilot; leave one"),
        ("power gad --effect 1 --pilot a b", "STUDY = 'gad': cannot be combined with the evaluations of --pilot"),
    ):
        assert said in refused(capsys, *words.split())


def test_a_published_file_that_is_wrong_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "configs/published/odd.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("source: a paper\nmetric: rate\ncolumns: [a]\nrows: {v: 3}\n")
    line = refused(capsys, "audit", "odd", "--results", tmp_path)
    assert "configs/published/odd.yaml: rows.v = 3" in line


def test_audit_sets_measured_numbers_beside_the_published(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "has no published numbers" in refused(capsys, "audit", "nothing", "--results", tmp_path)
    assert "reproduction" not in output(capsys, "audit", "debias", "--results", tmp_path, status=1)
    variant_tree = {"baseline": (None, {}), "v1": ("baseline", {"lr": (1, 2)})}
    simulate(tmp_path, [Study("debias", variant_tree=variant_tree, items={"gender": 30, "race": 30, "religion": 30})])
    out = output(capsys, "audit", "debias", "--results", tmp_path, status=1)
    lines = [line for line in out.splitlines() if "reproduction" in line]
    assert len(lines) == 8  # two variants, three domains and their mean
    assert all("not comparable, because these results are at scale simulated" in line for line in lines)
