//===- abi.h - Functions that generated code calls ----------------*- C -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The boundary between compiled kernels and the runtime. Compiled objects
// outlive compiler builds, so a change of a signature or of a promise made
// here increments FOVEA_RT_ABI_VERSION. Sizes are in bytes and 64-bit
// everywhere. A function that cannot do its work does not return: it fails
// as fovea_rt_fail describes, so generated code never checks for errors.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_ABI_H
#define FOVEA_RT_ABI_H

#include <stdint.h>

/* Version of everything declared in this file. */
#define FOVEA_RT_ABI_VERSION 11

#define FOVEA_RT_EXPORT __attribute__((visibility("default")))
#define FOVEA_RT_NORETURN __attribute__((noreturn))

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Result of an invocation. Zero is success; kernels may fail with any positive
 * code, of which the runtime itself uses those named below.
 */
typedef int32_t fovea_rt_status;

enum {
  FOVEA_RT_OK = 0,
  /* An argument has a shape, size or value that the callee cannot accept. */
  FOVEA_RT_INVALID_ARGUMENT = 1,
  /* Memory ran out; the text says how much was asked for. */
  FOVEA_RT_OUT_OF_MEMORY = 2,
  /* A failure reported without a usable code. */
  FOVEA_RT_INTERNAL = 3,
  /* A device or a library that is not on this machine; the text names it. */
  FOVEA_RT_UNAVAILABLE = 4,
  /* A device refused or failed; the text has its own. */
  FOVEA_RT_DEVICE = 5,
  /* The host wanted the kernel to end, see fovea_rt_set_interrupt_check. */
  FOVEA_RT_INTERRUPTED = 6
};

/*
 * Body of a parallel loop.
 *   index    in [0, count), each value exactly once per loop.
 *   scratch  memory of the executing thread for this loop: 64-byte aligned, at
 *            least scratch_bytes long, never shared with another running body,
 *            contents undefined on entry.
 *   context  passed through from fovea_rt_parallel_for.
 * A body must not depend on which thread runs it. It may fail, allocate, and
 * start parallel loops of its own.
 */
typedef void (*fovea_rt_body_t)(int64_t index, void *scratch, void *context);

/*
 * Runs body(index, scratch, context) for every index in [0, count) and returns
 * when all have finished; their writes are visible to the caller.
 *
 * Indices are handed out one at a time in DESCENDING order, so that loops whose
 * work grows with the index, as under a causal mask, start with the heavy part.
 * The calling thread takes part. A loop started from a body runs inline on that
 * body's thread, with scratch of its own; so does a loop started while another
 * host thread is using the workers. Bodies run with the caller's floating-point
 * environment (rounding mode, flush-to-zero).
 *
 *   count          number of indices; body is never called when count <= 0.
 *   scratch_bytes  scratch for each executing thread, >= 0.
 *
 * Fails: scratch_bytes < 0 (FOVEA_RT_INVALID_ARGUMENT); the calling thread's
 * scratch cannot be allocated (FOVEA_RT_OUT_OF_MEMORY). A worker without memory
 * for its scratch leaves the work to the others. When a body fails, no further
 * index is handed out and the loop fails, once every running body has finished,
 * with the failure of the highest index, whatever the number of threads.
 */
FOVEA_RT_EXPORT void fovea_rt_parallel_for(int64_t count, int64_t scratch_bytes,
                                           fovea_rt_body_t body, void *context);

/*
 * Threads of a parallel loop that is started here, at least 1: one for a loop
 * inside a body. A kernel may divide its work by it, in a way that has no
 * effect on results.
 */
FOVEA_RT_EXPORT int64_t fovea_rt_loop_threads(void);

/*
 * Sums that bodies of one parallel loop add to in one order, whatever the
 * number of threads. The bodies of a chain are numbered 0 ... num_items - 1;
 * the loop runs item i of chain c as index i * num_chains + c, so that, indices
 * being handed out in descending order, later items have started before earlier
 * ones and waiting for them ends. An item goes through its destinations in
 * ascending positions and adds to those before a position only when all later
 * items of its chain have.
 *
 *   progress  of the chain, set to zero before the loop: item i has the entry
 *             i * FOVEA_RT_TURN_STRIDE, which is on a cache line of its own.
 *
 * The first function waits until all later items have said by the second one
 * that they have added to everything before `position`. An item that will not
 * add any more ends with FOVEA_RT_LAST_TURN. A body that others wait for must
 * not fail before that.
 *
 * Fails with FOVEA_RT_INTERNAL where it would have to wait and the calling body
 * does not run as the index named above: it might wait forever.
 */
