# Runs the GoogleTest binaries of the build folder, one lit test for each test
# case.

import os

import lit.formats

config.name = "FOVEA-Unit"
config.suffixes = []
config.test_source_root = os.path.join(config.fovea_binary_dir, "unittests")
config.test_exec_root = config.test_source_root
config.test_format = lit.formats.GoogleTest(".", "Tests")

for variable in ["HOME", "TMP", "TEMP", "FOVEA_EVERY", "FOVEA_QUICK"]:
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]
config.environment["FOVEA_POISON_MEMORY"] = "1"
config.environment["FOVEA_CACHE_DIR"] = ""
if "address" in config.sanitizers:
    # As in ../lit.cfg.py.
    config.environment["ASAN_OPTIONS"] = (
        "allow_user_poisoning=0:detect_container_overflow=0:detect_leaks=0"
    )
