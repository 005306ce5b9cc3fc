// Package chaos runs the real programs under faults and judges the result. Sidecars,
// Chromium and nats-server run as processes, in network, mount, process and time
// namespaces of their own if the host allows it. Their workers behave well, badly, or
// vanish.
//
// The effects are judged, not what the sidecars say of themselves. A witness records
// which requests reach it under which token, a watcher looks for two browsers on one
// directory, and a subscriber reads the events. Check, a pure function of that history,
// names every promise that was broken.
package chaos
