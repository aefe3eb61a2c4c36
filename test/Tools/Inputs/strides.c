/* Part of the Fovea Project, under the Apache License v2.0 with LLVM
   Exceptions. See LICENSE for license information. SPDX-License-Identifier:
   Apache-2.0 WITH LLVM-exception */

/* Calls a function whose arguments have strides. */

#include <stdio.h>

enum { N = 3, COUNT = N * 16 };
static int32_t positions[2 * N];
static float data[COUNT];

static void report(const char *what, fovea_rt_status status) {
  printf("%s: status %d %s\n", what, (int)status,
         status ? fovea_rt_last_error() : "");
}

int main(void) {
  /* Of each token, two heads to read and two to write, of four columns. */
  const int64_t strides[] = {0, 4, 16, 1};
  const int64_t columns[] = {0, 4, 16, 2}, shared[] = {0, 0, 16, 1};
  int i, wrong = 0;
  for (i = 0; i < COUNT; ++i)
    data[i] = i;
  /* Positions are 0, and so are angles. */
#define TURN(xs, y, ys) turn(data, N, xs, positions, N, y, N, ys)
  report("right", TURN(strides, data + 8, strides));
  for (i = 0; i < COUNT; ++i)
    wrong += data[i] != (i % 16 < 8 ? i : i - 8);
  printf("wrong: %d\n", wrong);
  report("columns", TURN(columns, data + 8, strides));
  report("overlap", TURN(strides, data + 7, strides));
  report("shared", TURN(strides, data + 8, shared));
  return 0;
}
