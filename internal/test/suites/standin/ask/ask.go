// Package ask is what a stand-in for Chrome and the runner of the suites say to each
// other: one line of JSON each way, on a socket whose end is the browser's.
package ask

// Request says which browser a client wants.
type Request struct {
	// Args are the arguments that the client starts Chrome with.
	Args []string `json:"args"`
}

// Answer says where the browser is, or why there is none.
type Answer struct {
	// Host is host:port, with Chrome's own layout of URLs.
	Host  string `json:"host,omitempty"`
	Error string `json:"error,omitempty"`
}
