"""Find the seed in the name of a run or a file."""

import re

_NUMBER = r"(?P<seed>\d+)(?!\d|\.\d+(?:$|[-_/ ]))"  # `seed_0.5` is a setting
_SEED = re.compile(rf"(?<![^\W\d_])(?:seed[-_=: ]?|seeds?/){_NUMBER}", re.IGNORECASE)
_OTHER = re.compile(
    r"(?:^|(?<=[-_./ ]))(?:(?:s|rs)[-_= ]?(?=\d{1,4}(?!\d))"
    rf"|(?:run|rep|repeat|repetition|replica|replicate|trial)[-_= ]?(?=\d{{1,3}}(?!\d))){_NUMBER}"
    r"(?=$|[-_./ ])(?<!\d{4}(?=[-_.]\d))(?![-_.]\d{1,2}[-_.]\d{1,4}(?!\d))",
    re.IGNORECASE,
)


def seed_in(name: str, *, only_seed: bool = False) -> re.Match[str] | None:
    """Return the match of the last seed in a name or path, with the number as its group `seed`; None without a seed.

    A number is a seed only after one of these words:

    - `seed` anywhere but inside a word: `seed3`, `seed_3`, `lr1-seed=3`, `seed/3`, `seeds/3`. It wins over the others.
    - `s` or `rs` with at most four digits, or `run`, `rep`, `repeat`, `replica`, `trial` and the like with at most
      three, as a separate part of the name: `s3`, `run-3`, `rep_3`, `trial3`. Dates, times and versions are not seeds:
      `run-1127`, `run-2026-11-27`, `run_20261127`, `run-27.11.2026`, `run_10-15-30`, `run-1.2.0`.

    Nothing else is a seed: `checkpoint-500`, `step_500`, `epoch3`, `iter3`, `fold_3`, `version_3`, `tiny-v2`, `7b`,
    `2026-11-27`, a folder `3`. With `only_seed`, only the word `seed` counts.
    """
    matches = list(_SEED.finditer(name))
    if not matches and not only_seed:
        matches = list(_OTHER.finditer(name))
    return matches[-1] if matches else None


def without_seed(name: str, seed: re.Match[str] | None) -> str:
    """Return a name without the seed that `seed_in` found in it, if any, and without separators that are left over."""
    if seed:
        name = name[: seed.start()] + name[seed.end() :]
    return re.sub(r"[-_./ ]{2,}", "-", name).strip("-_./ ")
