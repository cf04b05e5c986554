"""Stage `train` of study `debias`: train the hypernetwork with a variant's objective (docs/studies/debias.md).

A step of BiasEdit (arXiv 2503.08588) is one of MALMEN (arXiv 2311.04661). `Trainer.step` calls `Trainer.edit_batch` for
each edit batch, and then Adam:

    shifts = predict(hypernetwork, ...)               of the edited weights, from cached keys and value gradients
    loss = objective(score_items(edited model), ...)  of each micro-batch
    accumulate(hypernetwork, gradients of shifts)     from the shifts back to the hypernetwork

`model.py` runs the edited model, `editor.py` has the hypernetwork, `prepared.py` the unedited model's tensors, and
`parts.py` the names of a variant's formulas. A micro-batch has B items, each with an anti-stereotype, a stereotype and
an unrelated sentence.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ablation.contract.atomic import replacing
from trainers.assets import files
from trainers.debias.config import DebiasConfig
from trainers.debias.development import development
from trainers.debias.editor import (
    WEIGHTS_FILE,
    Hypernetwork,
    ModuleEdit,
    accumulate,
    applied,
    edit_batches,
    micro_batches,
    predict,
    shift_gradients,
)
from trainers.debias.measure import load_suffix
from trainers.debias.model import SentenceScores, SuffixModel, detached, join, score_items, token_kl
from trainers.debias.prepared import Prepared
from trainers.objectives.debias import (
    combine,
    edit_loss,
    fairness_gap,
    grpo_loss,
    language_modelling,
    mean_token_kl,
    retention_loss,
    stereotype_preferred,
)
from trainers.parallel import join as join_ranks
from trainers.running.stage import Diverged, Stage
from trainers.running.state import State
from trainers.running.weights import write_weights

RANKS = join_ranks  # several devices: a process for each, with the items of a batch divided among them


def run(stage: Stage) -> None:
    """Train a hypernetwork and write its weights from the best epoch; do nothing if `editing` is false."""
    if not stage.config.editing:
        return
    prepared = Prepared(stage.inputs["prepare"], stage.devices[0])
    trainer = Trainer(stage, prepared, load_suffix(files(stage.inputs["model"]), prepared))
    trainer.steps = trainer.state.restore(stage)
    while trainer.progress.epoch < stage.config.n_epochs and not trainer.stopped:
        trainer.run_epoch()
    trainer.save()


@dataclass(frozen=True)
class Reference:
    """Scores and distributions of the unedited model on a micro-batch.

    unrelated_p: (B,), scores p of the unrelated sentences. mean, offset: next-token distributions of `model.reference`
    at the predicting positions of anti and stereo sentences; None if the objective has no KL.
    """

    unrelated_p: Tensor
    mean: Tensor | None = None
    offset: Tensor | None = None


def objective(
    config: DebiasConfig,
    parts: Mapping[str, Callable[..., Any]],
    scores: SentenceScores,
    reference: Reference,
    phase: float,
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of the edited model on B items, and metrics.

        combined = (1 - weight) * edit_loss + weight * grpo_loss
        loss     = rcs_weight * combined + loc_coef * retention + mo_fairness_weight * fairness

    The curriculum's weight does not apply to retention, because a factor of the whole loss would have no effect on Adam
    with clipped gradients.

    parts: the variant's formulas (`parts.py`). scores: of 3 B sentences, anti, stereo and unrelated for each item.
    phase: epoch / n_epochs, for the curriculum.
    """
    # BiasEdit's own loss, and its retention term: unrelated sentences must stay as unlikely as they were.
    anti_p, stereo_p, _ = scores.p.view(-1, 3).unbind(1)  # (B,) each
    anti_logp, stereo_logp, unrelated_logp = scores.logp.view(-1, 3).unbind(1)
    edit = edit_loss(anti_p, anti_logp, stereo_p, stereo_logp)
    retention = retention_loss(unrelated_logp, reference.unrelated_p)

    # The batch's SS sets the strength of the curriculum. SS and LMS are logged.
    compared = (stereo_p, anti_p) if config.ss == "probability" else (stereo_logp, anti_logp)
    ss = float(stereotype_preferred(*compared).mean())
    metrics = {"edit_loss": edit.item(), "loc_loss": retention.item(), "ss": ss, "ss_distance": abs(ss - 0.5)}
    metrics["lms"] = float(language_modelling(anti_logp, stereo_logp, unrelated_logp).mean())

    # The GRPO loss (reward, and KL to the unedited model) replaces a share of the edit loss.
    combined = edit
    if config.grpo.weight > 0:
        reward = parts["reward"](anti_logp, stereo_logp)
        kl = mean_token_kl(*_token_kls(scores, reference))
        grpo = grpo_loss(reward, kl, beta=config.grpo.beta, gamma=config.grpo.gamma)
        combined = combine(edit, grpo, weight=config.grpo.weight)
        metrics |= {"reward": reward.item(), "kl": kl.item(), "grpo_loss": grpo.item()}

    # The curriculum gives batches that are far from balance a larger weight.
    if config.rcs.mode == "adaptive":  # `_study.yaml` excludes it without a reward
        alpha = parts["rcs_alpha"](config.rcs, abs(ss - 0.5), phase)
        rcs_weight = parts["rcs_weight"](metrics["reward"], alpha)
        combined = rcs_weight * combined
        metrics |= {"rcs_alpha": alpha, "rcs_weight": rcs_weight}

    # Neither the GRPO share nor the curriculum scales retention and fairness.
    loss = combined + config.loc_coef * retention
    if config.mo_fairness_weight > 0:
        gap = fairness_gap(anti_logp, stereo_logp)
        loss = loss + config.mo_fairness_weight * gap
        metrics["fairness"] = gap.item()
    metrics["loss"] = loss.item()
    return loss, metrics


