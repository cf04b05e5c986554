"""StereoSet's intrasentence items: reading them from three formats, and dividing them into splits.

An item has one context and three sentences: stereotype, anti-stereotype and unrelated (arXiv 2004.09456).
"""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablation.contract.numbers import counted

SPLITS = ("train", "dev", "test")
KINDS = ("anti", "stereo", "unrelated")
GOLD_LABELS = {"anti-stereotype": "anti", "stereotype": "stereo", "unrelated": "unrelated"}


@dataclass(frozen=True)
class Item:
    """One intrasentence item, labelled as in StereoSet."""

    id: str
    domain: str
    term: str
    anti: str
    stereo: str
    unrelated: str


def _sentences(row: dict) -> dict[str, str]:
    """Return {anti, stereo, unrelated: sentence} of a row in the flat, BiasEdit's or StereoSet's own layout."""
    gold = {GOLD_LABELS[s["gold_label"]]: s["sentence"] for s in row["sentences"]} if "sentences" in row else None
    if isinstance(row.get("data"), dict):
        named = {short: row["data"][label]["sentence"] for label, short in GOLD_LABELS.items()}
        if gold is not None and gold != named:
            raise KeyError("the labels under `sentences` and under `data` differ")
        return named
    return gold if gold is not None else {short: row[label] for label, short in GOLD_LABELS.items()}


def _item(row: dict, where: str) -> Item:
    try:
        sentences = {kind: text.strip() for kind, text in _sentences(row).items()}
        domain, term = row["bias_type"], row["target"].strip().lower()
        digest = hashlib.sha256("\n".join(sentences[kind] for kind in KINDS).encode()).hexdigest()[:8]
        return Item(f"{domain}/{term.replace(' ', '-')}/{digest}", domain, term, **sentences)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} is not a StereoSet item ({error!r}); give it bias_type, target, and the sentences stereotype, "
            "anti-stereotype and unrelated"
        ) from error


