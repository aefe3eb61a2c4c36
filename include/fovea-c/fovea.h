/*===- fovea.h - C interface of the compiler ----------------------*- C -*-===*\
|*                                                                            *|
|* Part of the Fovea Project, under the Apache License v2.0 with LLVM         *|
|* Exceptions. See the LICENSE file for license information.                  *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Compiles functions written in IR to kernels and runs them. Link with       *|
|* libfovea_c. Nothing of LLVM or MLIR shows here, and nothing is ever        *|
|* printed.                                                                   *|
|*                                                                            *|
|* Every function may be called from any thread at any time. One that returns *|
|* a fovea_status leaves its outputs alone when it fails, and the reason in   *|
|* fovea_last_error.                                                          *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef FOVEA_C_FOVEA_H
#define FOVEA_C_FOVEA_H

#include <stddef.h>
#include <stdint.h>

#define FOVEA_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FOVEA_SUCCESS = 0, FOVEA_FAILURE = 1 } fovea_status;

/* Text of the last failure on the calling thread, for compilations with all
 * diagnostics of the compiler. Never null; valid until the next call that fails
 * on this thread. */
FOVEA_EXPORT const char *fovea_last_error(void);

/* The version of the library, such as "1.2.3". */
FOVEA_EXPORT const char *fovea_version(void);

/* Threads of parallel loops that start from now on: 0 for the default, which is
 * the environment variable FOVEA_NUM_THREADS or the number of CPUs. */
FOVEA_EXPORT fovea_status fovea_set_num_threads(int32_t num_threads);
FOVEA_EXPORT int32_t fovea_num_threads(void);

/* While a kernel that the calling thread has invoked runs, check(context) is
 * called on that thread about every 40 milliseconds; once it returns anything
 * but 0, the invocation fails at the next tile. Null, as at first, lets kernels
 * run to their end. `check` must neither set this nor invoke a kernel. */
typedef int32_t (*fovea_interrupt_check)(void *context);
FOVEA_EXPORT void fovea_set_interrupt_check(fovea_interrupt_check check,
                                            void *context);

/*===----------------------------------------------------------------------===*\
|* Tensors                                                                    *|
\*===----------------------------------------------------------------------===*/

typedef enum {
  FOVEA_F16 = 0,
  FOVEA_BF16 = 1,
  FOVEA_F32 = 2,
  FOVEA_F64 = 3,
  FOVEA_I1 = 4, /* one byte, 0 or 1 */
  FOVEA_I8 = 5,
  FOVEA_I16 = 6,
  FOVEA_I32 = 7,
  FOVEA_I64 = 8,
  FOVEA_INDEX = 9 /* int64_t */
} fovea_element_type;

/* An extent that differs from call to call. */
#define FOVEA_DYNAMIC_EXTENT INT64_MIN

/* A tensor in somebody's memory or, with rank 0, a scalar. */
typedef struct {
  void *data;
  fovea_element_type type;
  int32_t rank;
  const int64_t *shape;
  /* In elements; null for a contiguous tensor in row-major order, which is what
   * kernels need unless the type of an argument has strides. */
  const int64_t *strides;
  /* Not 0 when data must not be written to. */
  int32_t is_read_only;
} fovea_tensor;

/*===----------------------------------------------------------------------===*\
|* Kernels                                                                    *|
\*===----------------------------------------------------------------------===*/

typedef struct fovea_kernel fovea_kernel;

typedef struct {
  /* "cpu", "reference", "gpu" or "gpu-sim"; null for "cpu". */
  const char *target;
  /* The CPU to generate code for, as LLVM names it; null for "native". */
  const char *cpu;
  /* The function to compile; null for the first public one with a body. */
  const char *entry;
  /* What diagnostics call the text; null for "<kernel>". */
  const char *source_name;
  /* Not 0 to share the kernel with every caller that compiles the same text
   * with the same options, and compile only once. */
  int32_t use_cache;
} fovea_compile_options;

/* Compiles one function of the module in text[0 .. length). Options may be
 * null. The kernel is released by fovea_kernel_destroy. */
FOVEA_EXPORT fovea_status fovea_compile(const char *text, size_t length,
                                        const fovea_compile_options *options,
                                        fovea_kernel **kernel);

/* Compiles the vector-Jacobian product of a kernel, with the kernel's options:
 * a kernel that takes the arguments, and then a cotangent for each
 * floating-point result, and returns the gradients with respect to the
 * arguments numbered arguments[0 .. num_arguments), or to all floating-point
 * ones if that is 0. Not 0 for primal_results returns the results of the kernel
 * before them. */
FOVEA_EXPORT fovea_status fovea_kernel_vjp(const fovea_kernel *kernel,
                                           const int64_t *arguments,
                                           size_t num_arguments,
                                           int32_t primal_results,
                                           fovea_kernel **vjp);

/* Null is ignored. Results of the kernel stay valid. */
FOVEA_EXPORT void fovea_kernel_destroy(fovea_kernel *kernel);

/* What a kernel expects of an argument, or promises of a result. Pointers are
 * valid as long as the kernel. */
typedef struct {
  /* The name in the text, such as "%q"; empty for results. */
  const char *name;
  fovea_element_type type;
  int32_t is_scalar;
  /* Not 0 for an argument that the kernel may write to. */
  int32_t is_written;
  int32_t rank;
  /* FOVEA_DYNAMIC_EXTENT where an extent is known at run time only. */
  const int64_t *shape;
  /* Null for a tensor that is contiguous in row-major order; otherwise in
   * elements, FOVEA_DYNAMIC_EXTENT where a stride may be any. */
  const int64_t *strides;
} fovea_value_spec;

/* Name of the function, without '@'; empty for null, which has no arguments
 * and no results either. */
FOVEA_EXPORT const char *fovea_kernel_name(const fovea_kernel *kernel);
FOVEA_EXPORT size_t fovea_kernel_num_arguments(const fovea_kernel *kernel);
FOVEA_EXPORT size_t fovea_kernel_num_results(const fovea_kernel *kernel);
FOVEA_EXPORT fovea_status fovea_kernel_argument(const fovea_kernel *kernel,
                                                size_t index,
                                                fovea_value_spec *spec);
FOVEA_EXPORT fovea_status fovea_kernel_result(const fovea_kernel *kernel,
                                              size_t index,
                                              fovea_value_spec *spec);

/* A tensor that owns its memory. */
typedef struct fovea_result fovea_result;

/* Runs the kernel and stores fovea_kernel_num_results(kernel) results, each of
 * which is released by fovea_result_destroy. Number, types, ranks, extents,
 * strides, alignment and writability of the inputs are checked first. */
FOVEA_EXPORT fovea_status fovea_kernel_invoke(const fovea_kernel *kernel,
                                              const fovea_tensor *inputs,
                                              size_t num_inputs,
                                              fovea_result **results,
                                              size_t num_results);

/* The tensor of a result, contiguous, valid as long as the result. That of null
 * has null data. */
FOVEA_EXPORT fovea_tensor fovea_result_tensor(const fovea_result *result);

/* Null is ignored. */
FOVEA_EXPORT void fovea_result_destroy(fovea_result *result);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_C_FOVEA_H */
