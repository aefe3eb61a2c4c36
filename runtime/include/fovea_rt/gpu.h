//===- gpu.h - Kernels on a GPU -----------------------------------*- C -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What host code does with a GPU. The first part is called from generated code
// and follows the rules of abi.h: a function that cannot do its work does not
// return. The second part is for host programs, whose functions return a
// status. gpu_driver.h is the interface below both, implemented by the CUDA
// driver, found with dlopen, and by the emulator, which a host program
// registers.
//
// Every address of device memory is a plain pointer. Work of one queue is done
// in the order in which it was given; nothing but fovea_rt_gpu_end and what
// says so waits for it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_GPU_H
#define FOVEA_RT_GPU_H

#include "fovea_rt/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which kind of device runs the kernels of a queue. */
enum {
  /* A GPU, by the CUDA driver. */
  FOVEA_RT_GPU_CUDA = 0,
  /* The emulator on the CPU, if the program has registered it. */
  FOVEA_RT_GPU_EMULATOR = 1
};

/*
 * The device code of one compiled module: constant, except for `state`, which
 * starts as null and belongs to the runtime. A device loads the module when a
 * function of it is launched there for the first time.
 */
typedef struct {
  /* For messages. */
  const char *name;
  /* PTX, its length without the terminating zero; null if there is none. */
  const char *ptx;
  int64_t ptx_bytes;
  /* Optimised NVVM LLVM bitcode of the same module, which the emulator runs;
     null if there is none. */
  const void *bitcode;
  int64_t bitcode_bytes;
  /* Compute capability that the PTX needs, 10 * major + minor: 80, 90. */
  int32_t capability;
  /* Nonzero if the PTX runs on exactly that capability (sm_90a). */
  int32_t exact_capability;
  void *state;
} fovea_rt_gpu_module;

/* A kernel of a module; `state` as above. */
typedef struct {
  fovea_rt_gpu_module *module;
  const char *name;
  void *state;
} fovea_rt_gpu_function;

/* A device with a stream and what the running kernel holds there. */
typedef struct fovea_rt_gpu_queue fovea_rt_gpu_queue;

/*===----------------------------------------------------------------------===*/
/* Called from generated code, inside an invocation.                          */
/*===----------------------------------------------------------------------===*/

/*
 * Opens a queue of the running invocation, on the device and the stream that
 * the calling thread has chosen (fovea_rt_gpu_set_device, _set_stream), else on
 * device 0 and a stream of the runtime. A failure of the invocation closes it.
 *
 * Fails: no driver, no device, or no such device (FOVEA_RT_UNAVAILABLE).
 */
FOVEA_RT_EXPORT fovea_rt_gpu_queue *fovea_rt_gpu_begin(int32_t kind);

/*
 * Work that a CUDA graph records, on a stream of the caller that captures one,
 * happens whenever the graph is launched. It fails with
 * FOVEA_RT_INVALID_ARGUMENT where the host takes part: arrays in host memory,
 * numbers that the host reads, and whatever happens once, such as loading a
 * module, if no call before has done that.
 */

/*
 * Closes a queue: copies back what was mapped for writing, frees the copies,
 * and waits for the queue's work. On a stream of the caller it waits only if
 * something had to be copied back to host memory. Blocks of fovea_rt_gpu_alloc
 * that live on are the invocation's results: the caller frees each with
 * fovea_rt_gpu_release.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_end(fovea_rt_gpu_queue *queue);

/*
 * Starts grid_x * grid_y * grid_z blocks of block_x * block_y * block_z
 * threads, `shared_bytes` of dynamic shared memory each, in clusters of the
 * given extents (all 1: no clusters). A grid with an extent of 0 is no work.
 * params[i] points to the value of the i-th parameter, of `num_params`; the
 * values are read before the function returns.
 */
