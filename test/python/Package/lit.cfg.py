# The tests of the Python package, one lit test for each python/tests/**/test_*.py.
# The configuration of the other tests, with all that it offers, is loaded already.

import os
import pathlib

import lit.formats

config.name = "FOVEA-Python"
config.test_source_root = os.path.join(config.fovea_source_dir, "python", "tests")
config.test_exec_root = os.path.join(config.fovea_binary_dir, "test", "python", "Package")
config.suffixes = [".py"]
sources = pathlib.Path(config.test_source_root).rglob("*.py")
config.excludes = [path.name for path in sources if not path.name.startswith("test_")]
# What needs PyTorch and the like: utils/frameworks.sh.
config.excludes.append("frameworks")
# One line runs any file; none has to bring it.
config.test_format = lit.formats.ShTest(
    execute_external=False, preamble_commands=["%python -m pytest -q -p no:cacheprovider %s"]
)
config.unsupported = "python" not in config.available_features
config.environment["PYTHONPATH"] = os.path.join(config.fovea_binary_dir, "python")
config.environment["FOVEA_FAKE_CUDA"] = dict(config.substitutions)["%fake_cuda"]
config.environment["FOVEA_FAKE_CUBLASLT"] = dict(config.substitutions)["%fake_cublaslt"]
