"""Words with placeholders, and Hydra's grammar."""

import json
import random
import shlex
import subprocess
from pathlib import Path

import pytest

from ablation.contract.command import Filling, fill, hydra_overrides, hydra_value, placeholders, split
from tests.peers.environment import python_of

VALUES = {"lr": 1e-05, "name": "it's a {test}", "reward": {"kind": "a", "weights": [1, 0.5]}, "clip": None, "on": True}
FILLING = Filling(
    config={"yaml": Path("/r/a b/settings.yaml"), "json": Path("/r/a b/settings.json")},
    values=VALUES,
    seed=3,
    output=Path("/r/a b/output"),
    inputs={"train": Path("/r/it's/output")},
    devices=2,
    threads=4,
    python="/venv/bin/python",
)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("{python} train.py --seed {seed}", ["/venv/bin/python", "train.py", "--seed", "3"]),
        ("x {config} {config:json}", ["x", "/r/a b/settings.yaml", "/r/a b/settings.json"]),
        ("x --out={output} '{out}/a b'", ["x", "--out=/r/a b/output", "/r/a b/output/a b"]),
        ("x {input:train}/model", ["x", "/r/it's/output/model"]),
        ("x --lr {value:lr} --name={value:name}", ["x", "--lr", "1e-05", "--name=it's a {test}"]),
        ("x {value:reward.weights} {value:clip} {value:on}", ["x", "[1, 0.5]", "null", "true"]),
        ("x {value:clip.low} {value!h:clip.low}", ["x", "null", "null"]),
        ("torchrun --nproc_per_node {devices} -t{threads}", ["torchrun", "--nproc_per_node", "2", "-t4"]),
        ("x '{{\"a\": {seed}}}' ';' '$HOME' '*'", ["x", '{"a": 3}', ";", "$HOME", "*"]),
        (["a b", "{seed}", "'"], ["a b", "3", "'"]),
        (
            "x dir={output!h} model={input!h:train} lr={value!h:lr} name={value!h:name}",
            ["x", "dir='/r/a b/output'", r"model='/r/it\'s/output'", "lr=1e-05", r"name='it\'s a {test}'"],
        ),
    ],
)
def test_placeholders_are_filled_in_and_never_split_again(command, words):
    assert fill(split(command), FILLING) == words


def test_overrides_are_words_of_their_own():
    words = ["lr=1e-05", "name='it\\'s a {test}'", "reward.kind=a", "reward.weights=[1,0.5]", "clip=null", "on=true"]
    assert fill(["x", "{overrides}", "y"], FILLING) == ["x", *words, "y"]
    assert fill(["{overrides:++}"], FILLING) == [f"++{word}" for word in words]
    assert shlex.split(shlex.join(words)) == words


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "{sead}",
            r"\{sead\} is not a placeholder \(choose from .*did you mean \{seed\}\? Otherwise, write literal braces",
        ),
        ("{lr}", r"did you mean \{value:lr\}\? Otherwise, write"),
        ("{seed:2}", r"\{seed:2\} is not a placeholder; choose from \{seed\}"),
        ("{input}", r"\{input\} lacks a name; write \{input:NAME\}"),
        ("{}", r"\{\} is not a placeholder"),
        ("{overrides!h}", r"\{overrides!h\} is not a placeholder"),
        ("a={overrides}", r"\{overrides\} expands to several words"),
        ("{", "brace|'{'"),
    ],
)
def test_what_is_no_placeholder_is_refused(word, message):
    with pytest.raises(ValueError, match=message):
        placeholders([word])


# Each was read back by Hydra 1.3 and OmegaConf 2.3 as the same value; a test below asks them.
HYDRA = [
    ("plain", "plain"),
    ("", "''"),
    ("1e5", "'1e5'"),
    ("No", "'No'"),
    ("null", "'null'"),
    ("a b", "'a b'"),
    ("it's", r"'it\'s'"),
    ("a\\'b", r"'a\\\'b'"),
    ("a\\", r"'a\\'"),
    ("a\\b", r"'a\b'"),
    ("${x}", r"'\${x}'"),
    ("\\${x}", r"'\\\${x}'"),
    ("a,b=[c]{d}", "'a,b=[c]{d}'"),
    (None, "null"),
    (False, "false"),
    (-3, "-3"),
    (1e-05, "1e-05"),
    (float("inf"), "inf"),
    ([1, "a b", None], "[1,'a b',null]"),
    ([{"k y": "v", "a:b": {}}], r"[{k\ y:v,a\:b:{}}]"),
    ({}, "{}"),
]


@pytest.mark.parametrize(("value", "text"), HYDRA)
def test_values_in_hydras_grammar(value, text):
    assert hydra_value(value) == text


ASK_HYDRA = """
import json, sys
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

parser = OverridesParser.create()
for overrides in json.load(sys.stdin):
    config = OmegaConf.create({"a": {"b": None}})
    ConfigLoaderImpl._apply_overrides_to_config(parser.parse_overrides(overrides), config)
    print(json.dumps(OmegaConf.to_container(config, resolve=True)))
"""


@pytest.mark.peers
def test_hydra_reads_back_what_was_written():
    chance = random.Random(0)
    letters = "a \\'\"${}[],:=.#%()~+-*1e\t\nü/"
    values = [value for value, _ in HYDRA] + [
        "".join(chance.choices(letters, k=chance.randint(0, 7))) for _ in range(2000)
    ]
    overrides = json.dumps([hydra_overrides({"a": {"b": value}}) for value in values])
    done = subprocess.run(
        [python_of("verl"), "-c", ASK_HYDRA], input=overrides, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["a"]["b"] for line in done.stdout.splitlines()] == values
