"""What must not be said outside of a receipt's ``private`` part, and what is said in its place."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence

from pp4.wire.gpus import Gpu, GpuReport

_ERRORS = ("refusal", "left")
"""Facts of an arm that ended in an error: texts of whoever raised it, cut to a length."""
_ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\[[0-9a-fA-F:]+:[0-9a-fA-F:]*\]"
_REST_OF_GPU = r"GPU-[0-9a-fA-F-]+|\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F.]*"
"""A UUID or a place of which only a part is left, or that nobody has listed."""


def private_names(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Leaves of ``private``: UUIDs and, where they are told, PCI ids, by rank."""
    leaves = {f"gpu.{rank}.uuid": gpu.uuid for rank, gpu in enumerate(gpus)}
    places = {f"gpu.{rank}.pci_id": gpu.pci_bus_id for rank, gpu in enumerate(gpus)}
    return {**leaves, **{name: place for name, place in places.items() if place}}


def words_for(report: GpuReport, gpus: Sequence[Gpu]) -> dict[str, str]:
    """What is said in the place of every name of a GPU of the host.

    Args:
        report: all GPUs of the host.
        gpus: those of the run, by rank.
    """
    words = {value: name for name, value in private_names(gpus).items()}
    for gpu in report.gpus:
        rank = next((rank for rank, one in enumerate(gpus) if one.uuid == gpu.uuid), None)
        name = "another GPU" if rank is None else f"gpu.{rank}"
        words.setdefault(gpu.uuid, name)
        if gpu.pci_bus_id:
            words.setdefault(gpu.pci_bus_id, name)
            # the driver's own messages have four digits of a domain, in small letters
            words.setdefault(gpu.pci_bus_id[4:].lower(), name)
    return words


def without_names(tree: object, words: Mapping[str, str]) -> object:
    """Put other words in the place of names of GPUs, wherever they are said."""
    if isinstance(tree, str):
        for word in sorted(words, key=len, reverse=True):
            tree = tree.replace(word, words[word])
        return tree
    if isinstance(tree, Mapping):
        return {without_names(key, words): without_names(one, words) for key, one in tree.items()}
    if isinstance(tree, list | tuple):
        return [without_names(one, words) for one in tree]
    return tree


def without_host(gates: object) -> object:
    """Take this host's name, addresses and rests of names out of what errors said.

    Nothing else that an arm says has any of them.
    """
    host = re.escape(socket.gethostname())
    pattern = re.compile(rf"\b{host}\b|{_ADDRESS}|{_REST_OF_GPU}")

    def clean(tree: object, inside: bool) -> object:
        if isinstance(tree, str):
            return pattern.sub("(a name)", tree) if inside else tree
        if isinstance(tree, Mapping):
            return {key: clean(one, inside or key in _ERRORS) for key, one in tree.items()}
        if isinstance(tree, list | tuple):
            return [clean(one, inside) for one in tree]
        return tree

    return clean(gates, False)
