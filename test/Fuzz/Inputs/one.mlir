func.func @fine() {
  return
}

func.func @poison() {
  return
}

func.func @fine_too() {
  return
}
