package main

import (
	"errors"
	"fmt"

	"leasehold/evidence/crypt"
)

// keygenCmd makes a private key for encrypted evidence.
type keygenCmd struct {
	Out string `arg:"" type:"path" name:"file" help:"The new file with the private key."`
}

// Run writes the file, and prints the recipient for --evidence-recipient.
func (c *keygenCmd) Run(a *app) error {
	recipient, err := crypt.WriteIdentity(c.Out)
	if err != nil {
		return fmt.Errorf("keygen: %w", err)
	}
	fmt.Fprintln(a.stdout, recipient)
	return nil
}

// readIdentities reads the files of --identity. Its errors have the exit code exitUsage.
func readIdentities(files []string) (*crypt.Identities, error) {
	with, err := crypt.ReadIdentities(files)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--identity: %w", err)}
	}
	return with, nil
}

// lockedEvidence gives an error of opening evidence its exit code, if the key is the problem.
func lockedEvidence(err error) error {
	if errors.Is(err, crypt.ErrNoKey) {
		return exitWith(exitLocked, "%w: give --identity with the private key of one of these, or --stored to save it as it is", err)
	}
	return err
}
