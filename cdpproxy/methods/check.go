package methods

import (
	"strconv"
	"strings"
)

// The reasons of refusals, as journals and metrics name them.
const (
	ReasonMethod    = "method"    // the method is refused, whatever its parameters are
	ReasonUnknown   = "unknown"   // the method is in no class
	ReasonURL       = "url"       // the command names a URL that workers may not open
	ReasonFile      = "file"      // the command names a file outside the exchange directory and the roots
	ReasonParameter = "parameter" // the command has a parameter that is refused
	ReasonForm      = "form"      // the parameters can be read in more than one way
	ReasonTarget    = "target"    // the command is for one of Chrome's own pages
	ReasonPerson    = "person"    // a person has the session
	ReasonSignIn    = "sign_in"   // the launcher signs the account in
)

// The codes of CDP errors that Chrome uses.
const (
	codeServer        = -32000
	codeNoMethod      = -32601
	codeInvalidParams = -32602
)

// Refusal says why a command is refused.
type Refusal struct {
	Reason string
	// What is the URL, path or parameter that the command named; it may be empty.
	What string
	// Code is the code of the CDP error.
	Code int
	// Text says why, and what is allowed. Message adds the method in front of it.
	Text string
}

// Message is the text of the CDP error for a command of the method.
func (r *Refusal) Message(method string) string {
	if r.Reason == ReasonUnknown {
		return r.Text
	}
	return "leasehold refuses " + method + ": " + r.Text
}

// RefuseFile is the refusal of a file, for the reason that err gives.
func RefuseFile(path string, err error) *Refusal {
	return &Refusal{Reason: ReasonFile, What: path, Code: codeServer, Text: err.Error()}
}

// RefuseTarget is the refusal of a command for one of Chrome's own pages.
func RefuseTarget() *Refusal {
	return &Refusal{Reason: ReasonTarget, Code: codeServer, Text: "its target is one of Chrome's own pages or shows a file of the host; pages of the web and of the profile's extensions are allowed"}
}

// RefuseExposing is the refusal to let the script of a page speak CDP.
func RefuseExposing() *Refusal {
	return &Refusal{Reason: ReasonParameter, What: "targetId", Code: codeServer, Text: "a page that speaks CDP drives the account: only an empty tab (about:blank) that no page opened may, at most 16 on a connection"}
}

// ToPrivileged tells whether a method may be used on one of Chrome's own pages: clients that
// attach to every target send these methods, and they reveal nothing about the page.
func ToPrivileged(method []byte) bool {
	switch string(method) {
	case "Runtime.runIfWaitingForDebugger", "Target.detachFromTarget", "Target.setAutoAttach":
		return true
	}
	return false
}

// Named are the files that a command names.
type Named struct {
	// Read are files, or directories of files, that pages will read.
	Read []string
	// Write is the directory to which pages will write downloads.
	Write string
	// Downloads says that the command sets the download behaviour: of Context, or with OfPage of the
	// context of its session's page. Default says that it returns to Chrome's own behaviour, which
	// writes into the user's folder.
	Downloads, OfPage, Default bool
	// Context is the browser context that the command names; empty: the profile's own.
	Context string
}

// Check reads the parameters of a command: a JSON value without syntax errors, or nothing. The
// method is nil if the command's method is not in the table; name is its name.
func Check(m *Method, name string, params []byte) (Named, *Refusal) {
	if m == nil {
		return Named{}, &Refusal{Reason: ReasonUnknown, What: name, Code: codeNoMethod, Text: "'" + shown(name) + "' wasn't found: leasehold passes the methods of docs/cdp-methods.md"}
	}
	switch m.Class {
	case Passes, Handled:
		return Named{}, nil
	case Refused:
		return Named{}, &Refusal{Reason: ReasonMethod, Code: codeServer, Text: m.Why}
	}
	p, bad := readParams(params)
	if bad != nil {
		return Named{}, bad
	}
	var named Named
	if m.Class == Wire {
		p.wire()
		return named, p.bad
	}
	switch m.Name {
	case "Page.navigate", "Target.createTarget", "Network.loadNetworkResource":
		url, given := p.text("url")
		if given && p.bad == nil {
			p.fail(CheckURL(url))
		}
		p.carry("referrer", p.members["referrer"])
		if m.Name == "Target.createTarget" { // Chrome ignores it otherwise
			named.Context, _ = p.text("browserContextId")
		}
	case "Target.attachToTarget":
		p.requireFlat(m)
	case "Target.setAutoAttach":
		if string(p.members["autoAttach"]) == "true" {
			p.requireFlat(m)
		}
	case "DOM.setFileInputFiles":
		named.Read = p.texts("files")
	case "Browser.setDownloadBehavior", "Page.setDownloadBehavior":
		named.Downloads = true
		behavior, _ := p.text("behavior")
		switch behavior {
		case "deny":
		case "default":
			named.Default = true
		case "allow", "allowAndName":
			// If it is missing, Chrome refuses the command.
			named.Write, _ = p.text("downloadPath")
		default:
			p.fail(formRefusal("behavior", "one of deny, allow, allowAndName and default"))
		}
		if named.OfPage = m.Name == "Page.setDownloadBehavior"; !named.OfPage { // otherwise Chrome ignores it
			named.Context, _ = p.text("browserContextId")
		}
	}
	for _, path := range m.Without {
		p.without(m, path)
	}
	return named, p.bad
}

// requireFlat refuses a command without the parameter flatten.
func (p *params) requireFlat(m *Method) {
	if string(p.members["flatten"]) != "true" {
		p.fail(&Refusal{Reason: ReasonParameter, What: "flatten", Code: codeServer, Text: "flatten has to be true. " + m.Why})
	}
}

// without refuses a parameter that is given. An empty array is not, nor is false.
func (p *params) without(m *Method, path string) {
	first, rest, nested := strings.Cut(path, ".")
	value, given := p.members[first]
	if nested && given && value[0] == '{' {
		inner, bad := readParams(value)
		if p.fail(bad); bad != nil {
			return
		}
		value, given = inner.members[rest]
	} else if nested {
		return
	}
	if !given || string(value) == "null" || string(value) == "false" || value[0] == '[' && value[skip(value, 1)] == ']' {
		return
	}
	p.fail(&Refusal{Reason: ReasonParameter, What: path, Code: codeServer, Text: "the parameter " + path + " is not allowed. " + m.Why + " Without it the command passes"})
}

func formRefusal(name, want string) *Refusal {
	return &Refusal{Reason: ReasonForm, What: name, Code: codeInvalidParams, Text: "Invalid parameters: " + name + ": want " + want}
}

func quote(s string) string { return strconv.QuoteToGraphic(s) }
