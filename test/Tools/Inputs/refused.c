/* Part of the Fovea Project, under the Apache License v2.0 with LLVM
   Exceptions. See LICENSE for license information. SPDX-License-Identifier:
   Apache-2.0 WITH LLVM-exception */

/* Calls attention that was compiled ahead of time with what it must refuse. */

#include <stdio.h>

enum { N = 40, D = 16 };
static float data[4 * N * D + 1];

static void report(const char *what, fovea_rt_status status,
                   attend_results *results) {
  printf("%s: status %d %s\n", what, (int)status, fovea_rt_last_error());
  if (status == FOVEA_RT_OK)
    attend_release(results);
}

int main(void) {
  attend_results r;
  const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 60,
                          (INT64_C(1) << 60) + 1, INT64_MAX, INT64_MIN};
  int i;
#define REPORT(what, ...) report(what, attend(__VA_ARGS__), &r)
  REPORT("right", data, N, data, N, data, N, &r);
  if (fovea_rt_last_error()[0])
    return 0;
  REPORT("other lengths", data, N, data, N, data, N - 1, &r);
  REPORT("negative", data, N, data, -3, data, -3, &r);
  for (i = 0; i < 5; ++i)
    REPORT("huge", data, huge[i], data, N, data, N, &r);
  REPORT("huge keys", data, N, data, huge[1], data, huge[1], &r);
  REPORT("null", data, N, 0, N, data, N, &r);
  REPORT("misaligned", (const float *)((const char *)data + 2), N, data, N,
         data, N, &r);
  REPORT("no results", data, N, data, N, data, N, 0);
  REPORT("nothing", 0, 0, 0, 0, 0, 0, &r);

  /* The entry itself, which takes strides. */
  {
    struct {
      const void *base, *data;
      int64_t offset, extents[4], strides[4];
    } tensor = {data, data, 0, {1, 4, N, D}, {4 * N * D, N * D, D, 1}};
    void *arguments[] = {&r, &tensor, &tensor, &tensor};
    tensor.extents[1] = 3;
    report("other heads", fovea_rt_invoke(attend_packed, arguments), &r);
    tensor.extents[1] = 4;
    tensor.strides[2] = D + 1;
    report("gaps", fovea_rt_invoke(attend_packed, arguments), &r);
    arguments[1] = 0;
    report("no tensor", fovea_rt_invoke(attend_packed, arguments), &r);
  }
  return 0;
}
