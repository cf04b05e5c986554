"""Prints the history that wandb's own reader finds in files: `python wandb_decode.py FILE...`, with wandb 0.25.0.

Later versions have no such reader: `DataStore` left the package. One line of JSON: {file: [[step, {key: value}]]}.
"""

import json
import sys
from pathlib import Path

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore


def history(file):
    store, rows = DataStore(), []
    store.open_for_scan(file)
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            own = {key for key in items if key.startswith("_") or isinstance(items[key], str | list)}
            described = {key.rpartition(".")[0] for key in items if key.endswith("._type")}
            kept = {
                key: value
                for key, value in items.items()
                if key not in own and not any(key.startswith(f"{name}.") for name in described)
            }
            rows.append([record.history.step.num, kept])
    return rows


print(json.dumps({Path(file).name: history(file) for file in sys.argv[1:]}))
