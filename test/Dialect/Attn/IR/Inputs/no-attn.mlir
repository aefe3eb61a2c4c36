func.func @f(%x: index) -> index {
  return %x : index
}
