// Package incidents runs a corpus of incidents. Each is a scripted session on a local
// web site that behaves like a real one. Its worker is killed at a named moment, and it
// names the decision that an honest expert would make. The package runs the incidents
// through a sidecar and a browser, and counts where the sidecar decides otherwise.
//
// A worker is a plain websocket, or one of the real clients of internal/test/clients.
//
// The incidents are data, in testdata/incidents. docs/lab/corpus.md says how to read the
// result. Each site itself records what happened to its account, so an unsafe release
// is found even if the expectation in the data is wrong.
package incidents
