//go:build race

package model

// The race detector makes a step ten times slower: there are a third of them, and
// still more than a million.
func init() { slower = 3 }
