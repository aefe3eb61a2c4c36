//===- Functions.h - Attention of arrays ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_FUNCTIONS_H
#define FOVEA_FUNCTIONS_FUNCTIONS_H

#include "fovea/Functions/Conv.h"
#include "fovea/Functions/Dense.h"
#include "fovea/Functions/FastMultipole.h"
#include "fovea/Functions/KVCache.h"
#include "fovea/Functions/LowRank.h"
#include "fovea/Functions/MultipoleCache.h"
#include "fovea/Functions/Paged.h"
#include "fovea/Functions/Patterns.h"
#include "fovea/Functions/PoolState.h"
#include "fovea/Functions/ResultScopes.h"
#include "fovea/Functions/Rope.h"
#include "fovea/Functions/Shapes.h"
#include "fovea/Functions/Stream.h"
#include "fovea/Functions/Tokens.h"
#include "fovea/Functions/Tree.h"
#include "fovea/Functions/VQ.h"
#include "fovea/Functions/Varlen.h"

#endif // FOVEA_FUNCTIONS_FUNCTIONS_H