#define FOVEA_RT_TURN_STRIDE 8
#define FOVEA_RT_LAST_TURN (INT64_MAX - 1)
FOVEA_RT_EXPORT void fovea_rt_wait_for_turn(int64_t *progress, int64_t item,
                                            int64_t num_items,
                                            int64_t num_chains,
                                            int64_t position);
FOVEA_RT_EXPORT void fovea_rt_end_turn(int64_t *progress, int64_t item,
                                       int64_t position);

/*
 * Ends the running kernel: control goes to the innermost fovea_rt_invoke of the
 * calling thread, which returns `code` and keeps a copy of `message` (up to
 * 1023 bytes, UTF-8) for fovea_rt_last_error. From a body, the loop is ended
 * first, see fovea_rt_parallel_for. Frames in between are abandoned: they must
 * not hold locks or C++ objects with destructors.
 *
 * Codes <= 0 are reported as FOVEA_RT_INTERNAL. Without an invocation the
 * message goes to standard error and the process aborts.
 */
FOVEA_RT_EXPORT FOVEA_RT_NORETURN void fovea_rt_fail(int32_t code,
                                                     const char *message);

/*
 * A place where the kernel may end because its host wants it to: fails with
 * FOVEA_RT_INTERRUPTED if so. Parallel loops have one before every body. Takes
 * nanoseconds.
 */
FOVEA_RT_EXPORT void fovea_rt_check_interrupt(void);

/*
 * Checks of extents that are known at run time only. Fail with
 * FOVEA_RT_INVALID_ARGUMENT and the text `rule`, what is expected and `found`,
 * unless `found` equals `expected`, or is a multiple of `divisor`; of a divisor
 * of 0, only 0 is.
 */
FOVEA_RT_EXPORT void fovea_rt_check_extent(const char *rule, int64_t found,
                                           int64_t expected);
FOVEA_RT_EXPORT void fovea_rt_check_multiple(const char *rule, int64_t found,
                                             int64_t divisor);

/*
 * Checks that two ranges, first to last one excluded, have nothing in common
 * for a block of queries. Fails with FOVEA_RT_INVALID_ARGUMENT and the text
 * `rule`, the block and the ranges.
 */
FOVEA_RT_EXPORT void fovea_rt_check_ranges(const char *rule, int64_t block,
                                           int64_t first_begin,
                                           int64_t first_end,
                                           int64_t second_begin,
                                           int64_t second_end);

/*
 * Checks that the distances `least` to `greatest` of a block of queries, of
 * which there may be none, are among `rows` from 0 on. Fails with
 * FOVEA_RT_INVALID_ARGUMENT and the text `rule`, the block and the numbers.
 */
FOVEA_RT_EXPORT void fovea_rt_check_distances(const char *rule, int64_t block,
                                              int64_t least, int64_t greatest,
                                              int64_t rows);

/*
 * For code in files, which another machine may have made. Fails with
 * FOVEA_RT_UNAVAILABLE and a text that names `cpu` and what is missing unless
 * this machine has all `features`, which LLVM names and commas separate.
 * `*state` is 0 at first and remembers a success.
 */
FOVEA_RT_EXPORT void fovea_rt_check_cpu(int32_t *state, const char *cpu,
                                        const char *features);

/* More than an address space has: no tensor is larger. */
#define FOVEA_RT_MAX_TENSOR_BYTES (INT64_C(1) << 56)

/*
 * Checks of what a host passes to code in a file. Fail with
 * FOVEA_RT_INVALID_ARGUMENT and a text that begins with `name`.
 *
 * The first: null, or not aligned. The second, for the descriptor of a tensor,
 * {base, data, offset, extents[rank], strides[rank]}: extents that are
 * negative, not those in `extents` (INT64_MIN for any), or more than an address
 * space has; and, if there are elements, strides that are not those in
 * `strides` (INT64_MIN for any), where null stands for row-major order without
 * gaps, or, if the kernel writes to it, let elements share memory; and data
 * that is null or not aligned to one.
 */
