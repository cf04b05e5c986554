"""BiasEdit with the study's objectives, written plainly: the yardstick for the fast path.

Every sentence is padded to 64 tokens, the whole model runs every time, nothing is cached, all logits are kept, scores
come from a loop over sentences, and autograd goes straight through the ridge solve. Slow on purpose; it shares no code
with `trainers` except the configuration and the hypernetwork's weights, which it reads by name.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

IGNORE = -100
LENGTH = 64


def batch(sentences: list[list[int]], length: int = LENGTH) -> dict[str, Tensor]:
    """Pad on the right; every real token but the first (BOS) is labelled."""
    ids = torch.zeros(len(sentences), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, IGNORE)
    for row, tokens in enumerate(sentences):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
        labels[row, 1 : len(tokens)] = torch.tensor(tokens[1:])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def logits_of(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits


def sentence_scores(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(p, logp), each [S]."""
    p, logp = [], []
    for row in range(len(labels)):
        log_probs = logits[row, :-1].log_softmax(-1)
        here = labels[row, 1:] != IGNORE
        chosen = log_probs[here].gather(1, labels[row, 1:][here].unsqueeze(1)).squeeze(1)
        logp.append(chosen.mean())
        p.append(chosen.exp().mean())
    return torch.stack(p), torch.stack(logp)


def kl(log_input: Tensor, target: Tensor) -> Tensor:
    return (target * (target.log() - log_input)).sum() / len(target)


def bias_loss(anti: tuple[Tensor, Tensor], stereo: tuple[Tensor, Tensor]) -> Tensor:
    return kl(anti[1], stereo[0]) + kl(stereo[1], anti[0])


def token_kl(reference: Tensor, edited: Tensor, labels: Tensor) -> Tensor:
    """Mean over labelled positions of KL(reference || edited) over the whole vocabulary."""
    here = labels[:, 1:] != IGNORE
    old, new = reference[:, :-1][here].log_softmax(-1), edited[:, :-1][here].log_softmax(-1)
    return (old.exp() * (old - new)).sum(-1).mean()


