//go:build !linux

package foreign

// onlyPath opens a folder to read it: the flag that asks for less is Linux's own.
const onlyPath = 0
