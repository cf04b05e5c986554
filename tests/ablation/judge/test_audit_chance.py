"""The best of many rows."""

import pytest
from scipy import stats

from ablation.audit.noise import chance_findings
from ablation.audit.table import Table
from tests.ablation.judge.published import published


def test_the_best_of_k_is_the_binomial_maximum():
    rows = {f"v{i}": ["0.6000"] for i in range(9)} | {"best": ["0.6500"]}
    table = published(rows, target=None, items={"a": 400}, columns=["a"])
    [finding] = chance_findings(Table.of(table))
    p = 1 - stats.binom.cdf(259, 400, 0.605) ** 10
    assert f"as good as printed in {p:.2g}"[:-1] in finding.sentence
    assert p == pytest.approx(float(finding.sentence.rsplit("in ", 1)[1].split()[0]), rel=0.1)
