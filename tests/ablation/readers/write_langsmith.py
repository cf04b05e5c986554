"""Tables of LangSmith's `evaluate`, offline: base.csv and new.csv, two runs of each of 12 examples.

    cd OUT && python write_langsmith.py

Example n is right where n (n + 1 for `new`) is not a multiple of three; the second run of 5 by `new` fails.
"""

import uuid
from datetime import UTC, datetime

from langsmith import Client, evaluate
from langsmith.schemas import Example

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IDS = [uuid.UUID(int=at) for at in range(12)]


def main() -> None:
    data = [
        Example(id=each, inputs={"n": at}, outputs={"word": "yes"}, dataset_id=uuid.UUID(int=99), created_at=NOW)
        for at, each in enumerate(IDS)
    ]
    for name, shift in (("base", 0), ("new", 1)):
        asked = []

        def target(inputs, shift=shift, asked=asked):
            asked.append(inputs["n"])
            if shift and inputs["n"] == 5 and asked.count(5) == 2:
                raise RuntimeError("no connection")
            return {"word": "yes" if (inputs["n"] + shift) % 3 else "no"}

        def correct(outputs, reference_outputs):
            return (outputs or {}).get("word") == reference_outputs["word"]

        client = Client(api_key="none", api_url="http://127.0.0.1:9", auto_batch_tracing=False)
        options = {"upload_results": False, "num_repetitions": 2, "max_concurrency": 0}
        results = evaluate(target, data=data, evaluators=[correct], client=client, **options)
        results.to_pandas().to_csv(f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
