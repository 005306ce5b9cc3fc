//go:build race

package bubble

// The race detector makes a seed several times slower, so a few are played for its own sake:
// whether everything happens that is wanted is shown without it.
func init() { fewer = 5 }
