"""Writes the .npy files that the tests of fovea-run read, without NumPy."""

import os
import struct
import sys


def write(name, descr, shape, data, order=False, version=1, magic=b"\x93NUMPY"):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape!r}, }}\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    with open(os.path.join(sys.argv[1], name), "wb") as file:
        file.write(magic + bytes([version, 0]) + length + header.encode() + data)


os.makedirs(sys.argv[1], exist_ok=True)
four = struct.pack("<4f", 1, 2, 3, 4)
write("good.npy", "<f4", (4,), four)
write("good3.npy", "<f4", (4,), four, version=3)
write("sum.npy", "<f4", (4,), struct.pack("<4f", 2, 4, 6, 8))
write("wrong-sum.npy", "<f4", (4,), struct.pack("<4f", 2, 4, 6, 8.001))
write("nan-sum.npy", "<f4", (4,), struct.pack("<4f", 2, 4, 6, float("nan")))
write("double.npy", "<f8", (4,), struct.pack("<4d", 1, 2, 3, 4))
write("big-endian.npy", ">f4", (4,), struct.pack(">4f", 1, 2, 3, 4))
write("five.npy", "<f4", (5,), four + b"\0\0\0\0")
write("matrix.npy", "<f4", (2, 2), four)
write("fortran.npy", "<f4", (2, 2), four, order=True)
write("truncated.npy", "<f4", (4,), four[:7])
write("magic.npy", "<f4", (4,), four, magic=b"\x93NUMPX")
write("bits.npy", "<u2", (2,), struct.pack("<2H", 0x3F80, 0x4000))
