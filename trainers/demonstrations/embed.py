"""Stage `embed` of study `demonstrations`: queries, their pools and all embeddings, shared by all variants."""

import torch
from torch import Tensor

from trainers.demonstrations.in_context import Resumable, load_in_context_model
from trainers.demonstrations.prepared import Prepared, save_prepared
from trainers.parallel import join
from trainers.running.stage import Stage

RANKS = join  # several devices: a process for each, with some of the batches


def run(stage: Stage) -> None:
    """Write embeddings, pools, names and splits to the files that `load_prepared` reads."""
    model = load_in_context_model(stage)
    division = model.divide()
    names = [model.names[item] for item in division.queries]
    work = Resumable(stage)
    queries, demonstrations = torch.tensor(division.queries), torch.tensor(division.demonstrations)

    def embedded(name: str, items: Tensor) -> Tensor:
        return work.rows(name, len(items), lambda part: (model.embed(items[part]).float().cpu(), ()))

    prepared = Prepared(
        embedded("queries", queries),
        embedded("demonstrations", demonstrations),
        queries,
        demonstrations,
        division.pools,
        names,
        division.splits,
    )
    save_prepared(stage.out, prepared)
    numbers = len(queries), len(demonstrations), prepared.candidates
    stage.log.info("queries: %d, demonstrations: %d, candidates per query: %d", *numbers)