FOVEA_RT_EXPORT void
fovea_rt_gpu_launch(fovea_rt_gpu_queue *queue, fovea_rt_gpu_function *function,
                    int64_t grid_x, int64_t grid_y, int64_t grid_z,
                    int64_t block_x, int64_t block_y, int64_t block_z,
                    int64_t cluster_x, int64_t cluster_y, int64_t cluster_z,
                    int64_t shared_bytes, void **params, int64_t num_params);

/*
 * Device memory, uninitialised; never null. On a GPU it is aligned to 256 bytes
 * and freed blocks are reused by later work of any queue. In the emulator it is
 * aligned to 16, so that a block can end where inaccessible memory begins.
 *
 * Fails: no memory (FOVEA_RT_OUT_OF_MEMORY, with the size asked for and free).
 */
FOVEA_RT_EXPORT void *fovea_rt_gpu_alloc(fovea_rt_gpu_queue *queue,
                                         int64_t bytes);
/*
 * Memory for a result of the invocation: on the queue's device if data that was
 * mapped lies there, else on the host. The caller frees it with fovea_rt_free.
 */
FOVEA_RT_EXPORT void *fovea_rt_gpu_alloc_result(fovea_rt_gpu_queue *queue,
                                                int64_t bytes);
FOVEA_RT_EXPORT void fovea_rt_gpu_free(fovea_rt_gpu_queue *queue,
                                       void *pointer);

enum {
  /* The kernel reads what the caller's memory holds. */
  FOVEA_RT_GPU_READ = 1,
  /* The caller's memory receives what the kernel writes. */
  FOVEA_RT_GPU_WRITE = 2,
  /* The kernel copies boxes of it, by tensor maps. */
  FOVEA_RT_GPU_BOXES = 4
};

/*
 * The caller's memory [pointer, pointer + bytes) as the device sees it, until
 * the queue ends: the pointer itself if it is memory of the queue's device,
 * without a copy; else a block of the device, filled from it for READ and
 * copied back at the end for WRITE. Device memory that is not aligned to 16
 * or, of fewer bytes, to the greatest power of two that divides them, has such
 * a block, too. A range that is mapped already, with the same start and size,
 * gives the same block.
 *
 * Fails: memory of another device (FOVEA_RT_INVALID_ARGUMENT); a null pointer
 * to more than 0 bytes.
 */
FOVEA_RT_EXPORT void *fovea_rt_gpu_map(fovea_rt_gpu_queue *queue, void *pointer,
                                       int64_t bytes, int32_t access);

/*
 * The same of an array whose last axis is contiguous, and whose other axes have
 * any strides. All rows of what the device sees begin at multiples of
 * `alignment` bytes, a power of two up to 16; for BOXES, strides are positive.
 * Device memory of which that holds is the array itself, without a copy. Else
 * there is a block without gaps, whose strides replace those given.
 *   rank     1 to 8
 *   extents  [rank], in elements
 *   strides  [rank], in elements; read and written
 */
FOVEA_RT_EXPORT void *
fovea_rt_gpu_map_rows(fovea_rt_gpu_queue *queue, void *pointer,
                      int64_t element_bytes, int64_t alignment, int32_t rank,
                      const int64_t *extents, int64_t *strides, int32_t access);

/*
 * A copy on the queue's device of the constant [pointer, pointer + bytes) of
 * the code, which is made at the first need and kept until the code says by
 * _forget that the constant goes away.
 */
FOVEA_RT_EXPORT void *fovea_rt_gpu_constant(fovea_rt_gpu_queue *queue,
                                            const void *pointer, int64_t bytes);
FOVEA_RT_EXPORT void fovea_rt_gpu_forget(const void *pointer);

/*
 * Copies between any two places, host or device. Host memory that is read may
 * change as soon as the function returns; host memory that is written is
 * written when it returns.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_copy(fovea_rt_gpu_queue *queue, void *to,
                                       const void *from, int64_t bytes);

/*
 * Copies an array to another of the same extents, by its rows and without the
 * host, on the queue that the invocation opened last: memory of its device.
 * Neither overlaps the other, and no two elements of `to` each other.
 *   rank        1 to 8
 *   to_strides, from_strides, extents  [rank], in elements
 */