FOVEA_RT_EXPORT void fovea_rt_check_address(const char *name,
                                            const void *address,
                                            int64_t alignment);
FOVEA_RT_EXPORT void
fovea_rt_check_tensor(const char *name, const void *descriptor, int64_t rank,
                      const int64_t *extents, const int64_t *strides,
                      int64_t element_bytes, int64_t is_written);

/*
 * Checks a strided array of codes, num_batches x num_heads x num_tokens of
 * them; strides count elements. Fails with FOVEA_RT_INVALID_ARGUMENT and the
 * text `rule`, the position of the first code that is negative or not below
 * num_codes, and that code.
 */
FOVEA_RT_EXPORT void
fovea_rt_check_codes(const char *rule, const int32_t *codes,
                     int64_t num_batches, int64_t num_heads, int64_t num_tokens,
                     int64_t batch_stride, int64_t head_stride,
                     int64_t token_stride, int64_t num_codes);

/* The same check where -1, the code of an absent token, is one as well. */
FOVEA_RT_EXPORT void fovea_rt_check_codes_or_absent(
    const char *rule, const int32_t *codes, int64_t num_batches,
    int64_t num_heads, int64_t num_tokens, int64_t batch_stride,
    int64_t head_stride, int64_t token_stride, int64_t num_codes);

/*
 * Checks a strided array of lists, num_batches x num_heads x num_blocks of
 * num_rows entries, in the same way; -1 names nothing.
 */
FOVEA_RT_EXPORT void
fovea_rt_check_rows(const char *rule, const int32_t *rows, int64_t num_batches,
                    int64_t num_heads, int64_t num_blocks, int64_t num_rows,
                    int64_t batch_stride, int64_t head_stride,
                    int64_t block_stride, int64_t row_stride, int64_t bound);

/*
 * Checks num_batches x num_heads x num_rows intervals, whose ends lie in two
 * strided arrays; strides count elements. Fails with FOVEA_RT_INVALID_ARGUMENT
 * and the text `rule`, the position of the first interval for which not
 * 0 <= first <= last < bound, and its ends. The arrays have the same extents.
 */
FOVEA_RT_EXPORT void fovea_rt_check_intervals(
    const char *rule, const int32_t *first, int64_t num_batches,
    int64_t num_heads, int64_t num_rows, int64_t first_batch_stride,
    int64_t first_head_stride, int64_t first_row_stride, const int32_t *last,
    int64_t last_num_batches, int64_t last_num_heads, int64_t last_num_rows,
    int64_t last_batch_stride, int64_t last_head_stride,
    int64_t last_row_stride, int64_t bound);

/*
 * Fails with FOVEA_RT_INVALID_ARGUMENT and the text `message` if the tensors of
 * two descriptors overlap, see fovea_rt_overlap.
 */
FOVEA_RT_EXPORT void
fovea_rt_check_separate(const char *message, const void *first,
                        int64_t first_rank, int64_t first_element_bytes,
                        const void *second, int64_t second_rank,
                        int64_t second_element_bytes);

/*
 * Checks strided sizes of convolutions, num_batches x num_heads x num_bases of
 * them, over num_tokens tokens; strides count elements. Fails with
 * FOVEA_RT_INVALID_ARGUMENT and the text `rule`, the position of the first size
 * that is out of 0 .. num_tokens or, unless both are 0, not below the one
 * before it, and that size; also without a basis.
 */
FOVEA_RT_EXPORT void
fovea_rt_check_sizes(const char *rule, const int32_t *sizes,
                     int64_t num_batches, int64_t num_heads, int64_t num_bases,
                     int64_t batch_stride, int64_t head_stride,
                     int64_t basis_stride, int64_t num_tokens);

