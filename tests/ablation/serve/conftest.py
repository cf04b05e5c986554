"""Servers of simulated studies, whose watchers look at every request."""

import pytest

from ablation.serve import now as now_module
from tests.ablation.serve.asking import TOY, Asking
from tests.simulate import simulate


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch):
    monkeypatch.setattr(now_module, "RARELY", 0.0)
    monkeypatch.setattr(now_module, "SHARE", 1e9)


@pytest.fixture
def served(results):
    """Return a function that simulates the studies and serves them."""
    started = []

    def start(study=TOY):
        simulate(results, [study])
        started.append(Asking(results))
        return started[-1]

    yield start
    for asking in started:
        asking.end()


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A server for requests that change nothing."""
    folder = tmp_path_factory.mktemp("served")
    simulate(folder, [TOY])
    found = Asking(folder)
    yield found
    found.end()
