// Package differ plays scripts of raw CDP messages on a Chromium with a debugging port,
// and through a sidecar, and compares what the client receives: every byte of every
// message, in the order of each CDP session.
//
// A script is a file testdata/scripts/NAME.cdp. Lines that begin with # are comments; the
// first says what the script shows. The others are steps:
//
//	tab t $site/empty           opens a page, waits until it is loaded, and calls its target id $t
//	open b                      opens a connection to the browser, and calls it b
//	open p page $t              opens a connection to the target $t, and calls it p
//	b call Target.getTargets {} sends a command on b and waits for its answer; ids count from 1
//	b/$s call Page.enable       the same on the CDP session $s
//	b send Page.enable          sends a command, and does not wait
//	b raw {"id":7}              sends exactly this message
//	b frame ping hello          sends one websocket frame: text, start, more, last, binary, ping, pong
//	b wait 7                    waits for the answer to the command with the id 7
//	b wait Page.loadEventFired  waits for an event; a message is waited for once
//	b/$s wait Page.frameNavigated params.frame.name=x   of that session, and with that value
//	let t result.targetId       calls a value of the message that was waited for last $t
//	http GET /json/version      makes a request to the port; let looks into the answer too
//	close b 1000 done           begins the close handshake
//	drop b                      closes the socket without one
//	end b                       waits until the other side has ended the connection
//	settle                      waits until nothing has come for a while
//
// Three lines say what is not compared whole:
//
//	set Network.* Page.x        these messages have no order in Chrome: they are compared as a set
//	drop Network.dataReceived   these are not compared, since their number is chance
//	mask data value             what these members hold is not compared
//
// $site and $other are the two origins of the test's site, $downloads is a directory for
// downloads, and $home the target id of the tab that the browser began with.
package differ
