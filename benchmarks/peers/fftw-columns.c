/*===- fftw-columns.c - Transforms of columns by FFTW ---------------------===*
 *
 * Part of the Fovea Project, under the Apache License v2.0 with LLVM
 * Exceptions. See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*
 *
 * A program of its own, which nothing of Fovea links: benchmarks/fft.py
 * compiles it where fftw3.h is, and reads what it prints.
 *
 *   fftw-columns ROWS COLUMNS SECONDS
 *
 * Prints the seconds that real transforms of all columns of a matrix take: as
 * they lie, as complex ones of neighbouring columns, and transposed to
 * contiguous columns and back.
 *
 *===----------------------------------------------------------------------===*/

#include <fftw3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static int rows, columns;
static float *matrix, *turned;
static fftwf_complex *spectrum, *turnedSpectrum;
static fftwf_plan strided, paired, contiguous;

static void runStrided(void) { fftwf_execute(strided); }
static void runPaired(void) { fftwf_execute(paired); }

/* Tiles of a transposition, so that lines are used while a cache holds them. */
enum { TILE = 16 };

static void runTransposed(void) {
  int half = rows / 2 + 1;
  for (int row = 0; row < rows; row += TILE)
    for (int column = 0; column < columns; ++column)
      for (int i = row; i < row + TILE && i < rows; ++i)
        turned[(size_t)column * rows + i] =
            matrix[(size_t)i * columns + column];
  fftwf_execute(contiguous);
  for (int row = 0; row < half; row += TILE)
    for (int column = 0; column < columns; ++column)
      for (int i = row; i < row + TILE && i < half; ++i) {
        fftwf_complex *target = spectrum + (size_t)i * columns + column;
        const fftwf_complex *source =
            turnedSpectrum + (size_t)column * half + i;
        (*target)[0] = (*source)[0];
        (*target)[1] = (*source)[1];
      }
}

static int compare(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return (difference > 0) - (difference < 0);
}

static double median(void (*run)(void), double seconds) {
  enum { MOST = 10000 };
  static double times[MOST];
  int count = 0;
  run();
  for (double start = now();
       count < MOST && (count < 3 || now() - start < seconds); ++count) {
    double before = now();
    run();
    times[count] = now() - before;
  }
  qsort(times, count, sizeof(double), compare);
  return times[count / 2];
}

int main(int argc, char **argv) {
  if (argc != 4 || (rows = atoi(argv[1])) < 2 ||
      (columns = atoi(argv[2])) < 2 || columns % 2) {
    fprintf(stderr, "usage: fftw-columns ROWS COLUMNS SECONDS, with an even "
                    "number of columns\n");
    return 1;
  }
  int half = rows / 2 + 1;
  size_t size = (size_t)rows * columns;
  matrix = fftwf_alloc_real(size);
  turned = fftwf_alloc_real(size);
  spectrum = fftwf_alloc_complex((size_t)half * columns);
  turnedSpectrum = fftwf_alloc_complex((size_t)half * columns);
  if (!matrix || !turned || !spectrum || !turnedSpectrum) {
    fprintf(stderr, "fftw-columns: no memory\n");
    return 1;
  }
  fftwf_set_timelimit(5.0);
  strided = fftwf_plan_many_dft_r2c(1, &rows, columns, matrix, NULL, columns, 1,
                                    spectrum, NULL, columns, 1, FFTW_MEASURE);
  fftwf_complex *pairs = (fftwf_complex *)matrix;
  paired = fftwf_plan_many_dft(1, &rows, columns / 2, pairs, NULL, columns / 2,
                               1, (fftwf_complex *)turned, NULL, columns / 2, 1,
                               FFTW_FORWARD, FFTW_MEASURE);
  contiguous =
      fftwf_plan_many_dft_r2c(1, &rows, columns, turned, NULL, 1, rows,
                              turnedSpectrum, NULL, 1, half, FFTW_MEASURE);
  if (!strided || !paired || !contiguous) {
    fprintf(stderr, "fftw-columns: no plan\n");
    return 1;
  }
  for (size_t i = 0; i < size; ++i)
    matrix[i] = (float)(i % 17) - 8.0f;
  double seconds = atof(argv[3]);
  printf("strided %.9g\n", median(runStrided, seconds));
  printf("paired %.9g\n", median(runPaired, seconds));
  printf("transposed %.9g\n", median(runTransposed, seconds));
  return 0;
}
