// Package deploy has tests alone: each file of the folder deploy/ is read by the library of
// the tool that it is for, and compared with what the product has. It is a module of its own,
// so that those libraries are no part of the product's.
package deploy
