// Package layers holds the project to its own structure: which package may know
// which. It has tests only.
package layers