FOVEA_RT_EXPORT void
fovea_rt_gpu_copy_array(void *to, const int64_t *to_strides, const void *from,
                        const int64_t *from_strides, int64_t element_bytes,
                        int32_t rank, const int64_t *extents);

/* Fills `count` elements of `element_bytes` (1, 2 or 4) with `value`. */
FOVEA_RT_EXPORT void fovea_rt_gpu_fill(fovea_rt_gpu_queue *queue, void *to,
                                       int64_t count, int32_t element_bytes,
                                       uint32_t value);

/*
 * Checks of numbers on the device. The kinds say which facts a failure has:
 * places of a number, what bounds it, and the number. A place is b, h, i of a
 * batch entry, a head and what comes after.
 */
enum {
  /* b, h, i, bound, code: at least 0. */
  FOVEA_RT_GPU_CODES = 0,
  /* The same: or -1. */
  FOVEA_RT_GPU_CODES_OR_ABSENT = 1,
  /* b, h, i, j, bound, row: at least 0, or -1. */
  FOVEA_RT_GPU_ROWS = 2,
  /* b, h, i, bound, first, last: 0 <= first <= last < bound. */
  FOVEA_RT_GPU_INTERVALS = 3,
  /* b, h, i, most, size: from 0 to the most. */
  FOVEA_RT_GPU_SIZES = 4,
  /* b, i, level, index, next token, whether an absent node is before it, roots,
     ratio, levels, count: as fovea_rt_check_nodes; the end if i is the count.
   */
  FOVEA_RT_GPU_NODES = 5,
  /* Nothing: the text is the failure. */
  FOVEA_RT_GPU_ASSERTION = 6
};

/* Numbers of 64 bits that tell a failure. */
#define FOVEA_RT_GPU_FAILURE_WORDS 16

/*
 * Words in device memory that belong to the queue that the invocation opened
 * last, until it ends. The first is all ones: kernels lower it to the place of
 * a wrong number. The second is 0: the one of them that tells the failure
 * writes one more than the number of the rule, and the kernels behind it do
 * nothing. fovea_rt_gpu_end fails then, with FOVEA_RT_INVALID_ARGUMENT. Where
 * it does not wait, so does the next invocation on the device, and
 * fovea_rt_gpu_wait.
 */
FOVEA_RT_EXPORT void *fovea_rt_gpu_failure(void);

/* The number of a rule: the text that its failures begin with, and a kind. */
FOVEA_RT_EXPORT int64_t fovea_rt_gpu_rule(const char *text, int32_t kind);

/* Words for a failure of a rule in that queue, which the device can write: the
   place, one more than the number of the rule, and the facts. */
FOVEA_RT_EXPORT void *fovea_rt_gpu_report(int64_t rule);

/* Waits until all work given so far is done. */
FOVEA_RT_EXPORT void fovea_rt_gpu_synchronize(fovea_rt_gpu_queue *queue);

/* The numbers of CUtensorMapDataType. */
enum {
  FOVEA_RT_GPU_U8 = 0,
  FOVEA_RT_GPU_U16 = 1,
  FOVEA_RT_GPU_U32 = 2,
  FOVEA_RT_GPU_I32 = 3,
  FOVEA_RT_GPU_U64 = 4,
  FOVEA_RT_GPU_I64 = 5,
  FOVEA_RT_GPU_F16 = 6,
  FOVEA_RT_GPU_F32 = 7,
  FOVEA_RT_GPU_F64 = 8,
  FOVEA_RT_GPU_BF16 = 9
};

/* The numbers of CUtensorMapSwizzle. */
enum {
  FOVEA_RT_GPU_SWIZZLE_NONE = 0,
  FOVEA_RT_GPU_SWIZZLE_32B = 1,
  FOVEA_RT_GPU_SWIZZLE_64B = 2,
  FOVEA_RT_GPU_SWIZZLE_128B = 3
};

