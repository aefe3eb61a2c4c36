// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Masks.
// expected-error @below {{expected a window of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.mask<window = 0>}

// -----

// expected-error @below {{expected a window of at least 1, but got -1}}
func.func private @f() attributes {a.b = #attn.mask<window = -1>}

// -----

// expected-error @below {{expected a window of at least 1, but got -9223372036854775808}}
func.func private @f() attributes {a.b = #attn.mask<causal, window = -9223372036854775808>}

// -----

// expected-error @below {{integer value too large}}
func.func private @f() attributes {a.b = #attn.mask<window = 9223372036854775808>}

// -----

// expected-error @below {{expected '='}}
func.func private @f() attributes {a.b = #attn.mask<window>}

// -----

// expected-error @below {{expected '>'}}
func.func private @f() attributes {a.b = #attn.mask<causal window = 3>}

// -----

// expected-error @below {{expected '>'}}
func.func private @f() attributes {a.b = #attn.mask<none, causal>}

// -----

// expected-error @below {{expected '<'}}
func.func private @f() attributes {a.b = #attn.mask}

// -----

// Sources.
// expected-error @below {{expected ranges of the form (b)[rows, n] -> (begin, end) or (begin, end, lower, upper), but got affine_map<(d0)[s0] -> (0, s0)>}}
func.func private @f() attributes {a.b = #attn.source<ranges = [(b)[r] -> (0, r)], mask = <none>, log_weight = false, bias = false>}

// -----

// expected-error @below {{expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (d0 mod -2, s0)>}}
func.func private @f() attributes {a.b = #attn.source<ranges = [(b)[r, n] -> (b mod (-2), r)], mask = <none>, log_weight = false, bias = false>}

// -----

// expected-error @+2 {{expected a window of at least 1, but got 0}}
// expected-error @below {{failed to parse Attn_SourceAttr parameter 'mask' which is to be a `::fovea::attn::MaskAttr`}}
func.func private @f() attributes {a.b = #attn.source<ranges = [(b)[r, n] -> (0, r)], mask = <window = 0>, log_weight = false, bias = false>}

// -----

// expected-error @below {{expected 'mask'}}
func.func private @f() attributes {a.b = #attn.source<ranges = [(b)[r, n] -> (0, r)], log_weight = false, bias = false>}

// -----

// expected-error @+2 {{integer value too large}}
// expected-error @below {{failed to parse Attn_SourceAttr parameter 'hasLogWeight' which is to be a `bool`}}
func.func private @f() attributes {a.b = #attn.source<ranges = [(b)[r, n] -> (0, r)], mask = <none>, log_weight = 3, bias = false>}

// -----

// expected-error @below {{expected '['}}
func.func private @f() attributes {a.b = #attn.source<ranges = (b)[r, n] -> (0, r), mask = <none>, log_weight = false, bias = false>}

// -----

// Tiles.
// expected-error @below {{expected tile sizes of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.tiles<query = 0, key = 8, lanes = 8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected tile sizes of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 0, lanes = 8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected tile sizes of at least 1, but got -8}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = -8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected tile sizes of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 0, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected tile sizes of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 0, columns = 4>}

// -----

// expected-error @below {{expected tile sizes of at least 1, but got 0}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 4, columns = 0>}

// -----

// expected-error @below {{expected extents of the register tile of at most 64, but got 65}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 65, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected extents of the register tile of at most 64, but got 65}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 65, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected extents of the register tile of at most 64, but got 65}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 65, columns = 4>}

// -----

// expected-error @below {{expected extents of the register tile of at most 64, but got 65}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 4, columns = 65>}

// -----

// expected-error @below {{expected query and key tiles of at most 1048576 rows, but got 4611686018427387904}}
func.func private @f() attributes {a.b = #attn.tiles<query = 4611686018427387904, key = 8, lanes = 8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected query and key tiles of at most 1048576 rows, but got 4611686018427387904}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 4611686018427387904, lanes = 8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected a register tile of at most 256 vectors, but got 512}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 64, lanes = 8, vectors = 16, keys = 32, columns = 4>}

// -----

// expected-error @below {{expected a register tile of at most 256 vectors, but got 512}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 64, lanes = 8, vectors = 16, keys = 4, columns = 32>}

// -----

// expected-error @below {{expected the key tile to be a multiple of the register tile's keys, but got 6 and 4}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 6, lanes = 8, vectors = 2, keys = 4, columns = 4>}

// -----

// expected-error @below {{expected a cluster of 1 or 2 blocks, but got 3}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 4, columns = 4, cluster = 3>}

// -----

// expected-error @below {{struct is missing required parameter: columns}}
func.func private @f() attributes {a.b = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 2, keys = 4>}

// -----

// No such attribute or operation.
// expected-error @below {{unknown attribute `nothing` in dialect `attn`}}
func.func private @f() attributes {a.b = #attn.nothing<3>}

// -----

// expected-error @below {{unregistered operation 'attn.nothing' found in dialect ('attn') that does not allow unknown operations}}
"attn.nothing"() : () -> ()