def _token_kls(scores: SentenceScores, reference: Reference) -> tuple[Tensor, Tensor]:
    """Return KL(unedited || edited) [N] at the predicting positions of anti-stereotypes, and [M] of stereotypes."""
    kind = scores.sentence % 3  # (N,): 0 anti, 1 stereo, 2 unrelated
    pair = kind < 2
    assert reference.mean is not None  # there is a GRPO term
    assert reference.offset is not None
    kl = token_kl(scores.hidden[pair], scores.partition[pair], reference.mean, reference.offset)
    return kl[kind[pair] == 0], kl[kind[pair] == 1]


@dataclass
class Progress:
    """State of training between two steps, with the best epoch so far."""

    epoch: int = 0
    step: int = 0  # of Adam in this epoch
    best: float | None = None  # the watched figure; without early stopping every epoch is the best so far
    best_epoch: int = -1


class Trainer:
    """Training of a hypernetwork with a frozen model: its optimiser, data and progress."""

    def __init__(self, stage: Stage, prepared: Prepared, model: SuffixModel) -> None:
        self.stage, self.prepared, self.model = stage, prepared, model
        config: DebiasConfig = stage.config
        self.config, self.ranks = config, stage.ranks  # each rank has the whole model and the whole hypernetwork
        self.hypernetwork = self._fresh().to(prepared.device)
        self.best = copy.deepcopy(self.hypernetwork)
        self.optimiser = torch.optim.Adam(self.hypernetwork.parameters(), lr=config.meta_lr)
        self.micro_batch = stage.micro_batch(config.edit.batch_size)
        self.progress = Progress()
        self.steps = 0  # of Adam in all
        self.unsaved = 0  # edit batches since the last checkpoint
        modules = {"net": self.hypernetwork, "best": self.best}
        self.state = State(modules, {"adam": self.optimiser}, values=self.progress)

    def _fresh(self) -> Hypernetwork:
        editor, seed = self.config.editor, self.stage.seed or 0
        modules = self.prepared.modules
        return Hypernetwork(modules, rank=editor.rank, n_blocks=editor.n_blocks, lr=self.config.lr, seed=seed)

    def run_epoch(self) -> None:
        """Train on the epoch's items, or on those left after a checkpoint, and then measure the development set."""
        progress, steps = self.progress, self.batches_of_steps()
        while progress.step < len(steps):
            batches = steps[progress.step]
            self.step(batches)
            progress.step += 1
            self.unsaved += len(batches)
            if self.unsaved >= self.config.checkpoint_every:
                self.unsaved = 0
                self.state.save(self.stage, self.steps)
            self.stage.progress(self.steps, len(steps) * self.config.n_epochs)

        # The development set decides which epoch's hypernetwork is kept, and when training stops.
        metrics = self.ranks.same(self.development())
        self._check(metrics)
        self.stage.log_metrics(self.steps, metrics)
        self.keep_if_best(metrics)
        progress.epoch, progress.step = progress.epoch + 1, 0
        if self.stopped:
            self.stage.log.info(
                "training stops early after epoch %d, because no epoch since epoch %d was better",
                progress.epoch,
                progress.best_epoch + 1,
            )

    def batches_of_steps(self) -> list[Sequence[list[int]]]:
        """Return the edit batches of each step of Adam in this epoch. Raises ValueError if there are none."""
        config, items = self.config, self.prepared.indices("train")
        order = f"{self.stage.seed}/{self.progress.epoch}" if config.batches.order == "shuffled" else None
        batches = edit_batches(items, config.edit.n_edits, order)
        if config.batches.drop_last:
            batches = [batch for batch in batches if len(batch) == config.edit.n_edits]
        if not batches:
            raise ValueError(
                f"batches.drop_last leaves no batch, because edit.n_edits {config.edit.n_edits} exceeds the number of "
                f"training items, {len(items)}; lower edit.n_edits, or set batches.drop_last to false"
            )
        return micro_batches(batches, config.accumulation_steps)

    def step(self, batches: Sequence[Sequence[int]]) -> None:
        """Take one step of Adam on the mean gradient of the edit batches."""
        start = time.perf_counter()
        self.optimiser.zero_grad()

        # The mean gradient of the edit batches; each adds its share.
        metrics = _mean([self.edit_batch(batch, 1 / len(batches)) for batch in batches])
        metrics["grad_norm"] = self._clip_gradients()
        metrics = self.ranks.same(metrics)
        self._check(metrics)  # before Adam takes in what is not a number
        self.optimiser.step()
        self.steps += 1

        # The hypernetwork also learns the step sizes of an edit, and the ridge penalties.
        networks: list[Any] = list(self.hypernetwork.networks.values())
        metrics["lr"] = torch.cat([network.lr for network in networks]).mean().item()
        metrics["lambda"] = torch.cat([network.log_lambda for network in networks]).exp().mean().item()
        metrics["wall_s"] = time.perf_counter() - start
        self.stage.log_metrics(self.steps, {f"train/{name}": value for name, value in metrics.items()})

    def edit_batch(self, items: Sequence[int], share: float) -> dict[str, float]:
        """Edit the model on the items, and add the loss's gradient times `share` to the hypernetwork's; return metrics.

        Each rank predicts and backpropagates the shifts of some edited modules, and scores some items in between.
        """
        # The hypernetwork predicts the shift of each edited weight, from all items at once.
        batches, chunk = micro_batches(items, self.config.edit.batch_size), self.config.editor.batch_size
        edits = self._predict(batches, chunk)
        shifts = {}  # (d_in, d_out) each; 0 for what other ranks edit
        for module in self.prepared.modules:
            own = edits.get(module.name)
            shifts[module.name] = torch.zeros(module.shape, device=self.model.device) if own is None else own.shift
        self.ranks.add_up(list(shifts.values()))

        # The loss of the edited model, and its gradient with respect to the shifts.
        with applied(self.model, shifts, gradients=True) as edited:

            def backward(size: int) -> list[dict[str, float]]:
                for weight in edited.values():
                    weight.grad = None
                return [self._backward(batch, size) for batch in batches]

            metrics = self.micro_batch.retry(-(-max(map(len, batches)) // self.ranks.size), backward)
            gradients = shift_gradients(self.model, edited)

        # From the shifts back to the hypernetwork. The model's pass is over, and its memory free.
        self.ranks.add_up(list(gradients.values()))
        accumulate(self.hypernetwork, edits, gradients, chunk=chunk, share=share)
        norm = torch.stack([shift.square().sum() for shift in shifts.values()]).sum().sqrt()
        return _mean(metrics) | {"shift_norm": float(norm)}

    def _predict(self, batches: Sequence[Sequence[int]], chunk: int) -> dict[str, ModuleEdit]:
        """Return {module name: edit} for this rank's modules. Raises Diverged if an edit has no solution."""
        names = [module.name for module in self.prepared.modules]
        names = names[self.ranks.share(len(names))]
        edits, problem = {}, ""
        try:
            edits = predict(self.hypernetwork, self.prepared, batches, chunk=chunk, update_normaliser=True, only=names)
        except torch.linalg.LinAlgError as error:
            problem = str(error)
        if problem := next(filter(None, self.ranks.gather(problem)), ""):
            remedy = "lower meta_lr" if self.steps else "check that the model's hidden states are finite"
            raise Diverged(f"step {self.steps + 1}: the ridge regression has no solution ({problem}); {remedy}")
        return edits

    def _backward(self, items: Sequence[int], size: int) -> dict[str, float]:
        """Add a micro-batch's gradient to the edited weights' `.grad`, with at most `size` items in the model at once.

        The loss depends on all items of a micro-batch together, because their SS sets the curriculum's weight.
        """
        unrelated_p = self.prepared.unedited(items)[0][:, 2]
        distributions = self.prepared.reference(items) if self.config.grpo.weight > 0 else ()
        reference, phase = Reference(unrelated_p, *distributions), self.progress.epoch / self.config.n_epochs

        def backward(scores: SentenceScores) -> dict[str, float]:
            loss, metrics = objective(self.config, self.stage.parts, scores, reference, phase)
            loss.backward()
            return metrics

        parts = micro_batches(items[self.ranks.share(len(items))], size)
        if self.ranks.size == 1 and len(parts) == 1:
            return backward(score_items(self.model, self.prepared, items))
        return self._backward_in_parts(parts, backward)

    def _backward_in_parts(
        self, parts: Sequence[Sequence[int]], backward: Callable[[SentenceScores], dict[str, float]]
    ) -> dict[str, float]:
        """Backpropagate the loss on the items of all ranks through this rank's items, part by part.

        Several parts do not fit into memory at once, so they are scored twice, first without a graph (GradCache, arXiv
        2101.06983).
        """
        at_once = len(parts) == 1
        with torch.set_grad_enabled(at_once):
            scored = [score_items(self.model, self.prepared, part) for part in parts]
        leaves = [detached(scores) for scores in scored]
        all_leaves = self.ranks.gather(leaves)
        all_leaves[self.ranks.rank] = leaves
        metrics = backward(join([leaf for rank_leaves in all_leaves for leaf in rank_leaves]))
        for part, scores, leaf in zip(parts, scored, leaves, strict=True):
            again = scores if at_once else score_items(self.model, self.prepared, part)
            used = [name for name in ("p", "logp", "hidden", "partition") if getattr(leaf, name).grad is not None]
            torch.autograd.backward([getattr(again, n) for n in used], [getattr(leaf, n).grad for n in used])
        return metrics

    def _clip_gradients(self) -> float:
        """Add up the gradients of all ranks and clip the sum; return its norm before clipping."""
        parameters = list(self.hypernetwork.parameters())
        if self.ranks.size > 1:  # each rank has the gradients of its modules only
            for parameter in parameters:
                if parameter.grad is None:  # a rank without modules
                    parameter.grad = torch.zeros_like(parameter)
            self.ranks.add_up([parameter.grad for parameter in parameters])
        limit = self.config.max_grad_norm
        return float(torch.nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit))

    def development(self) -> dict[str, float]:
        """Return the metrics `edit/...`, measured on the development items."""
        return development(self.model, self.prepared, self.hypernetwork, self.config, self.ranks)

    def keep_if_best(self, metrics: Mapping[str, float]) -> None:
        """Keep this epoch's hypernetwork if its watched metric is the lowest so far, or if no metric is watched."""
        progress, settings = self.progress, self.config.early_stop
        if settings is not None:
            value = metrics[settings.key]
            if progress.best is not None and value >= progress.best:
                return
            progress.best = value
        progress.best_epoch = progress.epoch
        self.best.load_state_dict(self.hypernetwork.state_dict())

    @property
    def stopped(self) -> bool:
        """Return whether early stopping is set and `patience` epochs have passed without improvement."""
        settings, progress = self.config.early_stop, self.progress
        return settings is not None and progress.epoch - 1 - progress.best_epoch >= settings.patience

    def _check(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise Diverged(f"step {self.steps + 1}: {name} is {value}")

    def save(self) -> None:
        """Write the hypernetwork of the best epoch, and a summary of its weights."""
        best = {name: tensor.cpu() for name, tensor in self.best.state_dict().items()}
        with replacing(self.stage.out / WEIGHTS_FILE) as temporary:
            save_file(best, temporary)
        start = dict(self._fresh().named_parameters())
        write_weights(self.stage.out, start, {name: best[name] for name in start})
        progress = self.progress
        self.stage.log.info("the hypernetwork of epoch %d of %d is kept", progress.best_epoch + 1, progress.epoch)


def _mean(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(values[name] for values in metrics) / len(metrics) for name in metrics[0]}
