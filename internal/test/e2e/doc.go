// Package e2e tests the built sidecar as its users see it, with a real Chromium, a real
// NATS server, real clients, and processes that are killed. It has tests only.
package e2e
