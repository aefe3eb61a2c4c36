# Configuration of the lit suite. CMake writes the values of this build to
# lit.site.cfg.py in the build folder, which loads this file.

import os
import platform
import shutil
import subprocess
import sys

from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "FOVEA"
# lit does not look here for modules.
sys.path.insert(0, os.path.dirname(__file__))
from long_tests import PartOfLongTests  # noqa: E402

config.test_format = PartOfLongTests(execute_external=False)
config.suffixes = [".mlir", ".test"]
# Unit is a suite of its own.
config.excludes = ["Inputs", "Unit", "CMakeLists.txt", "lit.cfg.py"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.fovea_binary_dir, "test")

# FOVEA_EVERY=n runs every n-th case of the matrices.
llvm_config.with_system_environment(["HOME", "TMP", "TEMP", "ASAN_OPTIONS", "FOVEA_EVERY", "FOVEA_PART"])
# %part is that for tests with fewer cases than a matrix; in CI 7, which divides no number of kinds.
part = max(1, int(os.environ.get("FOVEA_EVERY", 1)) // 11)
config.substitutions.append(("%part", str(part)))
if part == 1:
    config.available_features.add("all-cases")
# A test that hangs is a failure with a name; whole matrices may take long.
if lit_config.maxIndividualTestTimeIsSupported[0] and not lit_config.maxIndividualTestTime:
    lit_config.maxIndividualTestTime = 900 if "FOVEA_EVERY" in os.environ else 5400
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.with_environment("PATH", config.fovea_tools_dir, append_path=True)
# A variable of one CHECK-LABEL block must not leak into the next.
llvm_config.with_environment("FILECHECK_OPTS", "-enable-var-scope --dump-input-filter=error")
# Kernels that read what nobody wrote compute NaNs.
llvm_config.with_environment("FOVEA_POISON_MEMORY", "1")
# Nothing depends on what was compiled before.
llvm_config.with_environment("FOVEA_CACHE_DIR", "")
if "address" in config.sanitizers:
    # libMLIR is not instrumented, so containers that cross into it look
    # overflown, and memory that allocators of our side poisoned stays poisoned;
    # it keeps its command-line options until exit.
    llvm_config.with_environment(
        "ASAN_OPTIONS",
        "allow_user_poisoning=0:detect_container_overflow=0:detect_leaks=0:detect_odr_violation=0",
    )
    config.available_features.add("asan")
if "undefined" in config.sanitizers:
    config.available_features.add("ubsan")

config.substitutions += [
    ("%fovea_libs", config.fovea_libs_dir),
    ("%fovea_source", config.fovea_source_dir),
    ("%fovea_build", config.fovea_binary_dir),
    ("%llvm_includes", config.llvm_include_dirs),
    ("%mlir_includes", config.mlir_include_dirs),
    ("%mlir_tblgen", config.mlir_tblgen),
    ("%mlir_translate", config.mlir_translate),
    ("%shlibext", config.llvm_shlib_ext),
    ("%python", config.python_executable),
    ("%lit", f"{sys.executable} {os.path.abspath(sys.argv[0])}"),
    ("%libfovea", os.path.join(config.fovea_libs_dir, "libfovea_c" + config.llvm_shlib_ext)),
    ("%fake_cuda", os.path.join(config.fovea_binary_dir, "unittests/Runtime/libFoveaFakeCuda.so")),
    ("%fake_cublaslt", os.path.join(config.fovea_binary_dir, "unittests/Runtime/libFoveaFakeCublasLt.so")),
    ("%host_cc", config.c_compiler),
    ("%host_cxx", config.cxx_compiler),
    # A program that loads an instrumented library must be instrumented itself.
    (
        "%sanitize_flags",
        "-fsanitize=" + config.sanitizers if config.sanitizers else "",
    ),
]

# FOVEA_VERIFY_ROUNDTRIP=1 also sends the IR of every test through the printer,
# the parser and bytecode.
opt_arguments = []
if os.environ.get("FOVEA_VERIFY_ROUNDTRIP", "0") != "0":
    opt_arguments = ["--verify-roundtrip"]
tools = [
    ToolSubst("fovea-opt", extra_args=opt_arguments, unresolved="fatal"),
    ToolSubst("fovea-run", unresolved="ignore"),
    ToolSubst("fovea-compile", unresolved="ignore"),
    ToolSubst("fovea-explain", unresolved="ignore"),
    ToolSubst("fovea-lsp-server", unresolved="ignore"),
    ToolSubst("fovea-reduce", unresolved="ignore"),
]
llvm_config.add_tool_substitutions(
    tools, [config.fovea_tools_dir, config.llvm_tools_dir]
)
llvm_config.add_tool_substitutions(
    ["FileCheck", "count", "not", "split-file"], config.llvm_tools_dir
)


def preload_sanitizer():
    """Lets Python load our library where it is instrumented: kernels.py preloads
    what the library needs. Kernels are instrumented, too, and slow, so each
    matrix runs a part of its cases. Returns whether that can work."""
    if not config.sanitizers:
        return True
    if "address" not in config.sanitizers:
        return False
    library = f"libclang_rt.asan-{platform.machine()}.so"
    command = [config.c_compiler, f"-print-file-name={library}"]
    path = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        return False
    config.environment["FOVEA_PRELOAD"] = path
    config.environment["FOVEA_EVERY"] = os.environ.get("FOVEA_EVERY", "32")
    return True


def has_numpy():
    """Whether tests can load our library into Python beside NumPy."""
    command = [config.python_executable, "-c", "import ml_dtypes, numpy"]
    return preload_sanitizer() and subprocess.run(command, capture_output=True).returncode == 0


# FOVEA_QUICK=1 leaves out what takes more than some seconds.
if os.environ.get("FOVEA_QUICK", "0") == "0":
    config.available_features.add("long-tests")
if has_numpy():
    config.available_features.add("numpy")
if config.enable_python.upper() in ("ON", "1", "TRUE", "YES"):
    config.available_features.add("python")


if shutil.which("pkg-config"):
    config.available_features.add("pkg-config")


def is_git_checkout():
    """Whether git can list the files of the repository."""
    try:
        return subprocess.run(["git", "ls-files"], cwd=config.fovea_source_dir, capture_output=True).returncode == 0
    except OSError:
        return False


if is_git_checkout():
    config.available_features.add("git-checkout")


def host_cpu_features():
    """The instruction sets of this machine, by the names Linux gives them."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


config.available_features.add("host-" + platform.machine().lower())
config.available_features |= host_cpu_features() & {
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
}


def has_cuda_device():
    """Whether a CUDA driver finds a device."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count)) and count.value > 0


def has_cufft():
    """Whether the runtime would find cuFFT."""
    import ctypes

    for name in ("libcufft.so.12", "libcufft.so.11", "libcufft.so"):
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


if has_cuda_device():
    config.available_features.add("cuda-device")
    if has_cufft():
        config.available_features.add("cufft")
for program in ("ptxas", "nvdisasm"):
    for folder in os.environ.get("PATH", "").split(os.pathsep) + ["/usr/local/cuda/bin"]:
        if os.path.exists(os.path.join(folder, program)):
            config.available_features.add(program)
            config.substitutions.append(("%" + program, os.path.join(folder, program)))
            break
