# Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fields of a configuration file."""


def set_fields(workload, fields, defaults):
    """Sets the attributes of a workload, and says which of `fields` it has not."""
    unknown = set(fields) - set(defaults)
    if unknown:
        raise ValueError(f"found unknown fields {sorted(unknown)}, needed {sorted(defaults)}")
    for name, default in defaults.items():
        setattr(workload, name, fields.get(name, default))
