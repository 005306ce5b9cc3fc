package differ

import "regexp"

// Exception is a difference between Chrome's port and the sidecar that is there on
// purpose.
type Exception struct {
	Name string
	// Reason says why, for the people who write clients.
	Reason string
	// Scripts are patterns of the names of the scripts that may meet it.
	Scripts []string
	// port and through match the line that only the port has, and the one that only the
	// sidecar has. Where one is nil, that side has no line of its own. Both are nil for
	// attachedChanges alone, which leaveOutAttached explains.
	port, through *regexp.Regexp
	// added matches a part of a message that one side has and the other has not. It is left
	// out of both.
	added *regexp.Regexp
}

// Exceptions are all differences that stay. One that no script meets is taken out: the
// test says so.
var Exceptions = []Exception{
	except("close frames",
		"Where Chrome closes the socket, the sidecar sends a close frame first, with a code and the reason.",
		everywhere, `^ended: the socket was closed$`, `^ended: close frame (1000|1003|44\d\d|4503) `),
	except("commands in flight at the end",
		"Where the sidecar ends a connection, each command in flight is answered with the reason. Chrome answers none.",
		everywhere, ``, `^\{"id":\d+,"error":\{"code":-32000,"message":"leasehold: `),
	{
		Name:    attachedChanges,
		Reason:  "The sidecar watches each page. Clients are not told, but Chrome reports no change of attached when they attach to a page or leave it, and one when the sidecar's session ends with its target. This is for the member attached alone.",
		Scripts: everywhere, port: nil, through: nil, added: nil,
	},
	except("the observer leaves a shared worker that ends",
		"The sidecar's own session on a shared worker ends with it, which Chrome reports as a change of the target before its end: it has no browser context then.",
		[]string{"worker-shared-ends"}, ``, `^\{"method":"Target.targetInfoChanged".*"type":"shared_worker".*"attached":false,"canAccessOpener":false\}\}\}$`),
	except("the observer is attached to a new worker",
		"Chrome knows the URL of a worker only once somebody is attached to it: the sidecar is, at once.",
		everywhere, `^\{"method":"Target.targetCreated".*"type":"worker","title":"","url":"",`, `^\{"method":"Target.targetCreated".*"type":"worker","title":"http`),
	except("the observer is attached to a new tab",
		"The same for the URL of a tab, and for the title of its page, that was made and has loaded nothing.",
		everywhere, `"type":"(tab|page)","title":"","url":"(about:blank)?",`, `"type":"(tab|page)","title":"about:blank","url":"about:blank",`),
	except("messages that are not JSON",
		"The sidecar reads each message before Chrome does. Its text says less than Chrome's, and names the id where it was read before the fault.",
		everywhere, `^\{"error":\{"code":-32[67]00,"message":"(JSON: |Message must be an object)`, `"error":\{"code":-32700,"message":"JSON: `),
	except("the content type of discovery's texts",
		"Chrome says that its one-line texts are JSON.",
		everywhere, `^[A-Z]+ /json/(activate|close)/.*: 200 application/json; charset=UTF-8$`, `: 200 text/plain; charset=utf-8$`),
	except("refused commands",
		"Commands that would go past the lease, or out of the profile, are refused: docs/cdp-methods.md has them all, with the reasons.",
		[]string{"refused-*", "envelope-params-empty-array-of-a-page"}, `^\{"id":\d+,"(result|error)":`, `^\{"id":\d+,"error":\{"code":-32\d+,"message":"leasehold refuses `),
	except("codes of close frames that the client sends",
		"The sidecar answers a close frame with its code, as the websocket protocol has it. Chrome always answers 1000.",
		[]string{"frame-close-*"}, `^ended: close frame 1000 `, `^ended: close frame \d+ `),
	except("methods that the sidecar does not know",
		"The sidecar passes the methods that it knows, and says so.",
		everywhere, `"message":"'[^']*' wasn't found"\}`, `"message":"'[^']*' wasn't found: leasehold passes `),
	except("members that a message may not have",
		"Chrome names the id only where it came before the member; the sidecar always does.",
		[]string{"envelope-jsonrpc-member"}, `^\{"error":\{"code":-32600,"message":"Message has property`, `^\{"id":1,"error":\{"code":-32600,"message":"Message has property`),
	except("ids that are written as floats",
		"An id is read as an integer of 32 bits. 1.0 and 2e0, which Chrome takes for 1 and 2, are none.",
		[]string{"envelope-id-whole-float"}, `^\{"id":[12],"result":`, `have integer 'id' property`),
	except("what a vanished client leaves in the way",
		"A page that waits for a client is let run when that client goes. On the port it waits for ever.",
		[]string{"connection-dropped-*"}, ``, `^\{"id":2,"result":`),
	except("the content type of discovery",
		"The sidecar's JSON names no charset: it is UTF-8 by definition.",
		everywhere, `^[A-Z]+ /json.*: 200 application/json; charset=UTF-8$`, `^[A-Z]+ /json.*: 200 application/json$`),
	adds("the address of DevTools' frontend",
		"Chrome names one on the internet, of its own revision. The sidecar names the one that every Chrome has.",
		[]string{"discovery-*"}, `"devtoolsFrontendUrl": *"[^"]*", *`),
	adds("the style of paths",
		"The sidecar's version does not say how the browser's host writes paths.",
		[]string{"discovery-*"}, `"File-Path-Style": *"[^"]*", *\n? *`),
	except("refusals of discovery",
		"The sidecar refuses a request with a problem (RFC 9457), as all others.",
		[]string{"discovery-*"}, `^[A-Z]+ /json.*: 4\d\d application/json; charset=UTF-8$`, `: 4\d\d application/problem\+json$`),
	except("the texts of discovery's refusals",
		"The same: in place of Chrome's line of text.",
		[]string{"discovery-*"}, `^(No such|Unknown command|Using unsafe|Could not)`, `^\{"code":`),
	except("the list below a slash",
		"The sidecar's paths may end with a slash. Chrome knows /json/version/ and not /json/.",
		[]string{"discovery-list"}, `^(GET /json/: 404 |Unknown command:)`, `^(GET /json/: 200 |\[\{"description":"","id":<id>)`),
	adds("the observer listens to the network",
		"Chrome names the network's id of a paused request once somebody listens to the page's network: the sidecar does.",
		everywhere, `,"networkId":"[^"]*"`),
	except("paused requests of a connection that ends",
		"The account stands still: what a connection had paused fails with it. On the port it would be sent.",
		[]string{"fetch-two-clients"}, ``, `"description":"TypeError: Failed to fetch`),
}

var everywhere = []string{"*"}

// except makes an exception. An empty pattern stands for no line.
func except(name, reason string, scripts []string, port, through string) Exception {
	e := Exception{Name: name, Reason: reason, Scripts: scripts}
	if port != "" {
		e.port = regexp.MustCompile(port)
	}
	if through != "" {
		e.through = regexp.MustCompile(through)
	}
	return e
}

// adds makes an exception for a part of a message that one side only has.
func adds(name, reason string, scripts []string, added string) Exception {
	return Exception{Name: name, Reason: reason, Scripts: scripts, added: regexp.MustCompile(added)}
}
