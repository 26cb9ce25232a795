"""A slow target in float64 that is easy to check by eye: no cache, full attention, token by token.

It shares nothing with the product but the names of tensors.
"""

import numpy as np

from tests.unit.drafter.naive import norm, turn


class Naive:
    """Runs one sequence from its first token.

    Args:
        config: of the target.
        tensors: by the checkpoint's names.
    """

    def __init__(self, config, tensors):
        self.config = config
        self.tensors = {name: one.double().numpy() for name, one in tensors.items()}

    def _of(self, layer, part):
        return self.tensors[f"model.layers.{layer}.{part}.weight"]

    def run(self, tokens):
        """-> logits ``[T, vocab]``, and outputs of the layers by their indices, -1 the embedding's.

        Each output is ``[T, hidden]``.
        """
        embedding, eps = self.tensors["model.embed_tokens.weight"], self.config.norm_eps
        outputs = {-1: [embedding[token] for token in tokens]}
        for layer in range(self.config.layers):
            outputs[layer] = self._layer(layer, outputs[layer - 1])
        head = embedding if self.config.tied else self.tensors["lm_head.weight"]
        last = self.tensors["model.norm.weight"]
        logits = [head @ norm(one, last, eps) for one in outputs[self.config.layers - 1]]
        return np.stack(logits), {layer: np.stack(one) for layer, one in outputs.items()}

    def _split(self, layer, part, vector):
        width = self.config.head_dim
        flat = self._of(layer, f"self_attn.{part}_proj") @ vector
        return [flat[start : start + width] for start in range(0, len(flat), width)]

    def _turned(self, layer, part, vector, position):
        weight, eps = self._of(layer, f"self_attn.{part}_norm"), self.config.norm_eps
        return [
            turn(norm(head, weight, eps), position, self.config.rope_theta)
            for head in self._split(layer, part, vector)
        ]

    def _layer(self, layer, before):
        eps, entered = self.config.norm_eps, self._of(layer, "input_layernorm")
        keys, values, after = [], [], []
        for position, residual in enumerate(before):
            taken = norm(residual, entered, eps)
            keys.append(self._turned(layer, "k", taken, position))
            values.append(self._split(layer, "v", taken))
            found = []
            for head, query in enumerate(self._turned(layer, "q", taken, position)):
                shared = head // (self.config.heads // self.config.kv_heads)
                scores = np.array([query @ key[shared] for key in keys])
                weights = np.exp((scores - scores.max()) / np.sqrt(self.config.head_dim))
                weights = weights / weights.sum()
                found.append(sum(w * v[shared] for w, v in zip(weights, values, strict=True)))
            middle = residual + self._of(layer, "self_attn.o_proj") @ np.concatenate(found)
            entering = norm(middle, self._of(layer, "post_attention_layernorm"), eps)
            gate = self._of(layer, "mlp.gate_proj") @ entering
            up = self._of(layer, "mlp.up_proj") @ entering
            opened = gate / (1 + np.exp(-gate)) * up
            after.append(middle + self._of(layer, "mlp.down_proj") @ opened)
        return after
