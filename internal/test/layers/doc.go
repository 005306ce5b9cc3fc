// Package layers checks the project's structure: which package may import which. It has
// tests only.
package layers
