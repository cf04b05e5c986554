"""Metrics `edit/...` of the edited model on the development items; `train` measures these after every epoch."""

from collections.abc import Sequence
from functools import partial

from ablation.runner.ranks import Ranks
from trainers.debias.config import DebiasConfig
from trainers.debias.editor import Hypernetwork, edit_batches, micro_batches
from trainers.debias.measure import ItemScores, batch_mean, graded_ss, measure_edited, reported, summarise, unedited
from trainers.debias.model import SuffixModel
from trainers.debias.prepared import Prepared

Losses = list[tuple[float, float]]  # edit loss and retention loss of each pass


def development(
    model: SuffixModel, prepared: Prepared, hypernetwork: Hypernetwork, config: DebiasConfig, ranks: Ranks
) -> dict[str, float]:
    """Return the metrics `edit/...`, from edits of the development items; the hypernetwork does not change."""
    value = "ss_probability" if config.ss == "probability" else "ss"
    n_edits = config.edit.n_edits

    def measured(batches: Sequence[Sequence[int]]) -> list[list[ItemScores]]:
        size, chunk = config.edit.batch_size, config.editor.batch_size
        measure = partial(measure_edited, model, prepared, hypernetwork, batch_size=size, chunk=chunk)
        return ranks.divided(batches, measure)

    batches = {
        domain: edit_batches(prepared.indices("dev", domain), n_edits)
        for domain in sorted({item.domain for item in prepared.items})
    }
    scores = iter(measured([indices for domain_batches in batches.values() for indices in domain_batches]))
    losses: Losses = []
    domains, unedited_lms = {}, []
    for domain, domain_batches in batches.items():
        edited: list[ItemScores] = []
        before: list[ItemScores] = []
        by_batch = [next(scores) for _ in domain_batches]
        for indices, passes in zip(domain_batches, by_batch, strict=True):
            references = [unedited(prepared, part) for part in micro_batches(indices, config.edit.batch_size)]
            losses += [after.losses(reference) for reference, after in zip(references, passes, strict=True)]
            edited += passes
            before += references
        graded = float(graded_ss(prepared, prepared.indices("dev", domain), edited).mean())
        domains[domain] = summarise(edited, value) | reported(by_batch) | {"ss_graded_distance": abs(graded - 0.5)}
        unedited_lms.append(summarise(before)["lms"])
    watches_mixed = config.early_stop is not None and config.early_stop.key == "edit/ss_distance_mixed"
    if watches_mixed or config.batches.mixed:
        # The batches are the same in every epoch: drawn once, or in the order of the items.
        mixed = edit_batches(prepared.indices("dev"), n_edits, None if config.batches.mixed else "mixed")
        mixed_scores = measured(mixed)
        ss = batch_mean(mixed_scores, value)
        if config.batches.mixed:
            losses = [
                after.losses(unedited(prepared, part))
                for indices, passes in zip(mixed, mixed_scores, strict=True)
                for part, after in zip(micro_batches(indices, config.edit.batch_size), passes, strict=True)
            ]
    edit, loc = (sum(column) / len(losses) for column in zip(*losses, strict=True))
    distances = [figures["ss_distance"] for figures in domains.values()]
    figures = {"edit/loss": edit + config.loc_coef * loc, "edit/edit_loss": edit, "edit/loc_loss": loc}
    figures["edit/ss_distance"] = sum(distances) / len(distances)
    figures["edit/ss_distance_max"] = max(distances)
    for name in ("ss_graded_distance", "ss_batch_mean_distance", "lms"):
        figures[f"edit/{name}"] = sum(values[name] for values in domains.values()) / len(domains)
    figures["edit/lms_change"] = figures["edit/lms"] - sum(unedited_lms) / len(unedited_lms)
    for domain, values in domains.items():
        figures |= {f"edit/ss_{domain}": values["ss"], f"edit/ss_distance_{domain}": values["ss_distance"]}
    if watches_mixed:
        figures |= {"edit/ss_mixed": ss, "edit/ss_distance_mixed": abs(ss - 0.5)}
    return figures
