"""A slow drafter in float64 that is easy to check by eye: one token, one head, one loop at a time.

It shares nothing with the product but the names of tensors.
"""

import numpy as np


def norm(vector, weight, eps):
    return vector / np.sqrt(np.mean(vector**2) + eps) * weight


def turn(head, position, theta):
    """Turn the pairs (i, i + half) of a head by the angles of its position."""
    half = len(head) // 2
    out = np.empty_like(head)
    for i in range(half):
        # the product's angles are FP32: at large ones a finer angle would be another one
        frequency = np.float32(1) / np.float32(theta) ** np.float32(2 * i / len(head))
        angle = float(np.float32(position) * np.float32(frequency))
        out[i] = head[i] * np.cos(angle) - head[half + i] * np.sin(angle)
        out[half + i] = head[half + i] * np.cos(angle) + head[i] * np.sin(angle)
    return out


class Naive:
    """Runs one block of one request.

    Args:
        config: of the drafter.
        tensors: whole tensors by the checkpoint's names.
    """

    def __init__(self, config, tensors):
        self.config = config
        self.tensors = {name: one.double().numpy() for name, one in tensors.items()}

    def _of(self, layer, part):
        return self.tensors[f"layers.{layer}.{part}.weight"]

    def _heads(self, layer, part, vector):
        width = self.config.head_dim
        flat = self._of(layer, f"self_attn.{part}_proj") @ vector
        return [flat[start : start + width] for start in range(0, len(flat), width)]

    def _keys(self, layer, vector, position):
        eps, weight = self.config.norm_eps, self._of(layer, "self_attn.k_norm")
        return [
            turn(norm(head, weight, eps), position, self.config.rope_theta)
            for head in self._heads(layer, "k", vector)
        ]

    def hidden(self, features, anchor):
        """Features ``[T, width]`` of the tokens before the anchor -> ``[k, hidden]``."""
        config, tensors, eps = self.config, self.tensors, self.config.norm_eps
        context = [
            norm(tensors["fc.weight"] @ row, tensors["hidden_norm.weight"], eps)
            for row in features.double().numpy()
        ]
        ids = [anchor] + [config.mask_token] * (config.block - 1)
        block = [tensors["embed_tokens.weight"][one] for one in ids]
        for layer in range(config.layers):
            block = self._layer(layer, context, block)
        return np.stack([norm(one, tensors["norm.weight"], eps) for one in block])

    def _layer(self, layer, context, block):
        config, eps = self.config, self.config.norm_eps
        taken = [norm(one, self._of(layer, "input_layernorm"), eps) for one in block]
        everything = [*context, *taken]
        keys = [self._keys(layer, one, place) for place, one in enumerate(everything)]
        values = [self._heads(layer, "v", one) for one in everything]
        after = []
        for index, residual in enumerate(block):
            found = []
            for head, query in enumerate(self._heads(layer, "q", taken[index])):
                shared = head // (config.heads // config.kv_heads)
                query = norm(query, self._of(layer, "self_attn.q_norm"), eps)
                query = turn(query, len(context) + index, config.rope_theta)
                scores = [query @ key[shared] / np.sqrt(config.head_dim) for key in keys]
                weights = np.exp(np.array(scores) - max(scores))
                weights = weights / weights.sum()
                found.append(sum(w * v[shared] for w, v in zip(weights, values, strict=True)))
            middle = residual + self._of(layer, "self_attn.o_proj") @ np.concatenate(found)
            entering = norm(middle, self._of(layer, "post_attention_layernorm"), eps)
            gate = self._of(layer, "mlp.gate_proj") @ entering
            up = self._of(layer, "mlp.up_proj") @ entering
            after.append(
                middle + self._of(layer, "mlp.down_proj") @ (gate / (1 + np.exp(-gate)) * up)
            )
        return after

    def base(self, hidden):
        """[k, hidden] -> [k, draft vocab]."""
        logits = hidden @ self.tensors["lm_head.weight"].T
        cap = self.config.softcap
        return logits if cap is None else np.tanh(logits / cap) * cap

    def confidence(self, hidden, previous):
        """[n, hidden] and n tokens -> [n]."""
        inputs = hidden
        if self.config.confidence_with_markov:
            w1 = self.tensors["markov_head.markov_w1.weight"]
            inputs = np.concatenate([hidden, w1[list(previous)]], axis=1)
        scores = inputs @ self.tensors["confidence_head.proj.weight"][0]
        bias = self.tensors.get("confidence_head.proj.bias")
        return 1 / (1 + np.exp(-(scores if bias is None else scores + bias[0])))
