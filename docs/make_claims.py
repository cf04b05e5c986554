"""Writes docs/studies/README.md, the claims of the five sources beside what was measured: `make_claims.py RESULTS ...`.

Each RESULTS is the results folder of a grid. The table is of the first; of each there is a line of counts. A claim of a
variant that a grid did not run is not testable there. Fails where a claim is on a metric that its runs do not log.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ablation.audit import claimed  # noqa: E402
from ablation.audit.claimed import Claimed  # noqa: E402
from ablation.audit.measured import measured, published_value  # noqa: E402
from ablation.config.published_schema import PublishedFile  # noqa: E402
from ablation.config.settings import load_settings  # noqa: E402
from ablation.config.variants import load_studies  # noqa: E402
from ablation.judge.measurements import read_measurements  # noqa: E402
from ablation.show.text import markdown  # noqa: E402
from ablation.store.database import DATABASE, Store  # noqa: E402

CONFIGS = DOCS.parent / "configs"
HEAD = """# The studies that come with the repository

- [debias](debias.md): which terms of a loss edit the bias out of a language model?
- [innovations](innovations.md) and [gspo](gspo.md): which weights, advantages and KL control train a better reasoner?
- [gad](gad.md): which loss of a critic distils a teacher that can only be read?
- [demonstrations](demonstrations.md): which reward chooses better examples for a prompt?

`ablation variants debias` prints the variants of one. Each study follows a set of notes; [From the
sources](from-the-sources.md) translates their scripts and flags.

## What the notes claim, and what was measured here

`docs/make_claims.py RESULTS` makes this page from `configs/published/` and a results folder. Our models and sizes are
those of the scale, not the sources'. `make demo` runs the variants of `debias` but for `v8.1`; the other rows need
`make grid`.

- *reproduced*, *contradicted*: the 95% interval of our mean lies on the claimed side of 0, or on the other one. If no
  change is claimed: within the study's margin, or off 0.
- *not seen*: the interval contains 0, and a change as large as the claimed one would have been shown with 80% power.
- *too small to see here*: it would not. "Visible from" is the smallest change that would, in the claim's unit.
- *inert here*: both variants give every item the same value in every seed. The change did not reach this metric.
- *true by construction*: the code can compute nothing else, so no run can fail the claim.
- *set by the scale*: the figure repeats a setting that has another value here.
- *not testable here*: not run, or seeds that agree to the last digit, or a length of the source's data.

A number of a training log is reproduced if another run of ours could give it: as its median over the training, or as
its mean around the named step, at the same fraction of our training. A range is reproduced if at least half of our
steps lie inside, and contradicted if none does.
"""
COLUMNS = "| variant | claimed | measured | visible from | verdict |\n| --- | --- | --- | --- | --- |"

Tables = Mapping[str, Sequence[Claimed]]


def page(results: Sequence[Path], configs: Path = CONFIGS) -> str:
    """Return the page. Raises SystemExit for a claim on a metric that is not logged."""
    names = sorted(path.parent.name for path in configs.glob("studies/*/_study.yaml"))
    studies = load_studies(load_settings({"studies": names}, configs=configs))
    sources = {name: study.published for name, study in studies.items() if study.published is not None}
    by_scale = [tables(folder, sources) for folder in results]
    lines = [HEAD, *(_summary(scale, found) for scale, found in by_scale)]
    for name, claims in by_scale[0][1].items():
        lines += ["", f"### {name}", "", COLUMNS, *map(_row, claims)]
    return "\n".join(lines) + "\n"


def tables(results: Path, sources: Mapping[str, PublishedFile]) -> tuple[str, Tables]:
    """Return a results folder's scale, and the lines of each study."""
    found = {}
    with Store(results / DATABASE) as store:
        for name, published in sources.items():
            ours = None
            if name in store.studies():
                value = published_value(store, name, published)
                ours = measured(store, read_measurements(store, name, value), published)
            found[name] = claimed(published, ours)
        scale = str(store.meta()["scale"])
    for claim in (claim for claims in found.values() for claim in claims if claim.verdict == "not logged"):
        raise SystemExit(f"configs/published: {claim.variant}: {claim.said}: {claim.measured}; name a logged metric")
    return scale, found


def _summary(scale: str, found: Tables) -> str:
    counts = Counter(claim.verdict for claims in found.values() for claim in claims)
    return f"At scale {scale}, of {counts.total()} claims: {_counted(counts.most_common())}."


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in counts)


def _row(claim: Claimed) -> str:
    cells = [markdown(text) or "–" for text in (claim.said, claim.measured, claim.visible, claim.verdict)]
    return f"| `{claim.variant}` | {' | '.join(cells)} |"


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    (DOCS / "studies" / "README.md").write_text(page([Path(folder) for folder in sys.argv[1:]]))
