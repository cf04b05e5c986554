"""Which files of a folder are read: links, hidden files and copies; and which names hold a seed."""

import pytest

from ablation.contract.errors import ConfigError
from ablation.readers.seeds import seed_in
from ablation.readers.walk import files_below


def place(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def walked(folder, *patterns, **options):
    told = []
    found = files_below(folder, patterns, told.append, **options)
    return [path.relative_to(folder).as_posix() for path in found], [line.partition(": ")[2] for line in told]


def test_links_are_followed_once_and_a_file_itself_comes_before_a_link_to_it(tmp_path):
    place(tmp_path, "runs/seed_0/a.csv", "runs/seed_3/a.csv", "scratch/s1/a.csv", "scratch/one.csv", "scratch/s2/a.csv")
    for link, target in (
        ("runs/seed_1", "scratch/s1"),
        ("runs/seed_2", "runs/seed_3"),  # not another run
        ("runs/latest-run", "runs/seed_3"),
        ("runs/again", "scratch/s1"),
        ("runs/one.csv", "scratch/one.csv"),
        ("runs/gone", "nowhere"),
    ):
        (tmp_path / link).symlink_to(tmp_path / target)
    found, told = walked(tmp_path / "runs", "*.csv")
    assert found == ["again/a.csv", "one.csv", "seed_0/a.csv", "seed_3/a.csv"]
    assert told == [
        "broken links are left out (1): gone",
        "links to files that are read anyway are left out (2): seed_1, seed_2",
    ]
    assert walked(tmp_path / "runs/seed_1", "*.csv")[0] == ["a.csv"]  # the folder that is named may be a link


@pytest.mark.parametrize("target", ["runs/seed_3", "runs", ""])
def test_a_link_to_a_folder_that_contains_it_is_refused(tmp_path, target):
    place(tmp_path, "runs/seed_3/a.csv")
    (tmp_path / "runs/seed_3/up").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"seed_3/up: links to .*, which contains the link; remove the link"):
        walked(tmp_path / "runs", "*.csv")


@pytest.mark.parametrize("copy", ["x (1).csv", "x copy.csv", "x-Copy1.csv", "x 2.csv"])
def test_a_copy_beside_its_original_is_refused(tmp_path, copy):
    place(tmp_path, "a/x.csv", f"a/{copy}")
    with pytest.raises(ConfigError, match=r"looks like a copy of x\.csv in the same folder; remove or rename one"):
        walked(tmp_path, "*.csv")


def test_hidden_and_backup_files_are_left_out_and_counted(tmp_path):
    place(tmp_path, "a/x.csv", "a/x.csv.bak", "a/._x.csv", "a/.DS_Store", "a/y (1).csv")
    place(
        tmp_path, "a/.ipynb_checkpoints/x-checkpoint.csv", "__MACOSX/a/x.csv", "a.bak/x.csv", ".hydra/c.yaml", "n.txt"
    )
    found, told = walked(tmp_path, "*.csv")
    assert found == ["a/x.csv", "a/y (1).csv"]  # of `y (1).csv` there is no original
    hidden = "__MACOSX/a/x.csv, a.bak/x.csv, a/._x.csv and 2 more"
    assert set(told) == {
        f"hidden files, temporary files or backup copies are left out (5): {hidden}",
    }
    assert walked(tmp_path, "*.csv", depth=1) == ([], [])
    assert walked(tmp_path / "a/.ipynb_checkpoints", "*.csv")[0] == ["x-checkpoint.csv"]  # named, so it is wanted


@pytest.mark.parametrize(
    ("seed", "names"),
    [
        (
            "3",
            "seed3 seed_3 lr1-seed=3 SEED-3/x seed/3 seeds/3/a.csv s3 a/s_3/b x-s3 run-3 run_3_20261127 "
            "run-3_2026-11-27 rep3 trial_3",
        ),
        ("1", "run-3/seed_1 seed_1/run-3 tiny_seed1.csv seed_0/seed_1 seed1/s3 rep_1.jsonl replicate-1"),
        ("1337", "s1337 seed_1337"),
        (
            None,
            "checkpoint-500 step_500 step3 epoch3 epoch=3 iter_3 global_step_3 fold_3 version_3 v3 tiny-v2 7b "
            "llama-3 2026-11-27 20261127 run-2026-11-27 run_20261127 run-20261127_120000-abcd 3 runs/2026 seeds_3 "
            "run-27-11-2026 run_27.11.26 run_10-15-30 run-1.2.0 s1.2.3 "
            "dataset3 seed_0.5 s0.5 bs32 part3 class3 Nov27_10-00-00_host 2026-11-27T10-00-00 lr1e-3 temp0.7 8x7b",
        ),
    ],
)
def test_a_number_is_a_seed_only_after_a_word_that_says_so(seed, names):
    assert {name: found and found["seed"] for name in names.split() for found in [seed_in(name)]} == dict.fromkeys(
        names.split(), seed
    )
