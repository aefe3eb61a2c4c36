//===- Quantize.cpp - Codebooks of arrays ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "Codes.h"
#include "TokenMask.h"
#include "fovea/Functions/VQ.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static Argument checkKeys(Checker &check, const TensorRef &k) {
  Argument keys = check.operand("key", "k", k);
  check.notEmpty(keys);
  return keys;
}

/// An array [G,S,D] or [1,S,D]: one set of codewords for each head of k, or one
/// for all.
static Argument checkSets(Checker &check, StringRef name,
                          const TensorRef &array, const Argument &k) {
  Argument sets = check.operand(name, name, array);
  check.check(sets.shape[0] == 1 || sets.shape[0] == k.shape[1],
              name + ": found " + Twine(sets.shape[0]) +
                  " sets, needed 1 or one for each of the " +
                  Twine(k.shape[1]) + " heads of k");
  check.check(sets.shape[1] != 0,
              name + ": found no codewords, needed at least 1");
  check.match(name, "width", sets.shape[2], k.shape[3]);
  return sets;
}

Expected<QuantizeResult> fovea::quantize(const TensorRef &k,
                                         const TensorRef &codebook,
                                         const QuantizeOptions &options) {
  Checker check("quantize");
  Argument keys = checkKeys(check, k);
  Argument words = checkSets(check, "codebook", codebook, keys);
  TokenMask mask(check, options, keys.shape[0], keys.shape[2], options.target);
  Call call("quantize", options.target, options.out);
  call.operands({keys, words});
  call.operandIf(mask.get());
  call.result(check, "codes", ElementType::I32,
              ArrayRef(keys.shape).drop_back(), /*place=*/1);
  call.result(check, "quantized", keys.elementType, keys.shape, /*place=*/0);
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check);
  if (!results)
    return results.takeError();
  return QuantizeResult{std::move((*results)[1]), std::move((*results)[0])};
}

/// The results are the codebook and, unless `inPlace`, sums and counts.
template <typename Result, size_t count>
static Expected<Result>
runUpdate(const TensorRef &k, const TensorRef &codes, const TensorRef &sums,
          const TensorRef &counts, const CodebookUpdateOptions &options) {
  constexpr bool inPlace = count == 1;
  Checker check("codebook_update");
  Codes narrow(check, "codes", codes, options.target);
  Argument keys = checkKeys(check, k),
           keyCodes = narrow.get(check, "codes", "codes");
  check.match("codes", "shape", keyCodes.shape,
              ArrayRef(keys.shape).drop_back());
  Argument keySums = checkSets(check, "sums", sums, keys);
  Argument keyCounts = check.operand("counts", "counts", counts);
  check.match("counts", "shape", keyCounts.shape,
              ArrayRef(keySums.shape).drop_back());
  check.rate("rate", options.rate);
  check.number("min_count", options.minCount, options.minCount >= 0,
               "at least 0");
  check.number("replace_below", options.replaceBelow, options.replaceBelow >= 0,
               "at least 0");
  Call call("codebook_update", options.target, options.out);
  call.operands({keys, keyCodes});
  // An argument: another seed is no other kernel.
  int64_t seed = check.integer("seed", options.seed, 0);
  std::optional<Argument> seedOperand;
  if (options.replaceBelow > 0)
    seedOperand.emplace("seed", TensorRef{&seed, ElementType::I64, {}});
  call.operandIf(seedOperand);
  call.attribute("rate", options.rate);
  call.attribute("min_count", options.minCount);
  call.attribute("replace_below", options.replaceBelow);
  call.result(check, "codebook",
              options.wide ? keySums.elementType : keys.elementType,
              keySums.shape);
  call.update(check, keySums, inPlace);
  call.update(check, keyCounts, inPlace);
  return call.runFor<Result, count>(check);
}

Expected<OwnedTensor>
fovea::codebook_update(const TensorRef &k, const TensorRef &codes,
                       const TensorRef &sums, const TensorRef &counts,
                       const CodebookUpdateOptions &options) {
  return runUpdate<OwnedTensor, 1>(k, codes, sums, counts, options);
}

Expected<CodebookStep>
fovea::codebook_step(const TensorRef &k, const TensorRef &codes,
                     const TensorRef &sums, const TensorRef &counts,
                     const CodebookUpdateOptions &options) {
  return runUpdate<CodebookStep, 3>(k, codes, sums, counts, options);
}
