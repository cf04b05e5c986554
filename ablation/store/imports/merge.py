"""What is known of a run from an earlier import, and what its log says now: one course without steps twice."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ablation.readers.run import ITEM_ROWS, METRIC_ROWS

_ITEM = ["item", "subset", "protocol", "name"]


def merged_metrics(known: pa.Table, logged: pa.Table) -> pa.Table:
    """Return METRIC_ROWS: all that is logged now, and of what was known the part that still holds.

    A log that was cut short, or begun anew by a resumed run, lacks rows that were known: they stay. Where both have a
    number and they differ, the run was taken back to an earlier step and went another way: from that step on only the
    log of now counts.
    """
    if known.num_rows == 0:
        return _sorted(logged)
    keys = ["step", "name"]
    both = known.join(logged.rename_columns([*keys, "now"]), keys=keys, join_type="inner").combine_chunks()
    was, now = both["value"].to_numpy(), both["now"].to_numpy()
    differ = ~((was == now) | (np.isnan(was) & np.isnan(now)))
    rest = known.join(logged.select(keys), keys=keys, join_type="left anti").select(METRIC_ROWS.names)
    if differ.any():
        rest = rest.filter(pc.less(rest["step"], int(both["step"].to_numpy()[differ].min())))
    return _sorted(pa.concat_tables([rest.cast(METRIC_ROWS), logged]))


def merged_items(known: pa.Table | None, evaluated: pa.Table | None) -> pa.Table | None:
    """Return ITEM_ROWS: those of now, and the known ones of subsets that are not among them."""
    if known is None or evaluated is None:
        return evaluated if known is None else known
    place = ["subset", "protocol"]
    rest = known.join(evaluated.group_by(place).aggregate([]), keys=place, join_type="left anti")
    return pa.concat_tables([rest.select(ITEM_ROWS.names).cast(ITEM_ROWS), evaluated])


def sorted_items(items: pa.Table) -> pa.Table:
    """Return the items in an order that does not depend on that of the source."""
    return items.sort_by([(name, "ascending") for name in ("protocol", "subset", "name", "item")])


def twice(items: pa.Table) -> str | None:
    """Return an item that has two values of one name, in words."""
    counted = items.group_by(_ITEM).aggregate([([], "count_all")])
    often = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).to_pylist()
    for row in often:
        return f"item {row['item']} of {row['subset']} has {row['count_all']} values of {row['name']}"
    return None


def _sorted(metrics: pa.Table) -> pa.Table:
    return metrics.sort_by([("step", "ascending"), ("name", "ascending")])
