"""Stage `train` of study `debias`: learn the hypernetwork with a variant's objective (docs/studies/debias.md).

Per edit batch (BiasEdit, arXiv 2503.08588; MALMEN, arXiv 2311.04661): predict shifts from cached keys and value
gradients, measure the edited model, take the loss back through the closed form. Per epoch: measure the development set.
"""

import copy
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ablation.contract.atomic import replacing
from trainers.assets import files
from trainers.debias.config import EarlyStop
from trainers.debias.editor import ModuleEdit, accumulate, applied, micro_batches, predict, shift_gradients
from trainers.debias.hypernetwork import WEIGHTS_FILE, Hypernetwork
from trainers.debias.measure import (
    ItemScores,
    batch_mean,
    load_suffix,
    measure_edited,
    score_items,
    summarise,
    unedited,
)
from trainers.debias.objective import Objective, Reference
from trainers.debias.prepared import Prepared
from trainers.debias.scores import SentenceScores, detached, join
from trainers.debias.suffix import SuffixModel
from trainers.parallel import join as join_ranks
from trainers.stage import Diverged, Stage
from trainers.state import State
from trainers.weights import write_weights


@dataclass
class EarlyStopping:
    """Watches a figure, lower being better. Without settings each epoch counts as the best, and nothing stops early."""

    settings: EarlyStop | None
    best: float | None = None
    best_epoch: int = -1
    epoch: int = -1

    def update(self, epoch: int, figures: dict[str, float]) -> bool:
        """Take in an epoch's development figures; true if the hypernetwork is now the one to keep."""
        self.epoch = epoch
        if self.settings is not None:
            value = figures[self.settings.key]
            if self.best is not None and value >= self.best:
                return False
            self.best = value
        self.best_epoch = epoch
        return True

    @property
    def should_stop(self) -> bool:
        """Whether `patience` epochs have passed without improvement."""
        return self.settings is not None and self.epoch - self.best_epoch >= self.settings.patience


RANKS = join_ranks  # several devices: a process for each, with the items of a batch divided among them


def run(stage: Stage) -> None:
    """Train, and write `hypernetwork.safetensors`, the one of the best epoch."""
    config = stage.config
    prepared = Prepared(stage.inputs["prepare"], stage.devices[0])
    model = load_suffix(files(stage.inputs["model"]), prepared)
    trainer = Trainer(stage, prepared, model)
    trainer.resume()
    while trainer.epoch < config.n_epochs and not trainer.stopping.should_stop:
        trainer.run_epoch()
    trainer.save()


def edit_batches(indices: Sequence[int], n_edits: int, order: str | None = None) -> list[list[int]]:
    """Cut items into edit batches (the last may be smaller), shuffled with `order` as the seed, or as they are."""
    indices = list(indices)
    if order is not None:
        random.Random(order).shuffle(indices)
    return [indices[begin : begin + n_edits] for begin in range(0, len(indices), n_edits)]


