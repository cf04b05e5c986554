"""Numbers as they are printed, and tables of them from a CSV file."""

import pytest

from ablation.config.printed import Printed
from ablation.config.published_schema import PublishedFile, load_published
from ablation.config.published_table import read_table
from ablation.contract.errors import ConfigError

TABLE = "row,gender,race,mean\nbase,0.0170,0.0410,0.0290\nv1,0.700,-,0.35\n"


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("0.700", 0.7, 0.0005),
        (".036", 0.036, 0.0005),
        ("51.7%", 0.517, 0.0005),
        ("51.70 %", 0.517, 0.00005),
        (r"51.7\\%", 0.517, 0.0005),
        ("\u22120.5", -0.5, 0.05),
        ("**0.512**", 0.512, 0.0005),
        (r"$\mathbf{0.512}$", 0.512, 0.0005),
        ("1.58e-06", 1.58e-6, 0.5e-8),
        (3, 3.0, 0.5),
    ],
)
def test_a_number_keeps_its_digits(text, value, half):
    number = Printed.of(text.replace("\\\\", "\\") if isinstance(text, str) else text)
    assert number.value == pytest.approx(value)
    assert number.half == pytest.approx(half)
    assert number.high - number.low == 2 * number.exact_half
    assert Printed.of(number.text) == number


def test_values_are_shown_with_the_digits_of_the_number():
    assert Printed.of("0.700").show(0.12345) == "0.123"
    assert Printed.of("70.0%").show(0.12345) == "12.3%"
    assert Printed.of("70").show(12.345, more=1) == "12.3"


def test_a_published_file_keeps_the_text_through_the_plan(tmp_path):
    file = tmp_path / "p.yaml"
    rows = "rows: {v: [0.700, 51.70%, 0.50 ± 0.10], w: [1, null, '0.5']}"
    file.write_text(f"source: x\nmetric: rate\ncolumns: [a, b, c]\nitems: {{a: 10}}\n{rows}\n")
    published = load_published(file)
    assert [str(cell) for cell in published.rows["v"]] == ["0.700", "51.70%", "0.50 ± 0.10"]
    assert published.rows["w"][1] is None
    assert PublishedFile.model_validate_json(published.model_dump_json(), strict=True) == published
    with pytest.raises(ValueError, match=r"a is 1.5, but a rate must be from 0 to 1; write a percentage with the sign"):
        PublishedFile.model_validate(published.model_dump() | {"rows": {"v": ["1.5", None, None]}})
    near = {"target": "0.5", "rows": {"v": ["0.517", None, None]}}  # SS itself, under the name of its distance
    with pytest.raises(
        ValueError, match=r"0.517, but a distance .* must be from 0 to 0.5; if the numbers .* out `target`"
    ):
        PublishedFile.model_validate(published.model_dump() | near)


def test_a_table_is_read_as_it_is_printed(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(TABLE)
    table = read_table(file, items=("10", "20"))
    assert table.columns == ["gender", "race", "mean"]
    assert table.items == {"gender": 10, "race": 20}
    assert str(table.rows["v1"][0]) == "0.700"
    assert table.rows["v1"][1] is None
    for items, expected in (("7", {"gender": 7, "race": 7}), ("race=5", {"race": 5}), ("1 2 3", {"mean": 3})):
        assert expected.items() <= read_table(file, items=items.split()).items.items()
    file.write_text("row,a (%),b (%),Avg\nv,51.2,71.0,61.1\n")
    assert list(map(str, read_table(file, items=("500", "1319")).rows["v"])) == ["51.2%", "71.0%", "61.1%"]
    file.write_text("row,a,b,total,mean\nv,0.5,0.75,1.25,0.625\n")
    both = read_table(file, items=("4",))
    assert (both.mean, both.items) == ("mean", {"a": 4, "b": 4})
    file.write_text("row;acc (%)\nv;51.7\n")
    assert str(read_table(file).rows["v"][0]) == "51.7%"


@pytest.mark.parametrize(
    ("text", "options", "parts"),
    [
        ("row,a\nv,0.5x\n", {}, ("t.csv:2: a = '0.5x': is not a number", "--columns")),
        ("row,a\nv,0.5,0.6\n", {}, ("t.csv:2: has 3 cells, but the heading has 2",)),
        ("row,a\nv,0.5\n\nv,0.6\n", {}, ("t.csv:4: row = 'v': occurs twice; give each row its own name",)),
        ("row,a\n,0.5\n", {}, ("t.csv:2: row = '': the row has no name",)),
        ("row,a\nv,51.7\n", {"items": ("10",)}, ("a = '51.7': is not a rate, which must be from 0 to 1; pass --perc",)),
        ("row,a,n,mean\nv,0.5,1319,0.5\n", {"items": ("10",)}, ("n = '1319': is not a rate", "--columns a mean")),
        ("row,a,n\nv,51,1319\n", {"items": ("10",), "percent": True}, ("n = '1319%': is not a rate", "--columns a")),
        ("row,a\nv,0.51\n", {"items": ("10",), "target": "0.5"}, ("is not a distance", "leave out --target")),
        ("row,a,a\nv,1,1\n", {}, ("heading = 'a': occurs twice",)),
        ("row,a,\nv,1,1\n", {}, ("column 3 = '': has no heading",)),
        ("row,a,b\nv,1,1\n", {"items": ("1", "2", "3")}, ("has 3 numbers, but the table has 2 columns (a, b)",)),
        ("row,a\nv,1\n", {"items": ("0",)}, ("--items = '0': is not a valid number of items",)),
        ("row,a\nv,1\n", {"target": "0.33333333333333333333"}, ("is not a valid rate", "with at most six decimals")),
        ("row,a\nv,1\n", {"columns": ("b",)}, ("--columns = 'b': is not a column",)),
        ("", {}, ("does not contain a table",)),
        ("row\nv\n", {}, ("is the only column",)),
    ],
)
def test_what_is_wrong_in_a_table_is_one_line(tmp_path, text, options, parts):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_table(file, **options)
    assert "\n" not in str(refused.value)
    for part in parts:
        assert part in str(refused.value)


def test_a_table_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="the file does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.csv").write_bytes(b"row,a\nv,\xff\n")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8 text"):
        read_table(tmp_path / "t.csv")