/*
 * Writes to map[0..127], 64-byte aligned, the descriptor of a tensor in device
 * memory for TMA copies of boxes; it is then passed to a kernel by value.
 * Axes are counted from the innermost, whose elements are adjacent.
 *   rank     1 to 5
 *   extents  [rank], in elements; copies beyond them read zeros
 *   strides  [rank - 1], in bytes, multiples of 16 from 16 on, of axes 1, 2,
 *            ...
 *   box      [rank], elements of a copy, at most 256 each
 * A tensor with an extent of 0 has no descriptor, and needs none.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_encode_tensor_map(
    fovea_rt_gpu_queue *queue, void *map, int32_t element_type, int32_t rank,
    void *address, const int64_t *extents, const int64_t *strides,
    const int32_t *box, int32_t swizzle);

/*
 * How many multiprocessors the device of the queue has that the invocation
 * opened last, at least 1.
 */
FOVEA_RT_EXPORT int64_t fovea_rt_gpu_multiprocessors(void);

/*
 * Fourier transforms in place of `count` lines of `length` complex numbers
 * each, pairs of f32, that lie one after the other in device memory: X[k] =
 * sum_n exp(-+ 2 pi i k n / length) x[n] with a plus for `inverse`, and not
 * divided by the length. Lengths are powers of two. They run on the queue that
 * the invocation opened last; on CUDA by cuFFT, found when it is first needed:
 * FOVEA_RT_UNAVAILABLE without one.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_transform(void *data, int64_t length,
                                            int64_t count, int32_t inverse);

/* 1 where such transforms can run, else 0. */
FOVEA_RT_EXPORT int32_t fovea_rt_gpu_has_transforms(void);

/* What an axis of a product runs along. */
enum {
  /* Both factors and the result: one product for each of its places. */
  FOVEA_RT_GPU_AXIS_BATCH = 0,
  /* The left factor and the result. */
  FOVEA_RT_GPU_AXIS_ROWS = 1,
  /* The right factor and the result. */
  FOVEA_RT_GPU_AXIS_COLUMNS = 2,
  /* Both factors, summed up. */
  FOVEA_RT_GPU_AXIS_DEPTH = 3
};

/* Numbers of an axis, see below. */
#define FOVEA_RT_GPU_AXIS_NUMBERS 6
/* Most axes of a product. */
#define FOVEA_RT_GPU_MOST_AXES 16

enum {
  /* Sums are added to what the result holds. */
  FOVEA_RT_GPU_ADD = 1,
  /* Factors in f32 may be rounded to tf32. */
  FOVEA_RT_GPU_TF32 = 2
};

/*
 * Sums of products of matrices in device memory, summed in f32 and rounded
 * once: result[b, i, j] = sum_k left[b, i, k] right[b, k, j], and `bias[j]` if
 * that is not null. They run on the queue that the invocation opened last; on
 * CUDA by cuBLASLt, found when it is first needed: FOVEA_RT_UNAVAILABLE without
 * one.
 *   factor_type  FOVEA_RT_GPU_F16, _BF16 or _F32, of both factors
 *   result_type  the same, or _F32; of the bias, too
 *   flags        of those above
 *   axes         [rank][6]: what it runs along, its extent, and its strides in
 *                the left factor, the right one, the result and the bias, in
 *                elements. Elements of one axis of each array, other than of a
 *                batch, are adjacent; those of the columns with a bias.
 *
 * Fails: arrays without such an axis, and several axes of depth that do not
 * follow each other in both factors where the result is narrow or has a bias
 * (FOVEA_RT_INVALID_ARGUMENT).
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_multiply(int32_t factor_type,
                                           int32_t result_type, int32_t flags,
                                           const void *left, const void *right,
                                           void *result, const void *bias,
                                           int32_t rank, const int64_t *axes);

/*===----------------------------------------------------------------------===*/
/* Called from host programs.                                                 */
/*===----------------------------------------------------------------------===*/

/* The number of devices of a kind; FOVEA_RT_UNAVAILABLE says why there are
   none. */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_count(int32_t kind,
                                                   int32_t *count);