class Editor:
    """One edit batch of BiasEdit; `net` is a Hypernetwork whose parameters receive `.grad`."""

    def __init__(self, model: nn.Module, names: list[str], net: nn.Module, config: Any) -> None:
        self.model, self.names, self.net, self.config = model, names, net, config

    def linear(self, name: str) -> nn.Module:
        return self.model.get_submodule(name)

    def cache(self, inputs: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Keys and value gradients of the unedited model at labelled tokens (anti first, then stereo)."""
        seen, handles = {}, []
        for name in self.names:

            def keep(module, args, output, name=name):
                output = output.detach().requires_grad_() if not output.requires_grad else output
                output.retain_grad()
                seen[name] = (args[0].detach(), output)
                return output

            handles.append(self.linear(name).register_forward_hook(keep))
        logits = logits_of(self.model, inputs)
        for handle in handles:
            handle.remove()
        half = len(logits) // 2
        labels = inputs["labels"]
        bias_loss(
            sentence_scores(logits[:half], labels[:half]), sentence_scores(logits[half:], labels[half:])
        ).backward()
        where = labels != IGNORE
        # The hypernetwork is float32 whatever the model is.
        return {name: (keys[where].float(), output.grad[where].float()) for name, (keys, output) in seen.items()}

    def normalise(self, name: str, x: Tensor) -> None:
        """Running mean and standard deviation, as in MALMEN's public code."""
        state = self.net.network(name).normaliser
        n = state.n + len(x)
        delta = x.mean(0) - state.mean
        state.mean += len(x) * delta / n
        state.var += len(x) * x.var(0) + state.n * len(x) * delta**2 / n
        state.std.copy_((state.var / (n - 1 + torch.finfo(x.dtype).eps)).sqrt())
        state.n.copy_(n)

    def shift(self, name: str, keys: Tensor, value_grads: Tensor) -> Tensor:
        """The closed form, in the graph of the hypernetwork's parameters."""
        net, i = self.net.network(name), self.net.index[name]
        eps = torch.finfo(keys.dtype).eps
        y = (torch.cat((keys, value_grads), -1) - net.normaliser.mean) / (net.normaliser.std + eps)
        for block in net.blocks:
            low_rank = y @ block.A @ block.B + block.bias
            y = y + block.scale[i] * torch.clamp(low_rank, min=0) + block.shift[i]
        pseudo_keys, pseudo_grads = y[:, : net.d_in], y[:, net.d_in :]
        differences = -net.lr[i] * (keys * pseudo_keys).sum(-1, keepdim=True) * pseudo_grads
        u = keys.double()
        matrix = u.T @ u + net.log_lambda[i].double().exp() * torch.eye(net.d_in, dtype=torch.float64)
        return torch.linalg.solve(matrix, u.T @ differences.double()).to(keys.dtype)

    def run(self, micro_batches: list[dict[str, list[list[int]]]]) -> SimpleNamespace:
        """One training step's gradient on micro-batches of token ids (`anti`, `stereo`, `unrelated`).

        Returns loss, figures, p and logp [B, 3], ss, shifts {name: [d_in, d_out]}, gradients of the network by name.
        """
        pairs = [batch(part["anti"] + part["stereo"]) for part in micro_batches]
        unrelated = [batch(part["unrelated"]) for part in micro_batches]
        cached = [self.cache(inputs) for inputs in pairs]
        for part in cached:
            for name in self.names:
                self.normalise(name, torch.cat(part[name], -1))
        shifts = {
            name: self.shift(name, *(torch.cat([part[name][side] for part in cached]) for side in (0, 1)))
            for name in self.names
        }
        with torch.no_grad():
            old_pairs = [logits_of(self.model, inputs) for inputs in pairs]
            old_unrelated = [logits_of(self.model, inputs) for inputs in unrelated]
        originals = {name: self.linear(name).weight for name in self.names}
        for name, weight in originals.items():
            update = shifts[name].T if isinstance(self.linear(name), nn.Linear) else shifts[name]
            del self.linear(name).weight
            self.linear(name).weight = weight.detach() + update  # a tensor in the graph, not a parameter
        total: Any = 0.0
        figures, p, logp = [], [], []
        for inputs, others, old, old_other in zip(pairs, unrelated, old_pairs, old_unrelated, strict=True):
            loss, values, scores = self.objective(inputs, others, old, old_other)
            total = total + loss
            figures.append(values)
            p.append(scores[0])
            logp.append(scores[1])
        for name, weight in originals.items():
            del self.linear(name).weight
            self.linear(name).weight = weight
        self.net.zero_grad()
        total.backward()
        gradients = {
            name: q.grad.clone() if q.grad is not None else torch.zeros_like(q)
            for name, q in self.net.named_parameters()
        }
        p, logp = (torch.cat(parts).detach() for parts in (p, logp))
        mean = {key: sum(values[key] for values in figures) / len(figures) for key in figures[0]}
        return SimpleNamespace(
            loss=float(total.detach()) / len(pairs),
            figures=mean,
            p=p,
            logp=logp,
            ss=(logp[:, 1] > logp[:, 0]).double().mean().item(),
            shifts={name: shift.detach() for name, shift in shifts.items()},
            gradients=gradients,
        )

    def objective(self, inputs, others, old, old_other):
        """The study's loss on the model as it is now."""
        config, half = self.config, len(inputs["input_ids"]) // 2
        labels = inputs["labels"]
        logits = logits_of(self.model, inputs)
        anti = sentence_scores(logits[:half], labels[:half])
        stereo = sentence_scores(logits[half:], labels[half:])
        other = sentence_scores(logits_of(self.model, others), others["labels"])
        edit = bias_loss(anti, stereo)
        retention = kl(other[1], sentence_scores(old_other, others["labels"])[0])
        ss = (stereo[1] > anti[1]).double().mean().item()
        figures = {"edit_loss": float(edit.detach()), "loc_loss": float(retention.detach()), "ss": ss}
        loss = edit
        if config.grpo.weight > 0:
            gap = anti[1] - stereo[1]
            reward = gap.mean() if config.grpo.reward == "directional" else (-gap.abs() + 0.5).mean()
            divergence = (
                token_kl(old[:half], logits[:half], labels[:half]) + token_kl(old[half:], logits[half:], labels[half:])
            ) / 2
            grpo = -config.grpo.gamma * reward + config.grpo.beta * divergence
            loss = (1 - config.grpo.weight) * edit + config.grpo.weight * grpo
            figures |= {"reward": float(reward.detach()), "kl": float(divergence.detach())}
        if config.rcs.mode == "adaptive":
            low, high = config.rcs.thresholds
            distance = abs(ss - 0.5)
            alpha = config.rcs.alphas[0 if distance < low else 1 if distance < high else 2]
            loss = (1 + alpha * max(0.0, 0.5 - figures["reward"])) * loss
        loss = loss + config.loc_coef * retention
        if config.mo_fairness_weight > 0:
            loss = loss + config.mo_fairness_weight * (stereo[1] - anti[1]).abs().mean()
        return loss, figures, tuple(torch.stack((anti[i], stereo[i], other[i]), 1) for i in (0, 1))
