"""Ways to damage a safetensors file, byte by byte."""

import json
import struct


def read_raw(path):
    """-> the header's tree and the data."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_raw(path, header, data, *, length=None):
    """Write a header and data; a length of the header that is not its own where one is given."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def edited(path, change):
    """Change the header's tree in place and write the file again."""
    header, data = read_raw(path)
    change(header)
    write_raw(path, header, data)


def cut(path, name, part=0.5):
    """End the file in the middle of a tensor."""
    header, data = read_raw(path)
    first, last = header[name]["data_offsets"]
    start = path.stat().st_size - len(data)
    with path.open("r+b") as file:
        file.truncate(start + first + int((last - first) * part))


def swap_dtype(path, name):
    """Give a tensor another type of the same size."""
    other = {"BF16": "F16", "I64": "F64", "BOOL": "U8", "F32": "I32"}

    def change(header):
        header[name]["dtype"] = other[header[name]["dtype"]]

    edited(path, change)


def transpose(path, name):
    """Turn a tensor's shape around; a vector gets a second axis."""

    def change(header):
        shape = header[name]["shape"]
        header[name]["shape"] = shape[::-1] if len(set(shape)) > 1 else [*shape, 1]

    edited(path, change)


def rename(path, name):
    """Give a tensor a name that no config calls for."""
    edited(path, lambda header: header.update({f"{name}.old": header.pop(name)}))


def overlap(path, name):
    """Let a tensor lie one element further on."""

    def change(header):
        first, last = header[name]["data_offsets"]
        header[name]["data_offsets"] = [first + 2, last + 2]

    edited(path, change)


def shorten(path, name):
    """Give a tensor fewer bytes than its shape takes."""

    def change(header):
        header[name]["data_offsets"][1] -= 1

    edited(path, change)


TENSOR_DAMAGE = {
    "cut": cut,
    "dtype": swap_dtype,
    "transposed": transpose,
    "renamed": rename,
    "overlap": overlap,
    "short": shorten,
}
