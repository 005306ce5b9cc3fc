function add(a, b) {
  const sum = a + b;
  return sum;
}
window.loaded = true;