/*
 * The factors of a Fourier transform. `radices` has 4 bits for each stage, the
 * first lowest: the logarithm of its radix, from 1 on; their product, the rows
 * of the transform, is at most 2^31. A butterfly of radix R is the values of a
 * polynomial at w times the R-th roots of unity, in levels of sums and
 * differences of its halves; a factor is what a second half is multiplied by.
 * The R / 2 that are no quarter turns of each other are, level by level, those
 * of w^4, w^2, w and w exp(-+2 pi i / 8); for radix 4, those of w^2 and w.
 * First come, for each stage and each of its P sub-transforms, those of w =
 * exp(-2 pi i f / (P R)) for the frequency f of the sub-transform, its digits
 * reversed; then, for each stage and each row j of the M of a part of it, those
 * of w = exp(2 pi i j / (R M)), for the inverse. Each is a cosine and a sine,
 * in float, or in double if `is_double` is not 0. The table is aligned to 64
 * bytes and stays for the life of the process. From any thread, at any time.
 * Fails for other radices, and without memory.
 */
FOVEA_RT_EXPORT const void *fovea_rt_fft_twiddles(int64_t radices,
                                                  int64_t is_double);

/*
 * Adds to what fovea_rt_recomputed_rows returns.
 */
FOVEA_RT_EXPORT void fovea_rt_count_recomputed(int64_t rows);

/*
 * Nodes of a tree are pairs of a level and an index, in two strided arrays of
 * the same extents; strides count elements.
 *
 * Checks that each of `count` nodes in each of `batches` lists is one of a tree
 * with `levels` levels over the tokens, the uppermost of `roots` nodes, each of
 * `ratio` children, or absent: -1 in both lists. With `must_cover`, they must
 * also cover the sequence in order without overlap, and absent ones come last.
 * Fails with FOVEA_RT_INVALID_ARGUMENT and a text that begins with `op`.
 */
FOVEA_RT_EXPORT void fovea_rt_check_nodes(
    const char *op, const int32_t *level, int64_t batches, int64_t count,
    int64_t level_batch_stride, int64_t level_stride, const int32_t *index,
    int64_t index_batches, int64_t index_count, int64_t index_batch_stride,
    int64_t index_stride, int64_t roots, int64_t ratio, int64_t levels,
    int64_t must_cover);

/*
 * Allocates `bytes` bytes of uninitialised memory, aligned to `alignment` or 64
 * bytes, whichever is more; from 4 MiB on to 2 MiB, asking for huge pages. The
 * result is never null and differs from every other live block, also for zero
 * bytes. The block belongs to the running invocation until that succeeds; it is
 * freed if the invocation fails.
 *
 * Fails: bytes < 0, or alignment neither 0 (no demand) nor a power of two
 * (FOVEA_RT_INVALID_ARGUMENT); no memory (FOVEA_RT_OUT_OF_MEMORY).
 */
FOVEA_RT_EXPORT void *fovea_rt_alloc(int64_t bytes, int64_t alignment);

/*
 * Frees a block of fovea_rt_alloc, from any thread, inside or outside an
 * invocation. Null is ignored. Any other pointer aborts the process.
 */
FOVEA_RT_EXPORT void fovea_rt_free(void *pointer);

/*
 * The names MLIR gives to the three functions above when a memref conversion
 * uses generic allocation functions; same meaning, no demand on alignment for
 * the first.
 */
FOVEA_RT_EXPORT void *_mlir_memref_to_llvm_alloc(int64_t bytes);
FOVEA_RT_EXPORT void *_mlir_memref_to_llvm_aligned_alloc(int64_t alignment,
                                                         int64_t bytes);
FOVEA_RT_EXPORT void _mlir_memref_to_llvm_free(void *pointer);

/*
 * The names under which compilers call conversions of 16-bit floats on CPUs
 * without the instructions; not every libgcc has them all. A 16-bit float
 * travels in the low bits of a float register, so that a float argument or
 * result carries it on every compiler.
 */
FOVEA_RT_EXPORT float __truncsfbf2(float value);
FOVEA_RT_EXPORT float __truncdfbf2(double value);
FOVEA_RT_EXPORT float __truncsfhf2(float value);
FOVEA_RT_EXPORT float __truncdfhf2(double value);
FOVEA_RT_EXPORT float __extendhfsf2(float carried);
FOVEA_RT_EXPORT float __extendbfsf2(float carried);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_RT_ABI_H */
