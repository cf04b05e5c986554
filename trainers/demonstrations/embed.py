"""Stage `embed` of study `demonstrations`: embeddings of queries and demonstrations, shared by all variants."""

from trainers.demonstrations.in_context import load_in_context_model
from trainers.demonstrations.prepared import Prepared, save_prepared
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Write embeddings, pools, names and splits (`prepared.py`)."""
    model = load_in_context_model(stage)
    queries, demonstrations = model.embeddings()
    data = model.data
    if len(set(data.names)) != len(data.names):
        raise ValueError("data: two queries have the same id")
    prepared = Prepared(queries.float().cpu(), demonstrations.float().cpu(), data.pools, data.names, data.splits)
    save_prepared(stage.out, prepared)
    stage.log.info("%d queries, %d demonstrations, pools of %d", *map(len, (queries, demonstrations, data.pools[0])))
