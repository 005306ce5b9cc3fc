//go:build race

package model

// The race detector makes a step ten times slower, so a third of the steps are run, which is
// still more than a million.
func init() { slower = 3 }
