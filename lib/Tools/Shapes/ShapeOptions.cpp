//===- ShapeOptions.cpp - The option --shape of tools ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Shapes/ShapeOptions.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;

/// Parses "1x8x512x64".
static Expected<SmallVector<int64_t, 4>> parseShape(StringRef text) {
  SmallVector<int64_t, 4> shape;
  SmallVector<StringRef> parts;
  text.split(parts, 'x');
  for (StringRef part : parts) {
    int64_t extent;
    if (part.getAsInteger(10, extent) || extent < 0)
      return createStringError("expected a shape such as '1x8x512x64', but "
                               "got '" +
                               text + "'");
    shape.push_back(extent);
  }
  return shape;
}

Expected<SmallVector<int64_t, 4>> ShapeOptions::take(const ValueSpec &spec,
                                                     const Twine &description) {
  if (!is_contained(spec.shape, kDynamicExtent))
    return SmallVector<int64_t, 4>(spec.shape);
  if (next >= values.size())
    return createStringError(
        description + ", has dynamic extents: expected a --shape for it");
  return parseShape(values[next++]);
}

Error ShapeOptions::finish(StringRef arguments) const {
  if (next == values.size())
    return Error::success();
  return createStringError("expected a --shape for each " + arguments +
                           " with dynamic extents, " + Twine(next) +
                           ", but got " + Twine(values.size()));
}
