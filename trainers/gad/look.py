"""Responses to look at: a few prompts, the teacher's answer and several of the student's, as a page of Markdown."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ablation.contract.atomic import write_text
from trainers.gad.config import SeqKD
from trainers.gad.quality import chrf
from trainers.gad.rollouts import Rollouts
from trainers.gad.rows import Row
from trainers.policy.models import Placement
from trainers.stage import Stage, with_run_seed

PAGE = "responses.md"


def look_at(
    stage: Stage,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    *,
    settings: SeqKD,
    placement: Placement,
    limit: int,
    step: int,
) -> dict[str, float]:
    """Add `settings.samples` responses to each of the rows' prompts to `responses.md`, under the number of the step.

    limit: longest response in tokens. Step 0 begins the page. Returns the mean chrF to the teacher, and the mean length
    in tokens. Nothing is learnt from them.
    """
    count, training = settings.samples, model.training
    model.eval()
    rollouts = Rollouts(model, tokenizer, placement, limit=limit, temperature=settings.sample_temperature)
    generator = torch.Generator().manual_seed(with_run_seed(settings.seed, stage.seed))
    sequences, texts = rollouts.sample(rows, group_size=count, generator=generator, memory=stage.micro_batch(None))
    model.train(training)
    near = chrf(texts, [row.teacher_response for row in rows for _ in range(count)])
    lines = [f"# Step {step}", ""]
    for i, row in enumerate(rows):
        lines += [f"## {row.id}", "", *(f"**{message['role']}**: {message['content']}" for message in row.content), ""]
        lines += [f"**teacher**: {row.teacher_response}", ""]
        chosen = range(i * count, (i + 1) * count)
        lines += [f"{n}. (chrF {near[k]:.2f}) {texts[k]}" for n, k in enumerate(chosen, 1)]
        lines.append("")
    page = stage.out / PAGE
    before = page.read_text(encoding="utf-8").partition(f"# Step {step}\n")[0] if step and page.exists() else ""
    write_text(page, before + "\n".join(lines))
    return {"chrf": sum(near) / len(near), "length": sequences.mask.sum(1).float().mean().item()}
