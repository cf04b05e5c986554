"""What the strict reader makes of YAML, and what it refuses."""

import os

import pytest

from ablation.config.yaml_io import load_yaml, parse_foreign
from ablation.contract.errors import ConfigError


def load(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return load_yaml(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-5", 2e-5),
        ("010", 10),
        ("0x1f", 31),
        ("true", True),
        ("no", "no"),
        ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"),
        ("null", None),
        ("", None),
        ("[1, 2e-5, no]", [1, 2e-5, "no"]),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ('"é 日本\\n\\tx"', "é 日本\n\tx"),
        ("2 * 3 & more", "2 * 3 & more"),
    ],
)
def test_scalars_follow_yaml_1_2(tmp_path, text, value):
    loaded = load(tmp_path, f"a: {text}\n")["a"]
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "occurs twice"),
        ("a: [{b: 1, b: 2}]\n", 1, "occurs twice"),
        ("a: &x 1\nb: *x\n", 1, "aliases"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "tag"),
        ("1: a\n", 1, "keys must be text"),
        ("rows:\n  8.1: [1]\n", 2, "keys must be text"),
        ("a: .inf\n", 1, "finite"),
        ("a: 1e999\n", 1, "finite"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("\na: " + "[" * 200_000, 2, "nested more than 100 levels deep"),
        *((f"a: {number}", 1, "is too large for a 64-bit whole number") for number in ("9" * 5000, "-" + "9" * 20)),
        ("a: 0x" + "f" * 17, 1, "is too large for a 64-bit whole number"),
        ('a: "\\e[31mred"', 1, r"the text '\x1b[31mred' contains a control character"),
        *((f"a: {text}", 1, "contains a control character") for text in ('{"b\\0": 1}', '"\\u202egnp"')),
    ],
)
def test_refusals_name_file_and_line(tmp_path, text, line, problem):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert problem in str(caught.value)
    assert str(caught.value.file) == f"{tmp_path / 'a.yaml'}:{line}"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_empty_missing_binary_pipe_and_two_documents(tmp_path):
    assert load(tmp_path, "# nothing\n") == {}
    with pytest.raises(ConfigError, match="does not exist"):
        load_yaml(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_yaml(tmp_path / "b.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")  # it is not waited for
    with pytest.raises(ConfigError, match=r"pipe\.yaml is not a regular file"):
        load_yaml(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError):
        load(tmp_path, "a: 1\n---\na: 2\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [*a]", "expand to too many values"),
        ("b0: &b0 [x]\n" + "".join(f"b{i}: &b{i} [{f'*b{i - 1},' * 9}]\n" for i in range(1, 9)), "expand to too many"),
        ("a: " + "[" * 200_000, "nested more than"),
        ("a: !!bool x", "does not fit its tag"),
        ("a: !!int '+'", "does not fit its tag"),
        ("a: 2001-99-99", "month"),
    ],
)
def test_yaml_of_another_program_that_cannot_be_a_value(text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        parse_foreign(text)
    assert "\n" not in str(caught.value)


def test_a_list_that_another_program_shares_is_read():
    assert parse_foreign("a: &id001 [q, v]\nb: *id001\nlr: 1.0e-05\n") == {"a": ["q", "v"], "b": ["q", "v"], "lr": 1e-5}
