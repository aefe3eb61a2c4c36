"""Stands for a tool that crashes on one kind of input."""

import os
import sys

if "poison" in sys.stdin.read():
    os.abort()
