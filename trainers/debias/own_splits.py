"""Splits that come as files, as BiasEdit's do, and labels held against StereoSet's own.

BiasEdit (github.com/zjunlp/BiasEdit, dataset/stereoset) trains on `train.json`, stops on `dev.json`, and tests on
`gender_test.json`, `race_test.json` and `religion_test.json`: 253, 962 and 77 items of StereoSet's development set.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainers.debias.data import SPLITS, Item, read_items

SUFFIXES = (".json", ".jsonl")


def split_files(folder: Path, domains: Sequence[str]) -> dict[str, dict[Path, tuple[str, ...]]]:
    """Find the files of each split, and the domains that each is read for.

    A split is one file `<split>.json` of all domains, or `<domain>_<split>.json` for each domain; `.jsonl` too.

    Args:
        folder: the data asset's files.
        domains: the domains that are used.

    Raises:
        ValueError: a split has neither, or a file stands twice with both suffixes.
    """
    found = {}
    for split in SPLITS:
        whole = _one(folder, split)
        if whole is not None:
            found[split] = {whole: tuple(domains)}
            continue
        by_domain = {domain: _one(folder, f"{domain}_{split}") for domain in domains}
        missing = [domain for domain, path in by_domain.items() if path is None]
        if missing:
            present = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
            raise ValueError(
                f"data: split.by file needs {split}.json, or one of each domain ({missing[0]}_{split}.json is missing)"
                f"; the data has {present}. Give a folder with BiasEdit's files, or set split.by to term"
            )
        found[split] = {path: (domain,) for domain, path in by_domain.items() if path is not None}
    return found


def _one(folder: Path, stem: str) -> Path | None:
    paths = [path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()]
    if len(paths) > 1:
        raise ValueError(f"data: both {paths[0].name} and {paths[1].name}: keep one")
    return paths[0] if paths else None


def read_own_splits(
    files: Mapping[str, Mapping[Path, Sequence[str]]],
    max_items: Mapping[str, int | None],
    labels: Iterable[Item] | None,
) -> dict[str, list[Item]]:
    """Read the splits, items in the order of their files.

    Args:
        files: from `split_files`.
        max_items: at most so many items per domain and split, the first ones, or None.
        labels: StereoSet's own items; see `refuse_swapped`. None: labels are not compared.

    Raises:
        ValueError: a file is not of StereoSet's form, lacks a domain, or has swapped labels.
    """
    reference = None if labels is None else list(labels)
    splits: dict[str, list[Item]] = {}
    for split, paths in files.items():
        kept: dict[str, int] = {}
        splits[split] = []
        for path, domains in paths.items():
            items = read_items(path, domains)
            if reference is not None:
                refuse_swapped(items, reference, path)
            for item in items:
                kept[item.domain] = kept.get(item.domain, 0) + 1
                most = max_items[split]
                if most is None or kept[item.domain] <= most:
                    splits[split].append(item)
    return splits


def refuse_swapped(items: Sequence[Item], labels: Iterable[Item], path: Path) -> int:
    """Compare labels with StereoSet's; items that it does not have are passed over.

    Args:
        items: the items of one file.
        labels: StereoSet's own items.
        path: the file, for the message.

    Returns:
        How many of the items StereoSet has.

    Raises:
        ValueError: items whose stereotype is StereoSet's anti-stereotype; the message counts them.
    """
    orders: dict[frozenset[str], set[str]] = {}
    for item in labels:
        orders.setdefault(_pair(item), set()).add(_plain(item.stereo))
    known = [item for item in items if _pair(item) in orders]
    swapped = [item for item in known if _plain(item.stereo) not in orders[_pair(item)]]
    if swapped:
        raise ValueError(
            f"{path.name}: stereotype and anti-stereotype are swapped in {len(swapped)} of its {len(items)} items "
            f"({len(known)} of them are in StereoSet); the first has stereotype {swapped[0].stereo!r}, which StereoSet "
            "labels anti-stereotype. Exchange the two labels in the file (docs/studies/debias.md says how)"
        )
    return len(known)


def _pair(item: Item) -> frozenset[str]:
    return frozenset((_plain(item.stereo), _plain(item.anti)))


def _plain(sentence: str) -> str:
    """Without case, punctuation at the end and repeated blanks, in which copies of StereoSet differ."""
    return " ".join(sentence.lower().split()).rstrip(".!? ")