typedef struct {
  char name[128];
  /* 10 * major + minor. */
  int32_t capability;
  int32_t multiprocessors;
  /* Most dynamic plus static shared memory of a block. */
  int64_t shared_bytes;
  int64_t total_bytes;
  int64_t free_bytes;
  int64_t l2_bytes;
  /* Of the cores and of the memory; 0 if unknown. */
  int32_t clock_khz;
  int32_t memory_clock_khz;
  int32_t memory_bus_bits;
  /* 1000 * major + 10 * minor of the CUDA version that the driver implements.
   */
  int32_t driver_version;
} fovea_rt_gpu_properties;

FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_get_properties(
    int32_t kind, int32_t device, fovea_rt_gpu_properties *properties);

/* The device that queues of the calling thread use from now on; 0 at first. */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_set_device(int32_t device);
FOVEA_RT_EXPORT int32_t fovea_rt_gpu_get_device(void);

/* CUDA's legacy default stream, CU_STREAM_LEGACY. */
#define FOVEA_RT_GPU_LEGACY_STREAM ((void *)1)

/*
 * The stream, a CUstream of that device, that queues of the calling thread use
 * from now on; null for streams of the runtime. These begin after all work that
 * the legacy default stream was given before, and are waited for; work on
 * streams of the caller that do not wait for that one must be done.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_set_stream(void *stream);

/*
 * Memory of the calling thread's device. A copy, or what makes it zero, is done
 * when the function returns. fovea_rt_gpu_release also takes results of an
 * invocation, as fovea_rt_free does; null is ignored. A result made on a stream
 * of the caller is freed after what that stream was given before, so that work
 * of other streams with it must be done; all other memory after all work of the
 * device. A stream not made here must outlive the results made on it.
 */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_acquire(int32_t kind,
                                                     int64_t bytes,
                                                     void **pointer);
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_release(int32_t kind,
                                                     void *pointer);
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_transfer(int32_t kind, void *to,
                                                      const void *from,
                                                      int64_t bytes);
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_clear(int32_t kind, void *pointer,
                                                   int64_t bytes);

/* The device whose memory `pointer` is, or -1 for memory of the host. */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_locate(int32_t kind,
                                                    const void *pointer,
                                                    int32_t *device);

/* 1 where the stream that the calling thread has chosen captures a graph, which
   cannot wait for numbers that the host wants, else 0. */
FOVEA_RT_EXPORT int32_t fovea_rt_gpu_is_capturing(int32_t kind);

/*
 * Waits for all work of the calling thread's device. FOVEA_RT_INVALID_ARGUMENT
 * if a check on it has failed in a call, or a graph, that nobody waited for.
 */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_wait(int32_t kind);

/*
 * A point in the work of a stream of the calling thread's device, for timing.
 * A null stream is that of fovea_rt_gpu_set_stream.
 */
typedef struct fovea_rt_gpu_event fovea_rt_gpu_event;

FOVEA_RT_EXPORT fovea_rt_status
fovea_rt_gpu_event_create(int32_t kind, fovea_rt_gpu_event **event);
FOVEA_RT_EXPORT void fovea_rt_gpu_event_destroy(fovea_rt_gpu_event *event);
FOVEA_RT_EXPORT fovea_rt_status
fovea_rt_gpu_event_record(fovea_rt_gpu_event *event, void *stream);
/* Waits for both. */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_event_elapsed(
    fovea_rt_gpu_event *from, fovea_rt_gpu_event *to, float *milliseconds);

/* A stream of the calling thread's device, to be passed to _set_stream. */
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_stream_create(int32_t kind,
                                                           void **stream);
FOVEA_RT_EXPORT fovea_rt_status fovea_rt_gpu_stream_destroy(int32_t kind,
                                                            void *stream);

/*
 * Unloads a module from every device, before its memory goes away. Its kernels
 * must have finished.
 */
FOVEA_RT_EXPORT void fovea_rt_gpu_unload(fovea_rt_gpu_module *module);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_RT_GPU_H */
