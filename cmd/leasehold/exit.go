package main

import (
	"errors"
	"fmt"
	"strings"
)

// The exit codes of all commands. exec also exits with the status of the command that it
// ran.
const (
	exitDone         = 0
	exitFailure      = 1
	exitUsage        = 2
	exitNoChrome     = 3
	exitAddressInUse = 4
	exitDataDir      = 5
	exitNATS         = 6
	exitUnreachable  = 7
	exitRefused      = 8
	exitEvidence     = 9
	exitLocked       = 10
	exitNotAnswered  = 11
	exitTimeout      = 124
	exitCannotRun    = 126
	exitNotFound     = 127
	exitSignal       = 128 // plus the signal's number
)

// exitMeanings says what each exit code means. The help, the manual and docs/configuration.md
// are made from it.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitDone, "done"},
	{exitFailure, "unexpected failure; doctor: a check failed; check: not signed in, or unknown"},
	{exitUsage, "wrong usage or configuration"},
	{exitNoChrome, "Chrome not found"},
	{exitAddressInUse, "address in use"},
	{exitDataDir, "data directory unusable"},
	{exitNATS, "NATS unreachable or unfit"},
	{exitUnreachable, "the sidecar cannot be reached"},
	{exitRefused, "refused by the sidecar (the problem is printed)"},
	{exitEvidence, "evidence verify, export, profiles verify: something is not as it was sealed"},
	{exitLocked, "evidence is encrypted, and --identity is missing or not the right one"},
	{exitNotAnswered, "ask: nobody answered in time, or a person says that it is not done"},
	{exitTimeout, "--timeout of watch ran out"},
}

const exitStatuses = `exec exits with the status of its command: 128 and the signal's number where a
signal ended it, 126 where it cannot be run, 127 where it is not found. A command that is
interrupted before the sidecar has answered exits with 128 and the signal's number, too.
`

const whereSettingsAre = `Every setting can be given as a flag, as the variable named beside it, or in the
YAML file of --config under the flag's name. A flag goes before a variable, a
variable before the file.
`

// exitCodesHelp is the end of the help of the whole program.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	for line := range strings.Lines(exitStatuses) {
		b.WriteString("  " + line)
	}
	return b.String() + "\n" + whereSettingsAre
}

// exitError is an error with the exit code that it stands for. If err is nil, nothing is
// printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitWith makes an exitError with a message.
func exitWith(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		return e.code
	default:
		return exitFailure
	}
}
