"""The pointer selector: a bi-encoder, cross-attention of the query to its candidates, and one GRU step per choice.

It follows the pointer selectors of the source (docs/studies/demonstrations.md), with the pointing of Vinyals et al.
(arXiv 1506.03134). All sequences of all queries in a batch are computed at once.
"""

import torch
from torch import Tensor, nn

from trainers.demonstrations.config import Selector

CHOSEN = -1e9  # logit of a chosen candidate; finite, because gradients of infinite logits are NaN
SIMILARITY_SCALE = 5.0  # initial weight of the cosine


class CrossAttention(nn.Module):
    """Residual pre-norm layer in which the query attends to the candidates, followed by a feed-forward layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden)
        )

    def forward(self, query: Tensor, candidates: Tensor) -> Tensor:
        """Return the query's new state (B, h) from its state (B, h) and the candidates (B, K, h)."""
        attended, _ = self.attention(self.norm(query)[:, None], candidates, candidates, need_weights=False)
        query = query + attended.squeeze(1)
        return query + self.feed_forward(query)


class PointerSelector(nn.Module):
    """Network that chooses demonstrations one after another, each at most once."""

    def __init__(self, d_embedding: int, *, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.query_projection = nn.Linear(d_embedding, hidden)
        self.candidate_projection = nn.Linear(d_embedding, hidden)
        self.candidate_norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(CrossAttention(hidden, heads) for _ in range(layers))
        self.first_input = nn.Parameter(torch.zeros(hidden))
        self.step_context = nn.GRUCell(hidden, hidden)
        self.pointer = nn.Linear(hidden, hidden)
        self.similarity_scale = nn.Parameter(torch.tensor(SIMILARITY_SCALE))
        with torch.no_grad():  # both encoders start equal and orthogonal, so the first policy chooses by similarity
            nn.init.orthogonal_(self.query_projection.weight)
            self.candidate_projection.load_state_dict(self.query_projection.state_dict())

    def encode(self, query: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the initial states (B, h), the encoded candidates (B, K, h) and their cosines with the query (B, K).

        query: embeddings (B, d). candidates: embeddings (B, K, d).
        """
        projected_query, projected = self.query_projection(query), self.candidate_projection(candidates)
        length = projected.norm(dim=-1) * projected_query.norm(dim=-1, keepdim=True)
        similarity = (projected @ projected_query[..., None])[..., 0] / length.clamp(min=1e-8)
        state, normed = projected_query, self.candidate_norm(projected)
        for layer in self.layers:
            state = layer(state, normed)
        return state, normed, similarity

    def _logits(self, state: Tensor, candidates: Tensor, similarity: Tensor, chosen: Tensor) -> Tensor:
        """Return logits (B, N, K) for states (B, N, h); candidates in the mask `chosen` (B, N, K) are excluded."""
        logits = self.pointer(state) @ candidates.transpose(1, 2) / self.hidden**0.5
        logits = logits + self.similarity_scale * similarity[:, None]
        return logits.masked_fill(chosen, CHOSEN)

    def forward(self, query: Tensor, candidates: Tensor, pointers: Tensor) -> Tensor:
        """Return the log-probabilities (B, N, S, K) of all candidates at every step of given sequences.

        query: embeddings (B, d). candidates: embeddings (B, K, d). pointers: N sequences for each query, (B, N, S)
        int64. A candidate that was chosen at an earlier step of a sequence is excluded.
        """
        state, encoded, similarity = self.encode(query, candidates)
        rows, number, steps = pointers.shape
        # The first step is the same for all sequences of a query; the inputs of later steps are known.
        state = self.step_context(self.first_input.expand_as(state), state)
        none_chosen = torch.zeros_like(similarity, dtype=torch.bool)[:, None]
        first = self._logits(state[:, None], encoded, similarity, none_chosen).log_softmax(-1)
        first = first[:, :, None].expand(-1, number, -1, -1)
        if steps == 1:
            return first
        earlier = pointers[..., :-1].permute(2, 0, 1)  # (S - 1, B, N)
        start = torch.arange(rows, device=pointers.device)[:, None] * encoded.shape[1]
        inputs = encoded.flatten(0, 1).index_select(0, (earlier + start).flatten())
        states = self._states(inputs.view(steps - 1, -1, self.hidden), state.repeat_interleave(number, 0))
        chosen = nn.functional.one_hot(earlier, encoded.shape[1]).cumsum(0).bool().transpose(0, 1).flatten(1, 2)
        states = states.view(steps - 1, rows, number, self.hidden).transpose(0, 1).flatten(1, 2)
        logps = self._logits(states, encoded, similarity, chosen).log_softmax(-1)
        return torch.cat([first, logps.view(rows, steps - 1, number, -1).transpose(1, 2)], dim=2)

    def _states(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return the GRU's states (T, R, h) after each of the inputs (T, R, h), starting from `state` (R, h)."""
        cell = self.step_context
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        learns = torch.is_grad_enabled()  # not `self.training`, because cuDNN's backward pass needs the training mode
        states, _ = torch.gru(inputs, state[None], weights, True, 1, 0.0, learns, False, False)
        return states

    @torch.no_grad()
    def select(self, query: Tensor, candidates: Tensor, shots: int) -> Tensor:
        """Return the most probable candidate at each step, (B, shots) int64. query: (B, d). candidates: (B, K, d)."""
        pointers = torch.zeros(len(query), 1, 0, dtype=torch.int64, device=query.device)
        state, encoded, similarity = self.encode(query, candidates)
        states, inputs = state, self.first_input.expand_as(state)
        chosen = torch.zeros(len(query), 1, encoded.shape[1], dtype=torch.bool, device=query.device)
        for _ in range(shots):
            states = self.step_context(inputs, states)
            pick = self._logits(states[:, None], encoded, similarity, chosen).argmax(-1, keepdim=True)
            pointers = torch.cat([pointers, pick], dim=2)
            chosen = chosen.scatter(2, pick, True)
            inputs = encoded.gather(1, pick.expand(-1, -1, self.hidden)).squeeze(1)
        return pointers.squeeze(1)


def build_selector(settings: Selector, d_embedding: int, seed: int) -> PointerSelector:
    """Return a selector with initial weights drawn with `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PointerSelector(d_embedding, hidden=settings.hidden, layers=settings.layers, heads=settings.heads)


def sequence_logps(step_logps: Tensor, pointers: Tensor) -> Tensor:
    """Return the log-probabilities (B, N, S) of the choices `pointers` (B, N, S), from those of all candidates."""
    return step_logps.gather(-1, pointers[..., None]).squeeze(-1)
