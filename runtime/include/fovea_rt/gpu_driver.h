//===- gpu_driver.h - What runs kernels ---------------------------*- C -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The interface below gpu.h: a kind of device. The runtime has one for CUDA;
// the emulator registers another. All functions may be called from any thread.
// One that fails writes a sentence of less than FOVEA_RT_GPU_TEXT bytes to
// `text`. Streams may be null: the device's default one.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_GPU_DRIVER_H
#define FOVEA_RT_GPU_DRIVER_H

#include "fovea_rt/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FOVEA_RT_GPU_DRIVER_VERSION 5
#define FOVEA_RT_GPU_TEXT 1024

/* Where memory is, seen from a device. */
enum {
  FOVEA_RT_GPU_HOST = 0,
  FOVEA_RT_GPU_HERE = 1,
  FOVEA_RT_GPU_ELSEWHERE = 2
};

typedef struct {
  const char *name;
  int64_t grid[3], block[3], cluster[3];
  int64_t shared_bytes;
  void **params;
  int64_t num_params;
} fovea_rt_gpu_launch_info;

typedef struct {
  int32_t element_type, rank, swizzle;
  void *address;
  const int64_t *extents, *strides;
  const int32_t *box;
} fovea_rt_gpu_tensor_map_info;

/* A matrix, or one for each entry of a batch: elements lie as many elements
   apart as the strides say. One of its axes has adjacent elements or an extent
   of 1, and those of the other do not overlap. */
typedef struct {
  void *data;
  int64_t batch_stride, row_stride, column_stride;
} fovea_rt_gpu_matrix;

/* As fovea_rt_gpu_multiply. The rows of the left factor are those of the
   result, its columns the rows of the right factor. No extent is 0. */
typedef struct {
  int32_t factor_type, result_type, flags;
  int64_t batch, rows, columns, depth;
  fovea_rt_gpu_matrix left, right, result;
  /* The numbers of the columns, one after the other, or null; if there are any,
     columns of the result are adjacent. */
  const void *bias;
} fovea_rt_gpu_product;

typedef struct {
  /* FOVEA_RT_GPU_DRIVER_VERSION. */
  int32_t version;
  fovea_rt_status (*count)(int32_t *count, char *text);
  /* The device `ordinal`; called once for each, never closed. */
  fovea_rt_status (*open)(int32_t ordinal, void **device, char *text);
  fovea_rt_status (*get_properties)(void *device,
                                    fovea_rt_gpu_properties *properties,
                                    char *text);

  fovea_rt_status (*load)(void *device, const fovea_rt_gpu_module *code,
                          void **module, char *text);
  void (*unload)(void *device, void *module);
  fovea_rt_status (*find)(void *device, void *module, const char *name,
                          void **function, char *text);
  void (*forget)(void *device, void *function);
  fovea_rt_status (*launch)(void *device, void *function,
                            const fovea_rt_gpu_launch_info *info, void *stream,
                            char *text);

  fovea_rt_status (*allocate)(void *device, int64_t bytes, void *stream,
                              void **pointer, char *text);
  /* After the work given to `stream` so far. */
  fovea_rt_status (*release)(void *device, void *pointer, void *stream,
                             char *text);
  /* Memory that the host and the device reach at one address, for good. */
  fovea_rt_status (*share)(void *device, int64_t bytes, void **pointer,
                           char *text);
  /* FOVEA_RT_GPU_HOST, _HERE, or _ELSEWHERE with the ordinal of the device. */
  int32_t (*locate)(void *device, const void *pointer, int32_t *ordinal);
  /* Between the places that `locate` gave. Host memory as in gpu.h. */
  fovea_rt_status (*copy)(void *device, void *to, int32_t to_place,
                          const void *from, int32_t from_place, int64_t bytes,
                          void *stream, char *text);
  /* `count` rows of `bytes` bytes that lie as many bytes apart as the pitches
     say, all on the device. */
  fovea_rt_status (*copy_rows)(void *device, void *to, int64_t to_pitch,
                               const void *from, int64_t from_pitch,
                               int64_t bytes, int64_t count, void *stream,
                               char *text);
  fovea_rt_status (*fill)(void *device, void *to, int64_t count,
                          int32_t element_bytes, uint32_t value, void *stream,
                          char *text);
  fovea_rt_status (*encode)(void *device, void *map,
                            const fovea_rt_gpu_tensor_map_info *info,
                            char *text);
  /* As fovea_rt_gpu_transform; with `data` null, only whether there can be. */
  fovea_rt_status (*transform)(void *device, void *data, int64_t length,
                               int64_t count, int32_t inverse, void *stream,
                               char *text);

  fovea_rt_status (*multiply)(void *device, const fovea_rt_gpu_product *product,
                              void *stream, char *text);

  fovea_rt_status (*create_stream)(void *device, void **stream, char *text);
  fovea_rt_status (*destroy_stream)(void *device, void *stream, char *text);
  /* Whether work of the stream is recorded, for a graph. */
  fovea_rt_status (*is_capturing)(void *device, void *stream, int32_t *answer,
                                  char *text);
  /* With `all`, of the whole device. */
  fovea_rt_status (*synchronize)(void *device, void *stream, int32_t all,
                                 char *text);

  fovea_rt_status (*create_event)(void *device, void **event, char *text);
  void (*destroy_event)(void *device, void *event);
  fovea_rt_status (*record_event)(void *device, void *event, void *stream,
                                  char *text);
  fovea_rt_status (*measure)(void *device, void *from, void *to,
                             float *milliseconds, char *text);
} fovea_rt_gpu_driver;

/*
 * Makes `driver`, which must stay as it is, the one of a kind without one.
 * FOVEA_RT_INVALID_ARGUMENT for an unknown kind or another version.
 */
FOVEA_RT_EXPORT fovea_rt_status
fovea_rt_gpu_register_driver(int32_t kind, const fovea_rt_gpu_driver *driver);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_RT_GPU_DRIVER_H */
