//===- fovea_rt.h - Host interface of the runtime -----------------*- C -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program that runs compiled kernels calls. Every function may be
// called from any thread at any time.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_FOVEA_RT_H
#define FOVEA_RT_FOVEA_RT_H

#include "fovea_rt/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The FOVEA_RT_ABI_VERSION this library was built with. */
FOVEA_RT_EXPORT int32_t fovea_rt_version(void);

/*
 * Calls packed(args) so that the kernel may fail. Returns FOVEA_RT_OK, or the
 * code of the failure with its text in fovea_rt_last_error.
 *
 * Blocks that the kernel allocated and did not free are its results: after a
 * success the caller owns them and frees each with fovea_rt_free; after a
 * failure they are gone. Invocations may nest and may run at the same time on
 * several threads. A null `packed` is FOVEA_RT_INVALID_ARGUMENT.
 *
 * While the kernel runs, subnormal results become zero on its threads.
 */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_invoke(void (*packed)(void **),
                                                void **args);

/*
 * Lets the host end kernels early. While a kernel that the calling thread has
 * invoked runs, `check(context)` is called on that thread about every 40
 * milliseconds; once it returns anything but 0, all threads leave the kernel at
 * the next tile, its memory is freed, and fovea_rt_invoke returns
 * FOVEA_RT_INTERRUPTED. What the kernel writes to its arguments is then
 * incomplete. Work that a GPU has been given goes on to its end.
 *
 * Holds for the calling thread until it says otherwise; null, as at first, for
 * kernels that run to their end. `check` must return, and neither set this nor
 * invoke a kernel.
 */
typedef int32_t (*fovea_rt_interrupt_check)(void *context);
FOVEA_RT_EXPORT void
fovea_rt_set_interrupt_check(fovea_rt_interrupt_check check, void *context);

/*
 * Text of the last failure of a host function on the calling thread, empty if
 * the last invocation or setting succeeded. Valid until the next call of
 * fovea_rt_invoke or fovea_rt_set_num_threads on this thread; never null.
 */
FOVEA_RT_EXPORT const char *fovea_rt_last_error(void);

/* Most threads a parallel loop can use. */
#define FOVEA_RT_MAX_THREADS 4096

/*
 * Sets how many threads, the caller included, run a parallel loop that starts
 * from now on: 1 to FOVEA_RT_MAX_THREADS, or 0 for the default, which is the
 * environment variable FOVEA_NUM_THREADS or, without it, the number of CPUs
 * that the process may run on. Results do not depend on it. Any other value is
 * FOVEA_RT_INVALID_ARGUMENT and changes nothing.
 *
 * FOVEA_NUM_THREADS is read once, at the first need; a value out of range is
 * reported on standard error and ignored.
 */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_set_num_threads(int32_t num_threads);

/* The number of threads of the next parallel loop, at least 1. */
FOVEA_RT_EXPORT int32_t fovea_rt_num_threads(void);

/*
 * Gives the scratch of all threads back to the system, except what a running
 * loop is using.
 */
FOVEA_RT_EXPORT void fovea_rt_release_scratch(void);

/*
 * Gives back the freed blocks of 64 KiB and more that are kept for reuse: at
 * most 64 of them, of 512 MiB together.
 */
FOVEA_RT_EXPORT void fovea_rt_release_cache(void);

/*
 * Whether the tensors of two descriptors, {base, data, offset, extents[rank],
 * strides[rank]}, have a byte in common. Exact, but for strides that do not lie
 * in one another, as those of slices do: where finding out would take long, the
 * answer is yes. Both must be as fovea_rt_check_tensor wants them.
 */
FOVEA_RT_EXPORT int32_t fovea_rt_overlap(const void *first, int64_t first_rank,
                                         int64_t first_element_bytes,
                                         const void *second,
                                         int64_t second_rank,
                                         int64_t second_element_bytes);

/*
 * Whether two elements of a tensor may lie at one address: unless every stride
 * steps over all that the smaller ones reach.
 */
FOVEA_RT_EXPORT int32_t fovea_rt_shares_elements(const void *descriptor,
                                                 int64_t rank);

/*
 * A tree of averages over `batches` sequences, as kernels take and return it: a
 * contiguous array [batches][nodes][width], coarsest level first, and, for a
 * tree with padding, [batches][nodes] numbers of tokens. Uninitialised when
 * created.
 */
typedef struct {
  void *data;
  int32_t *counts; /* null without padding */
  int64_t batches, nodes, width;
  int64_t ratio, levels, roots, element_bytes;
} fovea_rt_tree;

/*
 * Nodes of a tree over `tokens` tokens, or -1 when `tokens` is not a positive
 * multiple of ratio^levels or the nodes are more than 2^31 - 1.
 */
FOVEA_RT_EXPORT int64_t fovea_rt_tree_nodes(int64_t tokens, int64_t ratio,
                                            int64_t levels);

/*
 * Allocates a tree from the memory that kernels use: aligned to 64 bytes, and
 * from 4 MiB on to 2 MiB with huge pages, and kept for reuse when it is
 * destroyed. Elements have 2, 4 or 8 bytes. On failure *tree is all zeros and
 * fovea_rt_last_error has the text.
 */
FOVEA_RT_EXPORT fovea_rt_status
fovea_rt_tree_create(int64_t batches, int64_t tokens, int64_t width,
                     int64_t ratio, int64_t levels, int64_t element_bytes,
                     int32_t has_counts, fovea_rt_tree *tree);

/* Frees the tree; one that was never created is ignored. */
FOVEA_RT_EXPORT void fovea_rt_tree_destroy(fovea_rt_tree *tree);

/*
 * The rows of a level, [*num_nodes][width], without a copy. Null when the tree
 * has no such level or batch entry. `num_nodes` may be null.
 */
FOVEA_RT_EXPORT void *fovea_rt_tree_level(const fovea_rt_tree *tree,
                                          int64_t batch, int64_t level,
                                          int64_t *num_nodes);

/* Memory of the whole process, in bytes. */
typedef struct {
  /* Scratch that all threads together hold, and the most they ever held. */
  int64_t scratch_bytes;
  int64_t peak_scratch_bytes;
  /* Live blocks of fovea_rt_alloc by the sizes asked for, and the most. */
  int64_t allocated_bytes;
  int64_t peak_allocated_bytes;
  /* Freed large blocks kept for reuse, not part of allocated_bytes. */
  int64_t cached_bytes;
} fovea_rt_statistics;

/* Writes the present figures to *statistics. */
FOVEA_RT_EXPORT void fovea_rt_get_statistics(fovea_rt_statistics *statistics);

/*
 * Rows of attn.conv_apply that were small against the rounding errors of a
 * transform and were computed again without one, since the process started.
 */
FOVEA_RT_EXPORT int64_t fovea_rt_recomputed_rows(void);

/* Restarts both peaks from the present figures. */
FOVEA_RT_EXPORT void fovea_rt_reset_statistics(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_RT_FOVEA_RT_H */
