"""FlashInfer's ways to sample, where it is installed (0.6.4 was read); it compiles with nvcc."""

from importlib import import_module

import torch

from benchmarks.racing.contenders import INVERSE_TAU, Absent, Chain, Step
from pp4.kernels.dyadic24 import WIDTH


class _Sampler(Chain):
    """A chain that draws by FlashInfer's own generator, whose words must lie on the device.

    Args:
        setting: the :class:`benchmarks.racing.setting.Setting` of this race.
        library: what stands in for FlashInfer; the installed one where None.
    """

    draws = "own"

    def __init__(self, setting, library=None):
        self._library = library or _installed(setting.device)
        super().__init__(setting)
        self._words = {
            "seed": torch.tensor([20261130], dtype=torch.int64, device=setting.device),
            "offset": torch.tensor([0], dtype=torch.int64, device=setting.device),
        }


def _installed(device):
    if device.type != "cuda":
        raise Absent("FlashInfer needs a GPU")
    try:
        return import_module("flashinfer")
    except ImportError as error:
        raise Absent(f"flashinfer-python: {error}") from error


class TopK(_Sampler):
    """top_k, softmax of 32, sampling_from_probs."""

    def step(self, buffers, index, previous):
        """The list is unsorted: the draw does not care."""
        logits = self.conditioned(buffers.base[index], previous)
        values, ids = self._library.top_k(logits, WIDTH)
        share = torch.softmax(values.float() * INVERSE_TAU, dim=-1)
        place = self._library.sampling.sampling_from_probs(share, **self._words)
        return Step(ids.gather(1, place[:, None].long())[:, 0], ids, values)


class Logits(_Sampler):
    """top_k_top_p_sampling_from_logits, which keeps no list."""

    def step(self, buffers, index, previous):
        """All of the row, k = 32 and p = 1."""
        logits = self.conditioned(buffers.base[index], previous).float() * INVERSE_TAU
        sample = self._library.sampling.top_k_top_p_sampling_from_logits
        return Step(sample(logits, WIDTH, 1.0, filter_apply_order="top_k_first", **self._words))
