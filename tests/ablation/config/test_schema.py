import difflib
import json

import jsonschema
import pytest

from ablation.config.schema import schemas, study_json_schema
from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.config.yaml_io import load_yaml
from tests.ablation.toy_study import Toy
from tests.repository import ROOT

CONFIGS = ROOT / "configs"
STUDIES = sorted(path.parent.name for path in CONFIGS.glob("studies/*/_study.yaml"))


def all_studies():
    return load_studies(load_settings({"studies": STUDIES, "scale": "smoke"}, configs=CONFIGS))


def test_committed_schemas_are_up_to_date():
    fresh = schemas(all_studies().values())
    committed = {path.name: path.read_text() for path in (CONFIGS / "schema").glob("*.json")}
    drift = [
        line
        for name in sorted(fresh.keys() | committed.keys())
        for line in difflib.unified_diff(committed.get(name, "").splitlines(), fresh.get(name, "").splitlines(), name)
    ]
    assert not drift, "run `make docs` (or `python -m ablation validate --write-schema`)\n" + "\n".join(drift)


@pytest.mark.parametrize("study", STUDIES)
def test_every_file_fits_its_schema(study):
    variant_schema = study_json_schema(all_studies()[study])
    study_schema = json.loads((CONFIGS / "schema/_study.json").read_text())
    for schema in (variant_schema, study_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
    for path in (CONFIGS / "studies" / study).glob("*.yaml"):
        jsonschema.validate(load_yaml(path), study_schema if path.name == "_study.yaml" else variant_schema)


@pytest.mark.parametrize(
    "content",
    [
        {"why": "x", "rewrd": {}},
        {"why": "x", "reward": {"weight": 1.5}},
        {"why": "x", "size": "many"},
        {"why": "x", "extends": ["a", "b"]},
        {"why": "x", "data": {"sources": [{"source": "hub"}]}},
        {"lr": 0.5},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(tmp_path, content):
    toy = Toy(tmp_path)
    schema = study_json_schema(load_studies(load_settings(configs=toy.configs))["toy"])
    jsonschema.validate({"why": "x", "extends": "base", "reward": {"weight": 0.5}, "data": {"kind": "model"}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)
