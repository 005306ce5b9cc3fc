// the snippet
