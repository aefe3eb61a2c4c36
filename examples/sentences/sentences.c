/*===- sentences.c - A whole model compiled ahead of time ---------*- C -*-===*\
|*                                                                            *|
|* Part of the Fovea Project, under the Apache License v2.0 with LLVM         *|
|* Exceptions. See the LICENSE file for license information.                  *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|*   sentences vocab.txt "A sentence." "Another one." ...                     *|
|*                                                                            *|
|* prints how much alike sentences are, by the embeddings of a model that     *|
|* fovea-compile has made a library. README.md has the commands. Nothing of   *|
|* Python or of a compiler is here.                                           *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "embed.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the library takes: tokens of one sentence, and which of them are there.
 */
enum { TOKENS = 128, LONGEST_WORD = 100 };

/*===----------------------------------------------------------------------===*\
 * The vocabulary: a piece in each line, whose token is the number of the line
\*===----------------------------------------------------------------------===*/

typedef struct {
  const char *text;
  int64_t token;
} Piece;

typedef struct {
  Piece *pieces; /* by their texts */
  size_t count;
} Vocabulary;

static int compare(const void *a, const void *b) {
  return strcmp(((const Piece *)a)->text, ((const Piece *)b)->text);
}

static void fail(const char *what, const char *about) {
  fprintf(stderr, "sentences: error: %s: %s\n", what, about);
  exit(1);
}

static void *allocate(size_t bytes) {
  void *memory = malloc(bytes);
  if (!memory)
    fail("malloc", "out of memory");
  return memory;
}

static Vocabulary read_vocabulary(const char *path) {
  FILE *file = fopen(path, "rb");
  long size = -1;
  if (file && fseek(file, 0, SEEK_END) == 0)
    size = ftell(file);
  if (size < 0)
    fail(path, "cannot be read");
  rewind(file);
  char *text = allocate((size_t)size + 1);
  if (fread(text, 1, (size_t)size, file) != (size_t)size)
    fail(path, "cannot be read");
  fclose(file);
  text[size] = '\0';

  size_t lines = 1;
  for (const char *c = text; *c; ++c)
    lines += *c == '\n';
  Vocabulary vocabulary = {allocate(lines * sizeof(Piece)), 0};
  for (char *line = text; line && *line;) {
    char *end = strchr(line, '\n');
    if (end)
      *end++ = '\0';
    line[strcspn(line, "\r")] = '\0';
    Piece piece = {line, (int64_t)vocabulary.count};
    vocabulary.pieces[vocabulary.count++] = piece;
    line = end;
  }
  qsort(vocabulary.pieces, vocabulary.count, sizeof(Piece), compare);
  return vocabulary;
}

/* -1 if there is no such piece. */
static int64_t find(Vocabulary vocabulary, const char *text) {
  Piece key = {text, 0};
  const Piece *found = bsearch(&key, vocabulary.pieces, vocabulary.count,
                               sizeof(Piece), compare);
  return found ? found->token : -1;
}

static int64_t need(Vocabulary vocabulary, const char *text) {
  int64_t token = find(vocabulary, text);
  if (token < 0)
    fail(text, "is not in the vocabulary");
  return token;
}

/*===----------------------------------------------------------------------===*\
 * Tokens
\*===----------------------------------------------------------------------===*/

typedef struct {
  int64_t ids[TOKENS], mask[TOKENS];
  size_t count;
} Tokens;

/* The last place is that of the end mark. */
static void add(Tokens *tokens, int64_t token) {
  if (tokens->count < TOKENS - 1)
    tokens->ids[tokens->count++] = token;
}

/* Adds the longest piece that a word begins with, then those of the rest, which
 * are marked by ##; all of it is unknown where there is none, or if it is long.
 */
static void add_word(Tokens *tokens, Vocabulary vocabulary, const char *word,
                     size_t length) {
  size_t before = tokens->count;
  for (size_t first = 0, last; first < length; first = last) {
    int64_t token = -1;
    for (last = length <= LONGEST_WORD ? length : 0; last > first; --last) {
      char piece[LONGEST_WORD + 3];
      snprintf(piece, sizeof(piece), "%s%.*s", first ? "##" : "",
               (int)(last - first), word + first);
      token = find(vocabulary, piece);
      if (token >= 0)
        break;
    }
    if (token < 0) {
      tokens->count = before;
      add(tokens, need(vocabulary, "[UNK]"));
      return;
    }
    add(tokens, token);
  }
}

/* Lower case; every mark of punctuation is a word. Letters beyond ASCII are
 * taken as they are, with their accents. */
static Tokens tokenize(Vocabulary vocabulary, const char *sentence) {
  Tokens tokens = {{0}, {0}, 0};
  size_t length = strlen(sentence);
  char *text = allocate(length + 1);
  for (size_t at = 0; at <= length; ++at)
    text[at] = (char)tolower((unsigned char)sentence[at]);
  add(&tokens, need(vocabulary, "[CLS]"));
  for (const char *word = text; *word;) {
    size_t count = 0;
    while (word[count] && !isspace((unsigned char)word[count]) &&
           !ispunct((unsigned char)word[count]))
      ++count;
    if (count == 0 && ispunct((unsigned char)*word))
      count = 1;
    if (count == 0) {
      ++word;
      continue;
    }
    add_word(&tokens, vocabulary, word, count);
    word += count;
  }
  tokens.ids[tokens.count++] = need(vocabulary, "[SEP]");
  for (size_t at = 0; at < tokens.count; ++at)
    tokens.mask[at] = 1;
  free(text);
  return tokens;
}

/*===----------------------------------------------------------------------===*\
 * Embeddings
\*===----------------------------------------------------------------------===*/

int main(int argc, char **argv) {
  if (argc < 3)
    fail("usage", "sentences <vocab.txt> <sentence>...");
  Vocabulary vocabulary = read_vocabulary(argv[1]);
  int count = argc - 2;
  embed_results *results = allocate((size_t)count * sizeof(*results));
  for (int i = 0; i < count; ++i) {
    Tokens tokens = tokenize(vocabulary, argv[2 + i]);
    if (embed(tokens.ids, tokens.mask, &results[i]) != FOVEA_RT_OK)
      fail("embed", fovea_rt_last_error());
  }
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < count; ++j) {
      /* Embeddings have length 1. */
      float cosine = 0;
      for (int64_t d = 0; d < results[i].result0.extents[1]; ++d)
        cosine += results[i].result0.data[d] * results[j].result0.data[d];
      printf("%6.3f ", cosine);
    }
    printf(" %s\n", argv[2 + i]);
  }
  for (int i = 0; i < count; ++i)
    embed_release(&results[i]);
  return 0;
}
