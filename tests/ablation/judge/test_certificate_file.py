"""The certificate as the command makes it: its file, what it prints, and what the page shows of it."""

import json

import pytest
from markupsafe import escape

from ablation.cli.main import main
from ablation.judge.certificate import certify as files
from ablation.show.page.render import write_report
from ablation.store.collect import collect
from tests.ablation.judge.studies import let_judge, naive_edges
from tests.ablation.show.elements import unfolded
from tests.simulate import Study, simulate


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certified") / "results"
    simulate(folder, [Study("toy", variants=3, seeds=4, items={"a": 30, "b": 30}, rho=0.9)])
    collect(folder)
    with pytest.MonkeyPatch.context() as patch:
        let_judge(patch, naive_edges)
        assert main(["certify", "--results", str(folder)]) == 0
    return folder


def test_a_certificate_is_made_once(results, monkeypatch, capsys):
    before = (results / "certificate.json").read_bytes()

    def never(*_):
        raise AssertionError("certified again")

    monkeypatch.setattr(files, "certify", never)
    assert main(["certify", "toy", "--results", str(results)]) == 0
    assert (results / "certificate.json").read_bytes() == before
    said = capsys.readouterr().out
    assert "better: " in said
    assert "edges whose change acts in some seeds only" in said
    monkeypatch.setattr(files, "digest_of", lambda study: "other")
    with pytest.raises(AssertionError, match="again"):
        main(["certify", "--results", str(results)])


def test_an_unknown_study_is_one_line(results, capsys):
    assert main(["certify", "tyo", "--results", str(results)]) == 2
    assert "did you mean 'toy'" in capsys.readouterr().err


def test_a_certificate_that_cannot_be_read_is_none(tmp_path):
    for content in (b"{", b"\xff", b'{"studies": 1}'):
        (tmp_path / "certificate.json").write_bytes(content)
        assert files.known(tmp_path) is None
    assert files.known(tmp_path / "none") is None


def test_the_page_says_once_per_study_whether_its_words_are_calibrated(results, tmp_path):
    page = unfolded(write_report(results / "tracker.duckdb", tmp_path / "page.html").read_text())
    assert "The certificate: how often these words are wrong" in page
    found = json.loads((results / "certificate.json").read_text())["studies"][0]
    assert all(escape(word["why"]) in page for word in found["words"])
    assert page.count("The words are <a") == 1
    stale = tmp_path / "results"
    stale.mkdir()
    (stale / "tracker.duckdb").write_bytes((results / "tracker.duckdb").read_bytes())
    text = (results / "certificate.json").read_text().replace(found["digest"], "0" * 16)
    (stale / "certificate.json").write_text(text)
    page = unfolded(write_report(stale / "tracker.duckdb", tmp_path / "stale.html").read_text())
    assert "The grid makes one when all of its runs have ended" in page
    assert "These results have no certificate" in page
