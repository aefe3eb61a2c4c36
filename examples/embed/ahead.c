/*===- ahead.c - A kernel compiled ahead of time ------------------*- C -*-===*\
|*                                                                            *|
|* Part of the Fovea Project, under the Apache License v2.0 with LLVM         *|
|* Exceptions. See the LICENSE file for license information.                  *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Calls the function of attend.mlir, which fovea-compile has compiled while  *|
|* this program was built. It needs the runtime and no compiler.              *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "attend.h"
#include <stdio.h>

enum { TOKENS = 5, WIDTH = 16 };
static float q[4 * TOKENS * WIDTH], k[2 * TOKENS * WIDTH],
    v[2 * TOKENS * WIDTH];

int main(void) {
  attend_results results;
  /* All scores are zero, so that a token takes the mean of those up to it. */
  for (int i = 0; i < 2 * TOKENS * WIDTH; ++i)
    v[i] = (float)(i / WIDTH % TOKENS);
  if (attend(q, TOKENS, k, TOKENS, v, TOKENS, &results) != FOVEA_RT_OK) {
    fprintf(stderr, "ahead: error: %s\n", fovea_rt_last_error());
    return 1;
  }
  printf("runtime %d: the last token is %g\n", fovea_rt_version(),
         results.result0.data[(TOKENS - 1) * WIDTH]);
  attend_release(&results);
  return 0;
}
