"""Logs that inspect_ai itself writes, of its model without weights: base/*.eval and .json, and new/ likewise.

    python write_inspect.py OUT

Sample n is answered rightly where n (n + 1 for `new`) is a multiple of three.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate

ITEMS, EPOCHS = 20, 2


def main() -> None:
    """Evaluate baseline and candidate, two epochs each."""
    # It counts tokens with a vocabulary from the network; the counts are not looked at.
    tiktoken.get_encoding = lambda name: SimpleNamespace(encode=lambda text, **_: text.split())
    for group, shift in (("base", 0), ("new", 1)):
        out = Path(sys.argv[1]) / group
        samples = [Sample(input=f"Say {at}.", target=f"word{at}", id=at) for at in range(1, ITEMS + 1)]

        def answer(messages, tools, tool_choice, config, shift=shift):
            at = int(messages[-1].text.split()[1].rstrip("."))
            return ModelOutput.from_content("mockllm/model", f"word{at}" if (at + shift) % 3 == 0 else "nothing")

        model = get_model("mockllm/model", custom_outputs=answer)
        task = Task(dataset=samples, solver=generate(), scorer=[match(), includes()], name="letters")
        eval(task, model=model, epochs=EPOCHS, log_dir=str(out), log_format="eval", display="none")
        (path,) = out.glob("*.eval")
        write_eval_log(read_eval_log(str(path)), str(path.with_suffix(".json")), format="json")


if __name__ == "__main__":
    main()
