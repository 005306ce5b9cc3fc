// Package e2e drives the built sidecar as its users do: real Chromium, real NATS,
// real clients, and processes that are killed. It has tests only.
package e2e
