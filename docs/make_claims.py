"""Writes docs/studies/README.md, the claims of the five sources beside what was measured: `make_claims.py RESULTS`.

RESULTS is the results folder of a grid. Without one, no claim is testable: the table then says what is claimed.
"""

import sys
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ablation.audit.claimed import Claimed, claimed  # noqa: E402
from ablation.audit.measured import measured, published_value  # noqa: E402
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
those of the scale, not the sources'. {scale}

A change is *reproduced* if the 95% interval of our mean lies on the claimed side of 0 (around 0 where none is claimed),
*contradicted* on the other side, else *not seen*. A figure of a training log is reproduced if our curve passes it, a
range if at least half of our steps lie inside (*contradicted*: none).
"""


def page(results: Path | None, configs: Path = CONFIGS) -> str:
    """Return the page of a results folder, or of none."""
    names = sorted(path.parent.name for path in configs.glob("studies/*/_study.yaml"))
    studies = load_studies(load_settings({"studies": names}, configs=configs))
    sources = {name: study.published for name, study in studies.items() if study.published is not None}
    if results is None:
        tables = {name: claimed(published, None) for name, published in sources.items()}
        scale = "Nothing was measured."
    else:
        with Store(results / DATABASE) as store:
            tables = {}
            for name, published in sources.items():
                ours = None
                if name in store.studies():
                    value = published_value(store, name, published)
                    ours = measured(store, read_measurements(store, name, value), published)
                tables[name] = claimed(published, ours)
            scale = f"Measured at scale {store.meta()['scale']}."
    counts = Counter(claim.verdict for claims in tables.values() for claim in claims)
    lines = [HEAD.format(scale=scale), f"Of {counts.total()} claims, {_counted(counts)}.", ""]
    lines += ["| study | variant | claimed | measured | verdict |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(name, claim) for name, claims in tables.items() for claim in claims]
    return "\n".join(lines) + "\n"


def _row(study: str, claim: Claimed) -> str:
    cells = [markdown(text) for text in (claim.said, claim.measured, claim.verdict)]
    return f"| {study} | `{claim.variant}` | {' | '.join(cells)} |"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {'is' if number == 1 else 'are'} {verdict}" for verdict, number in counts.most_common())


if __name__ == "__main__":
    (DOCS / "studies" / "README.md").write_text(page(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
