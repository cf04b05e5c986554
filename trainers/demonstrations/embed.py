"""Stage `embed` of study `demonstrations`: queries, their pools, and embeddings of both, shared by all variants."""

import torch
from torch import Tensor

from ablation.contract.atomic import write_json
from trainers.assets import files
from trainers.demonstrations.in_context import InContextModel, load_in_context_model, one_file
from trainers.demonstrations.prepared import IMPORTED, Prepared, save_prepared
from trainers.demonstrations.resumable import Resumable
from trainers.demonstrations.source_json import Imported, imported_pools, read_sequences
from trainers.parallel import join
from trainers.stage import Stage

RANKS = join  # several devices: a process for each, with some of the batches


def run(stage: Stage) -> None:
    """Write embeddings, pools, names and splits (`prepared.py`). With `offline` the pools are those of its file."""
    model = load_in_context_model(stage)
    imported = _imported(stage, model)
    division = model.divide(imported)
    names = [model.names[item] for item in division.queries]
    if len(set(names)) != len(names):
        raise ValueError("data: two queries have the same id")
    work = Resumable(stage, stage.config.score_batch)
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
    stage.log.info(
        "%d queries, %d demonstrations, pools of %d", *map(len, (queries, demonstrations, division.pools[0]))
    )


def _imported(stage: Stage, model: InContextModel) -> Imported | None:
    if "offline" not in stage.inputs:
        return None
    sequences = read_sequences(one_file(files(stage.inputs["offline"]), (".json",)))
    positions = model.training if stage.config.offline_names == "position" else None
    imported = imported_pools(sequences, model.names, positions)
    named = {query: model.names[item] for query, item in zip(sequences.pools, imported.pools, strict=True)}
    write_json(stage.out / IMPORTED, named)
    return imported
