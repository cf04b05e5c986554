"""Writes docs/studies/claims.tsv and README.md, the sources' claims beside what was measured.

`make_claims.py RESULTS ...`: each RESULTS is the results folder of a grid; studies of a scale may be in several. Lines
of a study that ran in none of them stay as they are. claims.tsv has a table of each scale, and the page is made of it.
Fails if a claim is on a metric that its runs do not log.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ablation.audit import claimed  # noqa: E402
from ablation.audit.claimed import NOT_RUN, Claimed  # noqa: E402
from ablation.audit.measured import measured, published_value  # noqa: E402
from ablation.config.published_schema import PublishedFile  # noqa: E402
from ablation.config.settings import load_settings  # noqa: E402
from ablation.config.variants import load_studies  # noqa: E402
from ablation.judge.stored import read_measurements  # noqa: E402
from ablation.store.database import DATABASE, Store  # noqa: E402

CONFIGS = DOCS.parent / "configs"
HEAD = """# The studies that come with the repository

- [debias](debias.md): which terms of a loss edit the bias out of a language model?
- [innovations](innovations.md) and [gspo](gspo.md): which weights, advantages and KL control train a better reasoner?
- [gad](gad.md): which loss of a critic distils a teacher that can only be read?
- [demonstrations](demonstrations.md): which reward chooses better examples for a prompt?

Each study follows a set of notes; [From the sources](from-the-sources.md) translates their scripts and flags.

## What the notes claim, and what was measured here

[claims.tsv](claims.tsv) has every claim of `configs/published/`, what was measured at the models and sizes of our
scales, the smallest change that the grid would have shown, and the verdict. `docs/make_claims.py RESULTS` writes it.
"""
TAIL = """
Each claim is judged by itself, so one in twenty of the intervals misses by chance. A number of a training log is
reproduced if another run of ours could give it: as its median over the training, or as its mean around the named step,
at the same fraction of our training. A range is reproduced if at least half of our steps lie inside, and contradicted
if none does.
"""
COLUMNS = ("scale", "study", "variant", "claimed", "measured", "visible from", "verdict")
NEEDED = "`snakemake --configfile configs/claims.yaml` runs all of them."
VERDICTS = {
    "reproduced": "our 95% interval lies on the claimed side of 0, or within the margin if no change is claimed",
    "contradicted": "it lies on the other side, or excludes 0 if no change is claimed",
    "not seen": "it contains 0; the grid would have shown a change as large as the claimed one with 80% power",
    "too small to see here": "it contains 0; the grid would not have shown such a change",
    "inert here": "both variants give every item the same value in every seed",
    "true by construction": "the code can compute nothing else",
    "set by the scale": "the figure repeats a setting that has another value here",
    "not testable here": "not run, seeds that agree to the last digit, or a length of the source's data",
}
JUDGED = [*VERDICTS][:4]

Row = dict[str, str]


def rows_of(folders: Sequence[Path], sources: Mapping[str, PublishedFile], before: Sequence[Row]) -> Iterator[Row]:
    """Yield the lines of results folders by scale and study; those of `before` for studies that ran in none.

    Raises SystemExit for a claim on a metric that is not logged, and for a study that two folders of a scale hold.
    """
    found: dict[str, dict[str, Sequence[Claimed]]] = {}
    for folder in folders:
        with Store(folder / DATABASE) as store:
            ours = found.setdefault(str(store.meta()["scale"]), {})
            for name in sorted({*store.studies()} & {*sources}):
                published = sources[name]
                study = read_measurements(store, name, published_value(store, name, published))
                if not study.values:  # planned and not run
                    continue
                if name in ours:
                    raise SystemExit(
                        f"{folder}: the study {name} of its scale is in an earlier folder; leave one of them out"
                    )
                ours[name] = claimed(published, measured(store, study, published))
    for scale in dict.fromkeys([*(row["scale"] for row in before), *found]):
        of_scale = [row for row in before if row["scale"] == scale]
        sized = yaml.safe_load((CONFIGS / "scales" / f"{scale}.yaml").read_text(encoding="utf-8"))["studies"]
        for name in sources:
            kept = [row for row in of_scale if row["study"] == name]
            if name in found.get(scale, ()):
                yield from (_row(scale, name, claim) for claim in found[scale][name])
            elif kept:
                yield from kept
            elif name in sized:
                yield from (_row(scale, name, claim) for claim in claimed(sources[name], None))


def _row(scale: str, study: str, claim: Claimed) -> Row:
    if claim.verdict == "not logged":
        raise SystemExit(f"configs/published: {claim.variant}: {claim.said}: {claim.measured}; name a logged metric")
    cells = scale, study, claim.variant, claim.said, claim.measured, claim.visible, claim.verdict
    return dict(zip(COLUMNS, cells, strict=True))


def page(rows: Sequence[Row]) -> str:
    """Return the page: the claims counted by verdict and study, of each scale at which any could be judged."""
    scales = list(dict.fromkeys(row["scale"] for row in rows if row["verdict"] in JUDGED))
    judged = [row for row in rows if row["scale"] in scales]
    groups = list(dict.fromkeys((row["study"], row["scale"]) for row in judged))
    counts = Counter((row["study"], row["scale"], row["verdict"]) for row in judged)
    lines = [HEAD]
    if missing := sum(row["measured"] == NOT_RUN for row in judged):
        lines += [f"{missing} of {len(judged)} claims are on variants that did not run. {NEEDED}", ""]
    lines += [
        f"| verdict | {' | '.join(['meaning', *map(', '.join, groups)])} |",
        f"| --- | --- |{' ---: |' * len(groups)}",
    ]
    for verdict, meaning in VERDICTS.items():
        lines.append(f"| {' | '.join([verdict, meaning, *(str(counts[*group, verdict]) for group in groups)])} |")
    return "\n".join([*lines, TAIL])


def read(file: Path) -> list[Row]:
    """Return the rows of claims.tsv."""
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE))


def main(results: Sequence[Path], configs: Path = CONFIGS, studies: Path = DOCS / "studies") -> None:
    """Write both files into the folder `studies`."""
    names = sorted(path.parent.name for path in configs.glob("studies/*/_study.yaml"))
    known = load_studies(load_settings({"studies": names}, configs=configs))
    sources = {name: study.published for name, study in known.items() if study.published is not None}
    written = studies / "claims.tsv"
    rows = list(rows_of(results, sources, read(written) if written.exists() else []))
    lines = ["\t".join(COLUMNS), *("\t".join(row[column] for column in COLUMNS) for row in rows)]
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (studies / "README.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    main([Path(folder) for folder in sys.argv[1:]])
