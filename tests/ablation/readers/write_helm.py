"""Runs written with crfm-helm's classes as its runner and `helm-summarize` write them. fixtures/helm.tar.gz: 0.5.16.

    pip install --no-deps crfm-helm && pip install dacite cattrs retrying pyhocon tqdm zstandard filelock pyyaml \
        requests pymongo bottle colorlog ubelt
    python write_helm.py OUT

Runs a, b and c, two seeds each, of 30 instances and two trials. `c` has other instructions, and was not summarized.
The statistic `defined` is NaN for instance id3. Libraries that HELM imports and writing does not need are stubs here.
"""

import importlib.abc
import importlib.machinery
import json
import random
import sys
import types
from pathlib import Path

STUBS = {"datasets", "mako", "nltk", "numpy", "pandas", "pyarrow", "rouge_score", "scipy", "sklearn", "spacy"}
STUBS |= {"sqlitedict", "torch", "torchvision", "transformers"}


class Stub(types.ModuleType):
    """A module that has every name."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are not installed."""

    def find_spec(self, name, path, target=None):
        known = name.partition(".")[0] in STUBS
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Stubs())
from helm.benchmark.adaptation.adapter_spec import AdapterSpec  # noqa: E402
from helm.benchmark.adaptation.request_state import RequestState  # noqa: E402
from helm.benchmark.adaptation.scenario_state import ScenarioState  # noqa: E402
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription  # noqa: E402
from helm.benchmark.metrics.metric import MetricName, PerInstanceStats, Stat  # noqa: E402
from helm.benchmark.run_spec import RunSpec  # noqa: E402
from helm.benchmark.runner import remove_per_instance_stats_nans  # noqa: E402
from helm.benchmark.scenarios.scenario import Input, Instance, Output, Reference, ScenarioSpec  # noqa: E402
from helm.common.codec import to_json  # noqa: E402
from helm.common.general import asdict_without_nones  # noqa: E402
from helm.common.request import GeneratedOutput, Request, RequestResult  # noqa: E402


def instances():
    """Thirty, and copies of the first five with typing errors."""
    typos = PerturbationDescription(name="typos", robustness=True)
    for at in range(30):
        references = [Reference(Output(text=f"answer {at}"), tags=["correct"]), Reference(Output(text="x"), tags=[])]
        for perturbation in (None, typos) if at < 5 else (None,):
            asked = Input(text=f"Question {at}?")
            yield Instance(asked, references, split="test", id=f"id{at}", perturbation=perturbation)


def state(instance, trial, model, prompt, said):
    """What was asked and answered."""
    result = RequestResult(True, [], [GeneratedOutput(text=said, logprob=0, tokens=[])], False)
    request = Request(model=model, model_deployment=model, prompt=prompt)
    return RequestState(instance, None, None, trial, None, request, result, 0, False)


def write_run(out, arm, seed, share, instructions=""):
    """Write one run; `share` of its instances are right."""
    draw, model = random.Random(7 * seed + ord(arm)), f"o/{arm}"
    adapter = AdapterSpec("generation", instructions=instructions, model=model, model_deployment=model)
    spec = RunSpec(f"mmlu:subject=anatomy,model=o_{arm}", ScenarioSpec(class_name="x", args={}), adapter, [], ["mmlu"])
    states, stats = [], []
    for trial in range(2):
        for each in instances():
            right = float(draw.random() < share)
            states.append(state(each, trial, model, instructions + each.input.text, f"said {right:g}"))
            values = {"exact_match": right, "defined": float("nan") if each.id == "id3" else right}
            for found in (values, {"num_references": 2}):  # each of HELM's metrics makes a list of its own
                named = [Stat(MetricName(n, each.split, None, each.perturbation)).add(v) for n, v in found.items()]
                stats.append(PerInstanceStats(each.id, each.perturbation, trial, named))
    folder = Path(out) / arm / f"seed{seed}" / "mmlu"
    folder.mkdir(parents=True)
    rows = [asdict_without_nones(each) for each in remove_per_instance_stats_nans(stats)]
    (folder / "per_instance_stats.json").write_text(json.dumps(rows, indent=2))
    (folder / "run_spec.json").write_text(json.dumps(asdict_without_nones(spec), indent=2))
    whole = asdict_without_nones(ScenarioState(adapter, states))
    (folder / "scenario_state.json").write_text(json.dumps(whole, indent=2))
    if arm != "c":
        (folder / "instances.json").write_text(to_json([each.instance for each in states[: len(states) // 2]]))


def main() -> None:
    """Write all six runs."""
    for seed in range(2):
        write_run(sys.argv[1], "a", seed, 0.4)
        write_run(sys.argv[1], "b", seed, 0.7)
        write_run(sys.argv[1], "c", seed, 0.7, "Think first. ")


if __name__ == "__main__":
    main()