def _rows(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    try:
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            data = json.loads(text)
            rows = data["data"]["intrasentence"] if isinstance(data, dict) else data
    except (ValueError, KeyError, TypeError) as error:
        form = "one JSON object per line" if path.suffix == ".jsonl" else "a list of items, or use StereoSet's dev.json"
        raise ValueError(f"{path} cannot be read ({error!r}); write {form}") from error
    if wrong := [number for number, row in enumerate(rows, start=1) if not isinstance(row, dict)]:
        raise ValueError(f"{path}, item {wrong[0]} is not an object; write items as JSON objects")
    return rows


def read_items(path: Path, domains: Sequence[str]) -> list[Item]:
    """Return the intrasentence items of the given domains in the file's order, without repetitions.

    path: a .jsonl file with one item per line (fields `type`, `bias_type`, `target`, `stereotype`, ...), or a .json
    file, which is StereoSet's own dev.json or a list of items as in BiasEdit's files. Raises ValueError, with the file,
    if the file cannot be read, a row is not a StereoSet item, or a domain has no items.
    """
    items: dict[str, Item] = {}
    for number, row in enumerate(_rows(path), start=1):
        if row.get("type", "intrasentence") == "intrasentence" and row.get("bias_type") in domains:
            item = _item(row, f"{path}, item {number}")
            items.setdefault(item.id, item)
    missing = sorted(set(domains) - {item.domain for item in items.values()})
    if missing:
        raise ValueError(f"{path} has no intrasentence items of {' and '.join(missing)}; add items or change `domains`")
    return list(items.values())


def assign_terms(counts: dict[str, int], fractions: dict[str, float], rng: random.Random) -> dict[str, str]:
    """Return {target term: split} for one domain, with numbers of items close to the given fractions.

    The terms are assigned one by one, the most frequent first, to the split that lacks the most items. When there are
    only as many terms left as empty splits, each empty split gets one.

    counts: items per term. fractions: share of the items per split; they add up to 1. rng: orders equally frequent
    terms. Raises ValueError if there are fewer terms than splits.
    """
    if len(counts) < len(fractions):
        raise ValueError(
            f"the items have {counted(len(counts), 'target term')}, but each of the {len(fractions)} splits needs its "
            "own; add items with other terms"
        )
    terms = sorted(counts)
    rng.shuffle(terms)
    terms.sort(key=lambda term: -counts[term])
    lacking = {split: fraction * sum(counts.values()) for split, fraction in fractions.items()}
    empty = set(fractions)
    assigned = {}
    for position, term in enumerate(terms):
        candidates = empty if len(terms) - position <= len(empty) else set(fractions)
        split = max(sorted(candidates), key=lambda name: lacking[name])
        assigned[term] = split
        lacking[split] -= counts[term]
        empty.discard(split)
    return assigned


def split_items(
    items: Iterable[Item], fractions: dict[str, float], max_items: dict[str, int | None], seed: int
) -> dict[str, list[Item]]:
    """Return the items of each split, divided by target term so that no term of a domain is in two splits.

    fractions: share of the items per split. max_items: largest number of items to keep per domain in each split; None:
    all. seed: draws the terms and the order of a domain's items. Raises ValueError if a domain has too few terms.
    """
    by_domain: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_domain[item.domain].append(item)
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for domain, members in by_domain.items():
        rng = random.Random(f"{seed}/{domain}")
        try:
            assigned = assign_terms(Counter(item.term for item in members), fractions, rng)
        except ValueError as error:
            raise ValueError(f"domain {domain}: {error}") from error
        for split in SPLITS:
            chosen = [item for item in members if assigned[item.term] == split]
            rng.shuffle(chosen)
            splits[split] += chosen[: max_items[split]]
    return splits


def split_files(folder: Path, domains: Sequence[str]) -> dict[str, dict[Path, tuple[str, ...]]]:
    """Return {split: {file: domains to read from it}}. Raises ValueError if a split or a domain has no file.

    A split is one file for all domains, `<split>.json`, or a file per domain, `<domain>_<split>.json`; .jsonl is read
    too.
    """
    files = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".jsonl")}
    splits: dict[str, dict[Path, tuple[str, ...]]] = {}
    for split in SPLITS:
        if split in files:
            splits[split] = {files[split]: tuple(domains)}
            continue
        if missing := [domain for domain in domains if f"{domain}_{split}" not in files]:
            raise ValueError(
                f"data: {split}.json and {missing[0]}_{split}.json are missing (the folder has "
                f"{', '.join(path.name for path in files.values()) or 'no JSON file'}), but `split.by: file` needs one "
                "of them; name a folder with BiasEdit's files, or set `split.by: term`"
            )
        splits[split] = {files[f"{domain}_{split}"]: (domain,) for domain in domains}
    return splits


def read_own_splits(
    files: Mapping[str, Mapping[Path, Sequence[str]]],
    max_items: Mapping[str, int | None],
    labels: Iterable[Item] | None,
) -> dict[str, list[Item]]:
    """Return the items of the splits that `split_files` found, in the order of the files.

    max_items: largest number of items to keep per domain in each split; None: all. labels: StereoSet's own items, whose
    labels are compared; None: no comparison. Raises ValueError if a file cannot be read, has no items of a domain, or
    has swapped labels.
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
    """Compare a file's labels with StereoSet's own; return the number of the file's items that are in StereoSet.

    Raises ValueError if stereotype and anti-stereotype of an item are swapped.
    """
    orders: dict[frozenset[str], set[str]] = {}
    for item in labels:
        orders.setdefault(_pair(item), set()).add(_plain(item.stereo))
    both = [item for item in items if _pair(item) in orders]
    swapped = [item for item in both if _plain(item.stereo) not in orders[_pair(item)]]
    if swapped:
        raise ValueError(
            f"{path.name}: stereotype and anti-stereotype are swapped in {len(swapped)} of the {len(both)} items that "
            f"are also in StereoSet; for example, StereoSet labels {swapped[0].stereo!r} as the anti-stereotype; "
            "exchange the two labels in the file as docs/studies/debias.md shows"
        )
    return len(both)


def _pair(item: Item) -> frozenset[str]:
    return frozenset((_plain(item.stereo), _plain(item.anti)))


def _plain(sentence: str) -> str:
    """Return a sentence without what differs between copies of StereoSet: case, final punctuation, repeated spaces."""
    return " ".join(sentence.lower().split()).rstrip(".!? ")
