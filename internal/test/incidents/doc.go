// Package incidents is the corpus of incidents: scripted sessions on local web
// sites that behave like the real thing, each of whose workers is killed at a named
// moment, with the decision that an honest expert would make. It runs them through
// a sidecar and a browser, and counts where the sidecar decides otherwise.
//
// The incidents are data, in testdata/incidents; docs/corpus.md says how to read the
// result. What a site's account went through is known by the site itself, so that an
// unsafe release shows even where an expectation is wrong.
package incidents
