// Package docs is a test only: it runs the commands and snippets of README.md and of the
// pages in docs/, follows their links, and looks at the length of their lines; and at whether each
// claim of SECURITY.md and docs/access.md names the test that plays it.
//
// Every block of code of these pages has a mark in the line above it, a comment of HTML that
// readers do not see:
//
//	<!-- run -->                a console, sh or python block: it is run, and has to succeed
//	<!-- run: in FRAME -->      the block is put into testdata/frames/FRAME, at its line "the snippet"
//	<!-- run: of FILE -->       the block's lines are in FILE, which another block runs; a line
//	                            of "..." stands for those that are left out
//	<!-- run: as FILE -->       the block is a file of that name, for the blocks below it
//	<!-- run: server -->        the block is one command that serves until the page ends, a
//	                            sidecar for example, and has to print what the block shows
//	<!-- run by: TestName -->   the test of this name runs it, or what it shows
//	<!-- not run: REASON -->    it is not run, for one of the reasons in the table "reasons"
//
// A console block has commands, in lines that begin with "$ ", and below each what it prints,
// to either output. "..." in a line stands for anything, and a line of "..." for any lines.
// Spaces in a row count as one. A command has to succeed, unless the next one is "echo $?".
// A command that only looks (leasehold profiles, show, sessions) is repeated for a while
// until it prints that, since sessions take a moment to end. Where nothing is shown below a
// command, what it prints is not looked at.
//
// The blocks of a page run one after the other in a directory of the page's own, with
// docs/examples in it, and a leasehold of this tree in the PATH and as bin/leasehold. A page
// that starts no sidecar is given one, with a profile shop_018 whose browser stays open from
// one session to the next; with its NATS it costs a fifth of a second of processor time. It
// listens on free ports: the usual ones, 9333 and 4333, and that of the shop in
// docs/examples, 8080, are replaced in what is run and in what is expected. Its pauses are
// short: no cooldown, and a reconnect grace of a second.
//
//	go test ./internal/test/docs -v                                  # says what is run, and what is not
//	go test ./internal/test/docs -run 'TestPages/getting-started'    # one page
package docs
