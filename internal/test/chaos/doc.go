// Package chaos runs the real thing under faults and judges what comes of it:
// sidecars, Chromium and nats-server as processes, in network, mount, process and
// time namespaces of their own where the host allows it, and workers that behave
// well, badly, or not at all.
//
// What is judged is the effect, not the sidecar's opinion: a witness writes down
// which requests reach it under which token, a watcher looks for two browsers on
// one directory, a subscriber reads the events. Check, a pure function of that
// history, names every promise that was broken.
package chaos