class Trainer:
    """The state of a training run: hypernetwork, optimiser, best epoch, and where in the epoch it stands."""

    def __init__(self, stage: Stage, prepared: Prepared, model: SuffixModel) -> None:
        config = stage.config
        self.stage, self.config, self.prepared, self.model = stage, config, prepared, model
        self.ranks = stage.ranks  # each has the whole model and the whole hypernetwork
        self.objective = Objective(config, stage.parts)
        self.hypernetwork = self._fresh().to(prepared.device)
        self.best = copy.deepcopy(self.hypernetwork)
        self.memory = stage.micro_batch(config.edit.batch_size)
        self.optimiser = torch.optim.Adam(self.hypernetwork.parameters(), lr=config.meta_lr)
        self.stopping = EarlyStopping(config.early_stop)
        self.train_items = prepared.indices("train")
        self.domains = sorted({item.domain for item in prepared.items})
        self.epoch = 0
        self.group = 0  # optimiser steps done in this epoch
        self.step = 0  # optimiser steps done in all
        self.unsaved = 0  # edit batches since the last checkpoint
        self.state = State({"net": self.hypernetwork, "best": self.best}, {"adam": self.optimiser})

    def _fresh(self) -> Hypernetwork:
        editor = self.config.editor
        modules, seed = self.prepared.modules, self.stage.seed or 0
        return Hypernetwork(modules, rank=editor.rank, n_blocks=editor.n_blocks, lr=self.config.lr, seed=seed)

    def _groups(self) -> list[Sequence[list[int]]]:
        """The edit batches of this epoch, grouped by optimiser step."""
        config = self.config
        order = f"{self.stage.seed}/{self.epoch}" if config.batches.order == "shuffled" else None
        batches = edit_batches(self.train_items, config.edit.n_edits, order)
        if config.batches.drop_last:
            batches = [batch for batch in batches if len(batch) == config.edit.n_edits]
        if not batches:
            raise ValueError(
                f"batches.drop_last leaves none of {len(self.train_items)} training items with edit.n_edits = "
                f"{config.edit.n_edits}: lower n_edits, or set drop_last to false"
            )
        return micro_batches(batches, config.accumulation_steps)

    def run_epoch(self) -> None:
        """Go through the training items (from where a checkpoint left off), then measure the development set."""
        groups = self._groups()
        total = len(groups) * self.config.n_epochs
        while self.group < len(groups):
            self._optimiser_step(groups[self.group])
            self.group += 1
            self.unsaved += len(groups[self.group - 1])
            if self.unsaved >= self.config.checkpoint_every:
                self.unsaved = 0
                stopping = {name: getattr(self.stopping, name) for name in ("best", "best_epoch", "epoch")}
                self.state.values.update({"epoch": self.epoch, "group": self.group, "stopping": stopping})
                self.state.save(self.stage, self.step)
            self.stage.progress(self.step, total)
        figures = self.ranks.same(self.development())
        self._check(figures)
        self.stage.log_metrics(self.step, figures)
        if self.stopping.update(self.epoch, figures):
            self.best.load_state_dict(self.hypernetwork.state_dict())
        self.epoch, self.group = self.epoch + 1, 0
        if self.stopping.should_stop:
            self.stage.log.info("early stop after epoch %d, best was %d", self.epoch, self.stopping.best_epoch + 1)

    def _optimiser_step(self, group: Sequence[Sequence[int]]) -> None:
        """One step of Adam on the mean gradient of a group of edit batches."""
        start = time.perf_counter()
        self.optimiser.zero_grad()
        figures = [self._edit_batch(batch, 1 / len(group)) for batch in group]
        parameters = list(self.hypernetwork.parameters())
        self._sum_gradients(parameters)
        limit = self.config.max_grad_norm
        grad_norm = torch.nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit)
        mean = self.ranks.same(_mean(figures) | {"grad_norm": float(grad_norm)})
        self._check(mean)
        self.optimiser.step()
        self.step += 1
        networks: list[Any] = list(self.hypernetwork.networks.values())
        mean["lr"] = torch.cat([network.lr for network in networks]).mean().item()
        mean["lambda"] = torch.cat([network.log_lambda for network in networks]).exp().mean().item()
        mean["wall_s"] = time.perf_counter() - start
        self.stage.log_metrics(self.step, {f"train/{name}": value for name, value in mean.items()})

    def _edit_batch(self, indices: Sequence[int], share: float) -> dict[str, float]:
        """Edit on the items, measure, and add `share` of the gradient to the hypernetwork's.

        Ranks divide the edited modules where shifts are predicted and learnt from, and the items in between.
        """
        batches = micro_batches(indices, self.config.edit.batch_size)
        chunk = self.config.editor.batch_size
        edits = self._predict(batches, chunk)
        shifts = self._all_shifts(edits)
        with applied(self.model, shifts, gradients=True) as edited:

            def backward(size: int) -> list[dict[str, float]]:
                for weight in edited.values():
                    weight.grad = None
                return [self._micro_batch(batch, size) for batch in batches]

            figures = self.memory.retry(-(-max(map(len, batches)) // self.ranks.size), backward)
            gradients = shift_gradients(self.model, edited)
        self.ranks.add_up(list(gradients.values()))
        accumulate(self.hypernetwork, edits, gradients, chunk=chunk, share=share)
        norm = torch.stack([shift.square().sum() for shift in shifts.values()]).sum().sqrt()
        return _mean(figures) | {"shift_norm": float(norm)}

    def _predict(self, batches: Sequence[Sequence[int]], chunk: int) -> dict[str, ModuleEdit]:
        """Return the edits of this rank's modules."""
        names = [module.name for module in self.prepared.modules]
        edits, problem = {}, ""
        try:
            edits = predict(
                self.hypernetwork,
                self.prepared,
                batches,
                chunk=chunk,
                update_normaliser=True,
                only=names[self.ranks.share(len(names))],
            )
        except torch.linalg.LinAlgError as error:
            problem = str(error)
        for found in self.ranks.gather(problem):
            if found:
                raise Diverged(f"step {self.step + 1}: the ridge system has no solution ({found})")
        return edits

    def _all_shifts(self, edits: Mapping[str, ModuleEdit]) -> dict[str, Tensor]:
        """Return the shifts [d_in, d_out] of all modules, including other ranks'."""
        shifts = {
            module.name: edits[module.name].shift
            if module.name in edits
            else torch.zeros(module.d_in, module.d_out, device=self.prepared.device)
            for module in self.prepared.modules
        }
        self.ranks.add_up(list(shifts.values()))
        return shifts

    def _sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Add up what each rank's modules said of the hypernetwork."""
        if self.ranks.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # a rank without modules
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add_up([parameter.grad for parameter in parameters if parameter.grad is not None])

    def _micro_batch(self, batch: Sequence[int], size: int) -> dict[str, float]:
        """Add the gradient of one micro-batch to the edited weights', with at most `size` items in the model at once.

        The loss looks at all items of a micro-batch together (the curriculum weighs them by their SS). So where memory
        does not suffice for them the parts are scored twice: without a graph, to take the loss of all, and again to
        take its gradient back through each (GradCache, arXiv 2101.06983). Likewise the ranks put together the scores of
        their parts, each takes the loss of all, and its gradient back through its own.
        """
        parts = micro_batches(batch[self.ranks.share(len(batch))], size)
        reference, phase = self._reference(batch), self.epoch / self.config.n_epochs
        if self.ranks.size == 1 and len(parts) == 1:
            loss, values = self.objective(self._scores(batch), reference, phase)
            loss.backward()
            return values
        whole = len(parts) == 1
        with torch.set_grad_enabled(whole):
            scored = [self._scores(part) for part in parts]
        leaves = [detached(scores) for scores in scored]
        everyone = self.ranks.gather(leaves)
        everyone[self.ranks.rank] = leaves
        loss, values = self.objective(join([leaf for of_rank in everyone for leaf in of_rank]), reference, phase)
        loss.backward()
        for number, (part, leaf) in enumerate(zip(parts, leaves, strict=True)):
            scores = scored[number] if whole else self._scores(part)
            used = [name for name in ("p", "logp", "hidden", "partition") if getattr(leaf, name).grad is not None]
            torch.autograd.backward([getattr(scores, n) for n in used], [getattr(leaf, n).grad for n in used])
        return values

    def _scores(self, items: Sequence[int]) -> SentenceScores:
        return score_items(self.model, self.prepared, items)

    def _reference(self, batch: Sequence[int]) -> Reference:
        unrelated_p = self.prepared.unedited(batch)[0][:, 2]
        if not self.objective.needs_kl:
            return Reference(unrelated_p)
        return Reference(unrelated_p, *self.prepared.reference(batch))

    def development(self) -> dict[str, float]:
        """Figures `edit/...` of protocol `edited` on the development items; the normaliser stays as it is."""
        config = self.config
        losses, domains, before_lms = [], {}, []
        value = "ss_probability" if config.ss == "probability" else "ss"
        batches = {
            domain: edit_batches(self.prepared.indices("dev", domain), config.edit.n_edits) for domain in self.domains
        }
        found = iter(self._measure_all([indices for of_domain in batches.values() for indices in of_domain]))
        for domain in self.domains:
            scored, unscored = [], []
            for indices in batches[domain]:
                measured = next(found)
                parts = micro_batches(indices, config.edit.batch_size)
                references = [unedited(self.prepared, part) for part in parts]
                losses += [scores.losses(before) for scores, before in zip(measured, references, strict=True)]
                scored += measured
                unscored += references
            domains[domain] = summarise(scored, value)
            before_lms.append(summarise(unscored)["lms"])
        watches_mixed = config.early_stop is not None and config.early_stop.key == "edit/ss_distance_mixed"
        if watches_mixed or config.batches.mixed:
            ss, of_mixed = self._mixed(value)
            losses = of_mixed if config.batches.mixed else losses
        edit, loc = (sum(column) / len(losses) for column in zip(*losses, strict=True))
        distances = [figures["ss_distance"] for figures in domains.values()]
        figures = {"edit/loss": edit + config.loc_coef * loc, "edit/edit_loss": edit, "edit/loc_loss": loc}
        figures["edit/ss_distance"] = sum(distances) / len(distances)
        figures["edit/ss_distance_max"] = max(distances)
        figures["edit/lms"] = sum(values["lms"] for values in domains.values()) / len(domains)
        figures["edit/lms_change"] = figures["edit/lms"] - sum(before_lms) / len(before_lms)
        for domain, values in domains.items():
            figures |= {f"edit/ss_{domain}": values["ss"], f"edit/ss_distance_{domain}": values["ss_distance"]}
        if watches_mixed:
            figures |= {"edit/ss_mixed": ss, "edit/ss_distance_mixed": abs(ss - 0.5)}
        return figures

    def _mixed(self, value: str) -> tuple[float, list[tuple[float, float]]]:
        """SS over edit batches that mix the domains, averaged as BiasEdit's validation does, and each pass's losses.

        The batches are the same in every epoch: drawn once, or as the items stand.
        """
        edit = self.config.edit
        batches = edit_batches(
            self.prepared.indices("dev"), edit.n_edits, None if self.config.batches.mixed else "mixed"
        )
        measured = self._measure_all(batches)
        losses = [
            scores.losses(unedited(self.prepared, part))
            for indices, found in zip(batches, measured, strict=True)
            for part, scores in zip(micro_batches(indices, edit.batch_size), found, strict=True)
        ]
        return batch_mean(measured, value), losses

    def _measure_all(self, batches: Sequence[Sequence[int]]) -> list[list[ItemScores]]:
        """Return the scores of edit batches, each under its own edit; each rank measures some."""
        size, chunk = self.config.edit.batch_size, self.config.editor.batch_size
        measured = partial(measure_edited, self.model, self.prepared, self.hypernetwork, batch_size=size, chunk=chunk)
        return self.ranks.divided(batches, measured)

    def _check(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if not math.isfinite(value):
                raise Diverged(f"step {self.step + 1}: {name} is {value}")

    def resume(self) -> None:
        """Continue from the stage's checkpoint, if there is one."""
        self.step, found = self.state.restore(self.stage), self.state.values
        if found:
            self.epoch, self.group = found["epoch"], found["group"]
            self.stopping = EarlyStopping(self.config.early_stop, **found["stopping"])

    def save(self) -> None:
        """Write the best hypernetwork."""
        best = {name: tensor.cpu() for name, tensor in self.best.state_dict().items()}
        with replacing(self.stage.out / WEIGHTS_FILE) as temporary:
            save_file(best, temporary)
        start = dict(self._fresh().named_parameters())
        write_weights(self.stage.out, start, {name: best[name] for name in start})
        self.stage.log.info("%d epochs, the best was %d", self.epoch, self.stopping.best_epoch + 1)


def _mean(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(values[name] for values in figures) / len(figures) for name in figures[0]}
