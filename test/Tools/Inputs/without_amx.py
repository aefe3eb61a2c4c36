# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command to whose process Linux refuses AMX, as a sandbox may: without_amx.py COMMAND..."""

import ctypes
import os
import struct
import sys

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM = 158, 0x1023
EPERM = 1
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
#: Places in what a filter is given of a system call: its number, its first argument.
NUMBER, ARGUMENT = 0, 16

FILTER = [
    (LOAD, 0, 0, NUMBER),
    (JUMP_IF_EQUAL, 0, 3, SYS_ARCH_PRCTL),
    (LOAD, 0, 0, ARGUMENT),
    (JUMP_IF_EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
    (RETURN, 0, 0, ERRNO | EPERM),
    (RETURN, 0, 0, ALLOW),
]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(FILTER), b"".join(struct.pack("HBBI", *step) for step in FILTER))
for arguments in (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
    if libc.prctl(*arguments):
        sys.exit(f"{sys.argv[0]}: prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
